//! The arguments of `millpond run`.

use crate::run::words::words;
use crate::size;
use clap::Args;
use millpond::{Order, OrderPolicy};
use millpond_settings::{
    BadStore, DeliveryChoice, Engage, OnStoreFull, Settings, StoreChoice, Switch, Tell,
};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What the help says of the words of `--lazy-purge`.
const LAZY_PURGE: [&str; 2] = [
    "Keep freed memory until the budget needs it",
    "Return freed memory at once",
];

/// `millpond run`'s arguments.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The RAM budget of the program, and of each process that it starts, such as 64M, 1.5G, 512MiB, or a number of
    /// bytes. The minimum is 16M
    #[arg(long, value_name = "SIZE", value_parser = size::parse_ram)]
    pub(crate) ram: u64,
    /// Where to keep the memory that does not fit into the budget
    ///
    /// `zram` keeps it in compressed RAM. `file` keeps it in a file; each process has its own file, which has no name
    /// and vanishes with the process. The file is created in the directory PATH, or in the parent directory of PATH
    /// if PATH is not a directory; without PATH it is created in $TMPDIR or /var/tmp. `auto` fills compressed RAM
    /// first and then a file. If `,URL` is appended, memory that does not fit into that store leaves the machine,
    /// compressed and encrypted, as objects in S3 (s3://BUCKET/PREFIX) or Redis (redis://HOST:PORT/DB). Example:
    /// `--store auto,s3://pages/team`
    #[arg(long, value_name = "auto|zram|file[:PATH][,URL]", default_value = "auto", value_parser = Stores::parse)]
    pub(crate) store: Stores,
    /// The maximum size of each process's file: 0 for no file, as on a machine without a disk. Without this option
    /// the file grows as long as its file system has room, or, if `--store` has a URL, to half of the free space
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) file_max: Option<u64>,
    /// The maximum size of all objects beyond the machine, for all processes together
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) remote_max: Option<u64>,
    /// Which thread serves the program's page faults
    ///
    /// `handler` hands each fault to one of Millpond's threads. Everything in the program works as usual, but the
    /// kernel requires a privilege. With `direct` the faulting thread serves its own fault, which needs no privilege:
    /// a seccomp filter inspects system calls, so set-user-ID programs gain no rights when the program starts them
    /// (no_new_privs), and io_uring is refused. `auto` means `direct`, except that programs linked with liburing or
    /// libaio get `handler` where the kernel allows it.
    #[arg(long, value_name = "WHO", default_value = "auto", value_parser = words::<DeliveryChoice>([]))]
    pub(crate) delivery: DeliveryChoice,
    /// The report at the end of the run
    ///
    /// `text` and `json` write the report to standard error, and `none` writes no report. FILE receives the report
    /// instead, with memory and faults over time: as a web page if its name ends in .html, else as JSON. The name
    /// must contain a `/` or a `.`. The option may be given more than once: `--report text --report report.html`
    #[arg(long, value_name = "text|json|none|FILE", default_value = "text", value_parser = ReportChoice::parse)]
    pub(crate) report: Vec<ReportChoice>,
    /// What to do when the store is full
    #[arg(long, value_name = "WHAT", default_value = "exceed", value_parser = words::<OnStoreFull>([]))]
    pub(crate) on_store_full: OnStoreFull,
    /// Allow the store's file to be on a tmpfs, which is itself RAM
    #[arg(long)]
    pub(crate) force_tmpfs: bool,
    /// Encrypt everything that is written to a file. Each process creates its own key and keeps it only in memory
    #[arg(long)]
    pub(crate) encrypt: bool,
    /// When each process begins to be managed
    ///
    /// With `needed` a process is left to the kernel until its memory comes near the budget, or until it makes a call
    /// that could not be served later. Then it engages, once. With `start` it is managed from its first instruction.
    #[arg(long, value_name = "WHEN", default_value = "needed", value_parser = words::<Engage>([]))]
    pub(crate) engage: Engage,
    /// How many pages are brought in and evicted together
    ///
    /// N, from 0 to 9, stands for 2^N pages of 4 KiB each. `adaptive` chooses the number according to the program's
    /// access pattern, up to 2^9 pages, or up to 2^N with `adaptive:N`.
    #[arg(long, value_name = "N|adaptive|adaptive:N", default_value = "adaptive")]
    pub(crate) order: OrderPolicy,
    /// Whether to keep memory that the program frees until the budget needs it, so that it can be reused at no cost
    #[arg(long, value_name = "WHEN", default_value = "on", value_parser = words::<Switch>(LAZY_PURGE))]
    pub(crate) lazy_purge: Switch,
    /// The amount of memory that is reported to the program when it asks
    ///
    /// Programs size their caches, heaps and sorts by it. `budget` reports the budget, through `sysconf`, `sysinfo`,
    /// /proc/meminfo and the files of the program's control group; `machine` lets the kernel answer.
    #[arg(long, value_name = "WHAT", default_value = "budget", value_parser = words::<Tell>([]))]
    pub(crate) tell: Tell,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    /// A run whose pages are to be seen one by one: folios of order 0, and freed memory is given back at once.
    #[must_use]
    pub fn for_recording(ram: u64, command: Vec<OsString>) -> Self {
        Self {
            ram,
            store: Stores::default(),
            file_max: None,
            remote_max: None,
            delivery: DeliveryChoice::Auto,
            engage: Engage::Start,
            report: Vec::new(),
            on_store_full: OnStoreFull::Exceed,
            force_tmpfs: false,
            encrypt: false,
            order: OrderPolicy::Fixed(Order::ZERO),
            lazy_purge: Switch::Off,
            tell: Tell::Machine,
            command,
        }
    }

    /// The settings of each process of the run, but for the paths that are known when it starts.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            ram: Some(self.ram),
            store: self.store.local.clone(),
            delivery: self.delivery,
            engage: self.engage,
            order: self.order,
            on_store_full: self.on_store_full,
            lazy_purge: self.lazy_purge,
            tell: self.tell,
            encrypt: self.encrypt.into(),
            force_tmpfs: self.force_tmpfs,
            file_max: self.file_max,
            ..Settings::default()
        }
    }
}

