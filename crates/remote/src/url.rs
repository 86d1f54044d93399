//! Where a remote store is: a URL, and OpenDAL's operator made from it.
//!
//! ```text
//! s3://bucket/prefix?region=eu-central-1&endpoint=https://minio.example:9000
//! redis://host:6379/0      rediss://host/0 by TLS      redis://a:7000,b:7000,c:7000?cluster=true
//! fs:///directory          memory:// for tests
//! ```
//!
//! Credentials are not part of a URL, because many people can see command lines and settings. They come from where
//! the services' own clients look: for S3, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, the
//! profile of `~/.aws`, and the role of the machine or container; for Redis, `REDISCLI_AUTH` (and `REDIS_USERNAME`
//! for a user other than the default one). A URL that contains a password is refused, and the refusal does not repeat
//! it.

use crate::object::ObjectError;
use opendal::{HttpTransporter, OperationContext, Operator, services};
use opendal_http_transport_reqwest::ReqwestTransport;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::path::Path;
use url::Url;

/// Why a URL does not name a remote store. The message names the part that is wrong and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The text is not a URL.
    #[error(
        "the remote store's address is no URL ({why}): write s3://BUCKET/PREFIX or redis://HOST:PORT/DB"
    )]
    NotAUrl {
        /// The parser's message.
        why: String,
    },
    /// There is no known service of this name.
    #[error(
        "{scheme}:// is no remote store that is known: use s3://, redis://, rediss://, fs:// or memory://"
    )]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// A part is missing.
    #[error("the URL of the remote store has no {part}: {remedy}")]
    Missing {
        /// What is missing.
        part: &'static str,
        /// How to write it.
        remedy: &'static str,
    },
    /// The URL contains a user or a password.
    #[error(
        "the URL of the remote store has a user or password in it, where others may read it: {remedy}"
    )]
    Credentials {
        /// Where they belong.
        remedy: &'static str,
    },
    /// The service does not have this parameter, or does not accept its value.
    #[error("the remote store's URL has the parameter {name}={value}: {remedy}")]
    Parameter {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// The alternatives.
        remedy: &'static str,
    },
    /// The part after the host is not the number of a database.
    #[error(
        "{path:?} is no database of Redis: end the URL with a number, as in redis://host:6379/0"
    )]
    Database {
        /// The part.
        path: String,
    },
    /// OpenDAL refused the settings.
    #[error("the remote store cannot be used ({why}): check each part of its URL")]
    Refused {
        /// Its message.
        why: String,
    },
}

/// The service behind a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Service {
    S3 {
        bucket: String,
        endpoint: Option<String>,
        region: Option<String>,
    },
    Redis {
        hosts: String,
        tls: bool,
        cluster: bool,
        db: i64,
    },
    Directory,
    Memory,
}

/// The address of a remote store. It contains no credentials, so it may be shown.
///
/// ```
/// use millpond_remote::RemoteUrl;
///
/// let url: RemoteUrl = "s3://cold-pages/team?region=eu-central-1".parse()?;
/// assert_eq!(url.to_string(), "s3://cold-pages/team?region=eu-central-1");
///
/// let refused = "redis://:secret@cache:6379/0".parse::<RemoteUrl>().unwrap_err();
/// assert!(!refused.to_string().contains("secret"));
/// # Ok::<(), millpond_remote::UrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    text: String,
    service: Service,
    /// The prefix or directory; for S3, without slashes at either end.
    root: String,
}

impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteUrl({})", self.text)
    }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for RemoteUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        // A URL cannot have several hosts: the first one stands for them while the rest is parsed.
        let (first, others) = several_hosts(text);
        let url = Url::parse(&first).map_err(|why| UrlError::NotAUrl {
            why: why.to_string(),
        })?;
        let (service, root) = match url.scheme() {
            "s3" => s3(&url)?,
            "redis" | "rediss" => redis(&url, &others)?,
            "fs" => directory(&url)?,
            "memory" => {
                parameters(&url, &[], "memory:// has none")?;
                (Service::Memory, String::new())
            }
            scheme => {
                return Err(UrlError::Scheme {
                    scheme: scheme.to_owned(),
                });
            }
        };
        Ok(Self {
            text: text.to_owned(),
            service,
            root,
        })
    }
}

/// An object and its place, split by [`RemoteUrl::object`].
#[derive(Debug)]
pub(crate) struct ObjectUrl {
    /// The bucket or the directory that contains the object.
    pub(crate) place: RemoteUrl,
    /// The object's name there.
    pub(crate) name: String,
}

