//! The store beyond the machine, which this process keeps for all the programs of a run.
//!
//! A program under a budget contains no HTTP client. It passes data that fits neither into its RAM nor into its file to
//! this process, over shared memory (`millpond-relay`), and this process packs, seals and sends it (`millpond-remote`).
//! Some MiB wait here, compressed, until they are sent.
//!
//! The data that a program has stored here is lost when this process ends. So `millpond run` stays as long as a process
//! of the tree has memory here, even after the program itself has ended, and says so.

use super::RunArgs;
use millpond_settings::Settings;

#[cfg(feature = "remote")]
use {
    super::signals::Signals,
    super::{StoreChoice, without_signals},
    crate::print,
    millpond_relay::{RelayError, Server},
    millpond_remote::{Remote, RemoteConfig, RemoteOpenError},
    millpond_store::{CompressedRam, CompressedRamConfig, OpenError},
    std::sync::Arc,
    std::time::Duration,
};

/// Bytes of RAM for slots that wait to be packed.
#[cfg(feature = "remote")]
const WAITING: u64 = 8 << 20;

/// The smallest useful limit of a file; with less there is no file.
#[cfg(feature = "remote")]
const LEAST_FILE: u64 = 16 << 20;

/// Why the store beyond the machine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BeyondError {
    /// This command was built without it.
    #[cfg(not(feature = "remote"))]
    #[error(
        "this millpond has no store beyond the machine, which --store …,URL asks for: take the packaged one, or build it \
         with `cargo build --release -p millpond-cli --features remote`"
    )]
    LeftOut,
    /// The store at the URL accepts nothing.
    #[cfg(feature = "remote")]
    #[error(transparent)]
    Remote(#[from] RemoteOpenError),
    /// There is no memory for slots that wait to be sent.
    #[cfg(feature = "remote")]
    #[error(transparent)]
    Waiting(#[from] OpenError),
    /// The programs cannot be reached.
    #[cfg(feature = "remote")]
    #[error(transparent)]
    Relay(#[from] RelayError),
}

impl BeyondError {
    /// The exit status for this error.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            #[cfg(not(feature = "remote"))]
            Self::LeftOut => 2,
            #[cfg(feature = "remote")]
            Self::Remote(RemoteOpenError::Url(_)) => 2,
            #[cfg(feature = "remote")]
            _ => 125,
        }
    }
}

/// The store beyond the machine, and the programs' connection to it.
#[cfg(feature = "remote")]
pub(super) struct Beyond {
    server: Server,
    /// The limit of each process's file, if the user has not set one.
    file_max: Option<u64>,
}

#[cfg(feature = "remote")]
impl Beyond {
    /// Opens the store, if one is requested.
    pub(super) fn open(args: &RunArgs) -> Result<Option<Self>, BeyondError> {
        let Some(url) = &args.store.beyond else {
            return Ok(None);
        };
        let url = url.parse().map_err(RemoteOpenError::Url)?;
        let config = RemoteConfig {
            max_bytes: args.remote_max,
            // Loaded bytes go to other processes' memory.
            memory_bytes: 0,
            ..RemoteConfig::for_budget(url, WAITING, args.ram)
        };
        let waiting = CompressedRam::new(CompressedRamConfig {
            max_bytes: Some(WAITING),
        })?;
        // The threads started here must not take a signal that has to be forwarded.
        let server = without_signals(|| {
            let store = Remote::behind(Box::new(waiting), config)?;
            Server::start(Arc::new(store)).map_err(BeyondError::from)
        })?;
        Ok(Some(Self {
            server,
            file_max: usual_file_max(args),
        }))
    }

    /// Adds what the programs are told.
    pub(super) fn complete(&self, settings: &mut Settings) {
        settings.relay = Some(self.server.path());
        settings.file_max = settings.file_max.or(self.file_max);
    }

    /// Waits for processes that have memory here, or until a signal requests the end, and deletes the objects.
    pub(super) fn end(self) {
        let signals = Signals::take();
        let mut told = false;
        loop {
            // Processes that have just ended are excluded once they are checked.
            if self.server.owners().is_empty() {
                return;
            }
            let ended = signals.wait(Duration::from_millis(200));
            let owners = self.server.owners();
            if owners.is_empty() {
                return;
            }
            if ended.is_some_and(|arrived| is_an_end(arrived.signal)) {
                print::say(format_args!(
                    "the memory of {} beyond the machine is given up",
                    processes(&owners)
                ));
                return;
            }
            if !told {
                told = true;
                std::thread::sleep(Duration::from_millis(1200));
                let owners = self.server.owners();
                if !owners.is_empty() {
                    print::say(format_args!(
                        "the program has ended; {} of it still need their memory beyond the machine, so `millpond run` \
                         waits for them (^C ends it, and they lose that memory)",
                        processes(&owners)
                    ));
                }
            }
        }
    }
}

#[cfg(feature = "remote")]
fn is_an_end(signal: i32) -> bool {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal)
}

#[cfg(feature = "remote")]
fn processes(owners: &[u32]) -> String {
    let numbers: Vec<String> = owners.iter().map(u32::to_string).collect();
    let word = if owners.len() == 1 {
        "process"
    } else {
        "processes"
    };
    format!("{word} {}", numbers.join(", "))
}

/// The limit of each process's file if the user has not set one: half of the free room where it will be.
#[cfg(feature = "remote")]
fn usual_file_max(args: &RunArgs) -> Option<u64> {
    if args.file_max.is_some() || args.store.local == StoreChoice::Zram {
        return None;
    }
    let half = millpond::half_of_free(args.store.local.directory())?;
    Some(if half < LEAST_FILE { 0 } else { half })
}

/// Replaces the store in a command that was built without it.
#[cfg(not(feature = "remote"))]
pub(super) enum Beyond {}

#[cfg(not(feature = "remote"))]
impl Beyond {
    pub(super) fn open(args: &RunArgs) -> Result<Option<Self>, BeyondError> {
        match &args.store.beyond {
            Some(_) => Err(BeyondError::LeftOut),
            None => Ok(None),
        }
    }

    pub(super) fn complete(&self, _: &mut Settings) {
        match *self {}
    }

    pub(super) fn end(self) {
        match self {}
    }
}