/// The places for memory that does not fit: here, and beyond the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stores {
    /// The one on this machine.
    pub local: StoreChoice,
    /// The URL of the one beyond it.
    pub beyond: Option<String>,
    /// Whether there was a URL without a store before it, which is refused later.
    pub(crate) is_alone: bool,
}

impl Stores {
    /// Parses the name of a store, and a URL behind a comma.
    ///
    /// # Errors
    /// When no store has that name.
    pub fn parse(text: &str) -> Result<Self, String> {
        // A path may have commas of its own.
        let url = text.match_indices(',').map(|(at, _)| at);
        let beyond = url.map(|at| &text[at + 1..]).find(|rest| is_url(rest));
        if beyond.is_none() && is_url(text) {
            // The parser would repeat what it refuses, and there may be a password in it.
            return Ok(Self {
                is_alone: true,
                ..Self::default()
            });
        }
        let here = text.len() - beyond.map_or(0, |url| url.len() + 1);
        Ok(Self {
            local: parse_store(&text[..here])?,
            beyond: beyond.map(str::to_owned),
            is_alone: false,
        })
    }
}

/// Whether the text begins as a URL does: with letters, a colon and two slashes.
fn is_url(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.bytes().all(|letter| letter.is_ascii_alphanumeric())
    })
}

/// Parses the name of a store on this machine.
///
/// # Errors
/// When no store has that name, or the path has no absolute form.
pub fn parse_store(text: &str) -> Result<StoreChoice, String> {
    let store: StoreChoice = text.parse().map_err(|error: BadStore| error.to_string())?;
    store.absolute().map_err(|error| error.to_string())
}

/// The place where the report goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReportChoice {
    Text,
    Json,
    None,
    File(PathBuf),
}