impl RemoteUrl {
    /// Splits the URL of a single object, whose name is what follows the bucket, or the last part of a path.
    pub(crate) fn object(&self) -> Result<ObjectUrl, ObjectError> {
        let no_objects = |remedy| ObjectError::Service {
            url: self.text.clone(),
            remedy,
        };
        match self.service {
            Service::S3 { .. } | Service::Directory => {}
            Service::Redis { .. } => {
                return Err(no_objects(
                    "Redis gives no parts of a value, and says of none which version it is; put the bytes into S3 or \
                     a file",
                ));
            }
            Service::Memory => {
                return Err(no_objects(
                    "nobody else can have put anything there; use fs:///DIRECTORY/NAME for tests",
                ));
            }
        }
        let bad_name = |why| ObjectError::Name {
            url: self.text.clone(),
            why,
        };
        let url = Url::parse(&self.text).map_err(|_| bad_name("its text is no URL"))?;
        let path = percent_decode_str(url.path()).decode_utf8();
        let path = path.map_err(|_| bad_name("its name is not UTF-8"))?;
        let path = path.strip_prefix('/').unwrap_or(&path);
        let (directory, name) = match (&self.service, path.rsplit_once('/')) {
            (Service::Directory, Some((directory, name))) => (format!("/{directory}"), name),
            (Service::Directory, None) => ("/".to_owned(), path),
            // All of it is the name of a key.
            _ => (String::new(), path),
        };
        // The client would change such names.
        let is_kept = name == name.trim() && !format!("/{path}").contains("//");
        match name {
            "" => Err(bad_name(
                "there is no name at its end; name one object, as in s3://BUCKET/NAME",
            )),
            _ if path.ends_with('/') => Err(bad_name(
                "it ends with a slash; name one object, as in s3://BUCKET/NAME",
            )),
            _ if !is_kept => Err(bad_name(
                "there are spaces at the ends of its name, or two slashes in a row; copy it to another name",
            )),
            name => Ok(ObjectUrl {
                place: Self {
                    root: directory,
                    ..self.clone()
                },
                name: name.to_owned(),
            }),
        }
    }

    /// Whether everything stored there is in this process's memory.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.service == Service::Memory
    }

    /// Whether it is a directory, in which directories are entries of their own.
    pub(crate) fn is_directory(&self) -> bool {
        self.service == Service::Directory
    }

    /// Whether it is a missing directory. [`operator`](Self::operator) creates it, which is wrong for those who only
    /// read.
    pub(crate) fn is_absent_directory(&self) -> bool {
        self.is_directory() && !Path::new(&self.root).is_dir()
    }

    /// Opens the place, without contacting it yet.
    ///
    /// # Errors
    /// OpenDAL does not accept the settings.
    pub fn operator(&self) -> Result<Operator, UrlError> {
        let refused = |error: opendal::Error| UrlError::Refused {
            why: error.to_string(),
        };
        match &self.service {
            Service::S3 {
                bucket,
                endpoint,
                region,
            } => {
                // Whichever library comes first chooses the TLS implementation; both are sound.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let mut s3 = services::S3::default().bucket(bucket).root(&self.root);
                if let Some(endpoint) = endpoint {
                    s3 = s3.endpoint(endpoint);
                }
                s3 = s3.region(region.as_deref().unwrap_or("us-east-1"));
                Ok(Operator::new(s3)
                    .map_err(refused)?
                    .with_context(over_http()?))
            }
            Service::Redis {
                hosts,
                tls,
                cluster,
                db,
            } => {
                let _ = rustls::crypto::ring::default_provider().install_default();
                let scheme = if *tls { "rediss://" } else { "redis://" };
                let each: Vec<String> = hosts
                    .split(',')
                    .map(|host| format!("{scheme}{host}"))
                    .collect();
                let mut redis = services::Redis::default().db(*db).root(&self.root);
                redis = if *cluster {
                    redis.cluster_endpoints(&each.join(","))
                } else {
                    redis.endpoint(&each[0])
                };
                if let Some(password) = variable("REDISCLI_AUTH") {
                    redis = redis.password(&password);
                }
                if let Some(user) = variable("REDIS_USERNAME") {
                    redis = redis.username(&user);
                }
                Operator::new(redis).map_err(refused)
            }
            Service::Directory => {
                Operator::new(services::Fs::default().root(&self.root)).map_err(refused)
            }
            Service::Memory => Operator::new(services::Memory::default()).map_err(refused),
        }
    }
}

