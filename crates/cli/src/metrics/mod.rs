//! `millpond metrics`: the counters of all processes that run, for Prometheus and for other readers of its format.
//!
//! | arguments | result |
//! | --- | --- |
//! | none | the metrics are printed once, in the form for a textfile collector |
//! | `--listen [ADDRESS]` | the metrics are served there under `/metrics` until the command is ended |
//!
//! The command sees what `millpond stat` sees: boards of this user's processes, or of every user's for root. That does
//! not disturb any process, and none has to serve anything itself. The server listens on the loopback address by
//! default: its answers contain names of programs, and it does not authenticate clients.

mod error;
mod exposition;
mod serve;

use crate::print;
use clap::Args;
pub use error::MetricsError;
use millpond_board::watch::Watch;
use std::net::SocketAddr;

/// `millpond metrics`' arguments.
#[derive(Args, Debug)]
pub struct MetricsArgs {
    /// Serve the counters at http://ADDRESS/metrics instead of printing them once. The default ADDRESS is
    /// 127.0.0.1:9797
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:9797")]
    listen: Option<SocketAddr>,
}

/// Prints the metrics, or serves them.
///
/// # Errors
/// When the address cannot be listened on, or nothing can be printed.
pub fn metrics(args: &MetricsArgs) -> Result<u8, MetricsError> {
    match args.listen {
        Some(address) => serve::serve(address)?,
        None => print::all(exposition::of_all(&mut Watch::default()).as_bytes())?,
    }
    Ok(0)
}