impl ReportChoice {
    /// The file that is to be made.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Text | Self::Json | Self::None => None,
        }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "none" => Ok(Self::None),
            "" => Err(
                "the name of the report's file is empty; choose text, json, none or a file"
                    .to_owned(),
            ),
            // A mistyped word would leave a file of that name behind, and no report on the terminal.
            word if !word.contains(['/', '.']) => Err(format!(
                "`{word}` is no form of the report; choose text, json or none, or name a file with a `/` or a `.` in \
                 it, as ./{word}, {word}.json or {word}.html"
            )),
            path => Ok(Self::File(path.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cli;
    use clap::{CommandFactory, FromArgMatches};

    /// The arguments of `millpond run --ram 64M OPTIONS -- true`.
    fn parsed(options: &[&str]) -> Result<RunArgs, clap::Error> {
        let begin = ["millpond", "run", "--ram", "64M"];
        let words = begin.iter().chain(options).chain(&["--", "true"]);
        let matches = Cli::command().try_get_matches_from(words)?;
        let run = matches
            .subcommand_matches("run")
            .expect("it is this command");
        RunArgs::from_arg_matches(run)
    }

    /// What an option leaves to its default is what a process takes where its variable is not set.
    #[test]
    fn the_defaults_of_options_are_those_of_settings() {
        let usual = Settings {
            ram: Some(64 << 20),
            ..Settings::default()
        };
        assert_eq!(parsed(&[]).unwrap().settings(), usual);
    }

    #[test]
    fn each_option_is_a_setting() {
        let options = "--store=file:/x --file-max=1M --delivery=handler --engage=start --on-store-full=abort \
                       --force-tmpfs --encrypt --order=4 --lazy-purge=off --tell=machine";
        let options: Vec<_> = options.split_whitespace().collect();
        let wanted = Settings {
            ram: Some(64 << 20),
            store: StoreChoice::File(Some("/x".into())),
            delivery: DeliveryChoice::Handler,
            engage: Engage::Start,
            order: "4".parse().unwrap(),
            on_store_full: OnStoreFull::Abort,
            lazy_purge: Switch::Off,
            tell: Tell::Machine,
            encrypt: Switch::On,
            force_tmpfs: true,
            file_max: Some(1 << 20),
            ..Settings::default()
        };
        assert_eq!(parsed(&options).unwrap().settings(), wanted);
    }

    #[test]
    fn unknown_word_is_refused_with_the_possible_values() {
        let error = parsed(&["--lazy-purge=often"]).unwrap_err().to_string();
        for part in [
            "'often'",
            "--lazy-purge <WHEN>",
            "[possible values: on, off]",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn stores_parse_with_and_without_a_url_behind_them() {
        let parsed = |text: &str| Stores::parse(text).map(|stores| (stores.local, stores.beyond));
        let url = "s3://bucket/a,b?endpoint=http://x:1";
        let file = |path: &str| StoreChoice::File(Some(path.into()));
        for (text, local, beyond) in [
            ("auto", StoreChoice::Auto, None),
            ("zram", StoreChoice::Zram, None),
            (
                "auto,s3://bucket/a,b?endpoint=http://x:1",
                StoreChoice::Auto,
                Some(url),
            ),
            (
                "file,redis://a:1,b:2,c:3",
                StoreChoice::File(None),
                Some("redis://a:1,b:2,c:3"),
            ),
            ("file:/a,b", file("/a,b"), None),
            ("file:/a,b,redis://h/0", file("/a,b"), Some("redis://h/0")),
        ] {
            assert_eq!(
                parsed(text),
                Ok((local, beyond.map(str::to_owned))),
                "{text}"
            );
        }
        let alone = Stores::parse("redis://user:secret@h:1/0").unwrap();
        assert!(alone.is_alone && alone.beyond.is_none());
        for text in ["", "tape", "auto,", "auto,x", ",s3://b/p", "file:"] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
