//! Reasons why there are no metrics.

use std::io;
use std::net::SocketAddr;

/// A reason why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address is taken, or does not belong to this machine.
    #[error("cannot listen on {address}: {reason}; choose another with --listen ADDRESS:PORT")]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The system's answer.
        reason: String,
    },
    /// The result cannot be printed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}
