//! Serving metrics over HTTP: one request at a time, since answering one takes a millisecond.

use crate::metrics::error::MetricsError;
use crate::metrics::exposition;
use crate::print;
use millpond_board::watch::Watch;
use std::net::SocketAddr;
use tiny_http::{Header, Method, Request, Response, Server};

/// The media type of OpenMetrics in text.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Serves metrics until the process is ended.
pub fn serve(address: SocketAddr) -> Result<(), MetricsError> {
    let server = Server::http(address).map_err(|error| MetricsError::Listen {
        address,
        reason: error.to_string(),
    })?;
    // Port 0 means any port, so the line names the chosen port.
    let here = server.server_addr();
    print::say(format_args!("serving metrics at http://{here}/metrics"));
    let mut watch = Watch::default();
    for request in server.incoming_requests() {
        answer(request, &mut watch);
    }
    Ok(())
}

fn answer(request: Request, watch: &mut Watch) {
    let path = request.url().split('?').next().unwrap_or_default();
    let (status, kind, body) = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => (200, OPENMETRICS, exposition::of_all(watch)),
        (Method::Get | Method::Head, "/") => (200, PLAIN, "metrics are at /metrics\n".to_owned()),
        (Method::Get | Method::Head, _) => (
            404,
            PLAIN,
            format!("there is no {path}; metrics are at /metrics\n"),
        ),
        (method, _) => (
            405,
            PLAIN,
            format!("{method} is not served; GET /metrics is\n"),
        ),
    };
    let mut response = Response::from_string(body).with_status_code(status);
    if let Ok(header) = Header::from_bytes("Content-Type", kind) {
        response.add_header(header);
    }
    // A client that has hung up no longer wants the answer.
    let _ = request.respond(response);
}