/// Makes an HTTP client for the operator alone: connections belong to the runtime that opened them, and end with it.
fn over_http() -> Result<OperationContext, UrlError> {
    let client = reqwest::Client::builder().build();
    let client = client.map_err(|error| UrlError::Refused {
        why: error.to_string(),
    })?;
    let transport = HttpTransporter::new(ReqwestTransport::new(client));
    Ok(OperationContext::new().with_http_transport(transport))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the URL with only its first host, and all hosts as they were written.
fn several_hosts(text: &str) -> (String, String) {
    let Some((scheme, rest)) = text.split_once("://") else {
        return (text.to_owned(), String::new());
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (hosts, rest) = rest.split_at(end);
    let first = hosts.split(',').next().unwrap_or_default();
    (format!("{scheme}://{first}{rest}"), hosts.to_owned())
}

fn s3(url: &Url) -> Result<(Service, String), UrlError> {
    no_credentials(
        url,
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead",
    )?;
    let remedy = "s3 takes endpoint=URL and region=NAME";
    let [endpoint, region] = parameters(url, &["endpoint", "region"], remedy)?
        .try_into()
        .unwrap_or_default();
    if let Some(endpoint) = &endpoint {
        let is_url = Url::parse(endpoint).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !is_url || endpoint.contains('@') {
            let value = if endpoint.contains('@') {
                "...".to_owned()
            } else {
                endpoint.clone()
            };
            let remedy =
                "give the endpoint as http://HOST:PORT or https://HOST:PORT, without a password";
            return Err(UrlError::Parameter {
                name: "endpoint".to_owned(),
                value,
                remedy,
            });
        }
    }
    let bucket = url.host_str().unwrap_or_default().to_owned();
    if bucket.is_empty() {
        return Err(UrlError::Missing {
            part: "bucket",
            remedy: "write s3://BUCKET/PREFIX",
        });
    }
    let region = region
        .or_else(|| variable("AWS_REGION"))
        .or_else(|| variable("AWS_DEFAULT_REGION"));
    let root = url.path().trim_matches('/').to_owned();
    Ok((
        Service::S3 {
            bucket,
            endpoint,
            region,
        },
        root,
    ))
}

fn redis(url: &Url, hosts: &str) -> Result<(Service, String), UrlError> {
    let remedy = "set REDISCLI_AUTH to the password, and REDIS_USERNAME to the user if it is not the default one";
    no_credentials(url, remedy)?;
    if hosts.contains('@') {
        return Err(UrlError::Credentials { remedy });
    }
    let remedy = "redis takes cluster=true, and prefix=NAME before the names of all keys";
    let [cluster, prefix] = parameters(url, &["cluster", "prefix"], remedy)?
        .try_into()
        .unwrap_or_default();
    let cluster = match cluster.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(value) => {
            let (name, value) = ("cluster".to_owned(), value.to_owned());
            return Err(UrlError::Parameter {
                name,
                value,
                remedy,
            });
        }
    };
    if url.host_str().is_none_or(str::is_empty) {
        return Err(UrlError::Missing {
            part: "host",
            remedy: "write redis://HOST:PORT/DB",
        });
    }
    let path = url.path().trim_matches('/');
    let db = match path {
        "" => 0,
        path => path.parse().map_err(|_| UrlError::Database {
            path: path.to_owned(),
        })?,
    };
    let several = hosts.contains(',');
    if several && !cluster {
        let remedy = "add ?cluster=true, or name one host";
        return Err(UrlError::Missing {
            part: "word that its hosts are a cluster",
            remedy,
        });
    }
    let tls = url.scheme() == "rediss";
    let hosts = hosts.to_owned();
    Ok((
        Service::Redis {
            hosts,
            tls,
            cluster,
            db,
        },
        prefix.unwrap_or_default(),
    ))
}

fn directory(url: &Url) -> Result<(Service, String), UrlError> {
    parameters(url, &[], "fs:// has none")?;
    if url.host_str().is_some_and(|host| !host.is_empty()) {
        let remedy = "write fs:///DIRECTORY, with three slashes";
        return Err(UrlError::Missing {
            part: "directory from the root on",
            remedy,
        });
    }
    if url.path().trim_matches('/').is_empty() {
        return Err(UrlError::Missing {
            part: "directory",
            remedy: "write fs:///DIRECTORY",
        });
    }
    Ok((Service::Directory, url.path().to_owned()))
}

fn no_credentials(url: &Url, remedy: &'static str) -> Result<(), UrlError> {
    let has_none = url.username().is_empty() && url.password().is_none();
    has_none
        .then_some(())
        .ok_or(UrlError::Credentials { remedy })
}

/// Returns the values of the known parameters. Any other parameter is an error.
fn parameters(
    url: &Url,
    known: &[&str],
    remedy: &'static str,
) -> Result<Vec<Option<String>>, UrlError> {
    let mut values = vec![None; known.len()];
    for (name, value) in url.query_pairs() {
        match known.iter().position(|known| *known == name) {
            Some(index) => values[index] = Some(value.into_owned()),
            None => {
                // An unknown parameter may be a secret that does not belong here.
                let (name, value) = (name.into_owned(), "...".to_owned());
                return Err(UrlError::Parameter {
                    name,
                    value,
                    remedy,
                });
            }
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RemoteUrl, UrlError> {
        text.parse()
    }

    #[test]
    fn each_service_has_its_parts() {
        let s3 = parse("s3://bucket/a/b/?endpoint=http://127.0.0.1:9000&region=r").unwrap();
        let (endpoint, region) = (
            Some("http://127.0.0.1:9000".to_owned()),
            Some("r".to_owned()),
        );
        assert_eq!(
            s3.service,
            Service::S3 {
                bucket: "bucket".into(),
                endpoint,
                region
            }
        );
        assert_eq!(s3.root, "a/b");
        let redis = parse("redis://cache:7000/3?prefix=mine").unwrap();
        let hosts = "cache:7000".to_owned();
        assert_eq!(
            redis.service,
            Service::Redis {
                hosts,
                tls: false,
                cluster: false,
                db: 3
            }
        );
        assert_eq!(redis.root, "mine");
        let cluster = parse("rediss://a:1,b:2?cluster=true").unwrap();
        let hosts = "a:1,b:2".to_owned();
        assert_eq!(
            cluster.service,
            Service::Redis {
                hosts,
                tls: true,
                cluster: true,
                db: 0
            }
        );
        assert_eq!(parse("fs:///var/pond").unwrap().root, "/var/pond");
        assert!(parse("memory://").unwrap().is_memory());
        for url in [
            s3,
            redis,
            parse("fs:///tmp/x").unwrap(),
            parse("memory://").unwrap(),
        ] {
            assert!(url.operator().is_ok(), "{url}");
        }
    }

    #[test]
    fn each_refusal_names_the_part_and_a_remedy() {
        let cases = [
            ("bucket", "is no URL"),
            ("ftp://x", "use s3://"),
            ("s3:///x", "no bucket: write"),
            ("s3://b?regoin=x", "regoin=...: s3 takes"),
            ("s3://b?endpoint=minio:9000", "give the endpoint as"),
            ("redis:///0", "no host"),
            ("redis://h/x", "\"x\" is no database"),
            ("redis://a:1,b:1/0", "add ?cluster=true"),
            ("redis://h?cluster=yes", "cluster=yes"),
            ("fs://relative", "three slashes"),
            ("fs:///", "no directory"),
        ];
        for (text, expected) in cases {
            let refused = parse(text).unwrap_err().to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }

    /// Guards against looking for a name with a space under `%20`.
    #[test]
    fn an_object_is_named_by_what_follows_its_bucket_or_directory() {
        let cases = [
            ("s3://b/a/b%20c.npy?region=r", "", "a/b c.npy"),
            ("s3://b/x", "", "x"),
            ("s3://b/\u{e4}", "", "\u{e4}"),
            ("fs:///data/a%20b/x.npy", "/data/a b", "x.npy"),
            ("fs:///x", "/", "x"),
        ];
        for (text, root, name) in cases {
            let object = parse(text).unwrap().object().unwrap();
            assert_eq!((&*object.place.root, &*object.name), (root, name), "{text}");
        }
        let cases = [
            ("redis://h/0", "put the bytes into S3"),
            ("memory://", "use fs://"),
            ("s3://b", "no name"),
            ("s3://b/a/", "a slash"),
            ("s3://b/a//b", "two slashes"),
            ("s3://b//b", "two slashes"),
            ("s3://b/b%20", "spaces"),
            ("s3://b/%ff", "UTF-8"),
        ];
        for (text, expected) in cases {
            let refused = parse(text).unwrap().object().unwrap_err().to_string();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }

    #[test]
    fn no_refusal_shows_a_secret() {
        let secrets = [
            "s3://AKIA:hunter2@bucket/x",
            "s3://bucket?endpoint=http://u:hunter2@host",
            "s3://bucket?secret_access_key=hunter2",
            "redis://:hunter2@h/0",
            "redis://h:1,u:hunter2@i:1?cluster=true",
        ];
        for text in secrets {
            let refused = parse(text).unwrap_err();
            assert!(
                !format!("{refused} {refused:?}").contains("hunter2"),
                "{refused:?}"
            );
        }
    }
}
