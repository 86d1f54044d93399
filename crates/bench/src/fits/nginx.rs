//! `nginx`: sequential requests to nginx, which serves them in one worker process.

use crate::error::Failure;
use crate::fits::http;
use crate::fits::job::{Outcome, Place, free_port, wait_for};
use crate::programs_here;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// The program's name.
pub const PROGRAM: &str = "nginx";
const REQUESTS: u32 = 20_000;

/// Times the requests.
///
/// # Errors
/// When the server cannot be started, or fails.
pub fn work(place: &Place<'_>) -> Result<Outcome, Failure> {
    let bodies = http::bodies(place)?;
    let port = free_port()?;
    let settings = place.directory().join("nginx.conf");
    fs::write(&settings, configuration(place.directory(), port))?;
    let arguments = [
        "-c".as_ref(),
        settings.as_os_str(),
        OsStr::new("-e"),
        OsStr::new("stderr"),
    ];
    let mut started = place.start(&programs_here::find(PROGRAM)?, &arguments)?;
    wait_for(&mut started, PROGRAM, port)?;
    let (seconds, wrong) = http::ask(port, place.sizes().times(REQUESTS), &bodies)?;
    let ended = started.end()?;
    place.outcome(seconds, &ended, wrong)
}

/// The worker is this user's, so that it may read the directory.
fn configuration(directory: &Path, port: u16) -> String {
    let user = match rustix::process::geteuid().is_root() {
        true => "user root;\n",
        false => "",
    };
    let place = directory.display();
    format!(
        "{user}daemon off;\npid {place}/pid;\nworker_processes 1;\nevents {{}}\n\
         http {{\n    access_log off;\n    \
         client_body_temp_path {place}/body;\n    proxy_temp_path {place}/proxy;\n    \
         fastcgi_temp_path {place}/fastcgi;\n    uwsgi_temp_path {place}/uwsgi;\n    scgi_temp_path {place}/scgi;\n    \
         server {{ listen 127.0.0.1:{port}; root {place}; }}\n}}\n"
    )
}
