//! Why there are no metrics.

use std::io;
use std::net::SocketAddr;

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address is taken, or not this machine's.
    #[error("cannot listen on {address}: {reason}; choose another with --listen ADDRESS:PORT")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        reason: String,
    },
    /// The result cannot be printed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}
