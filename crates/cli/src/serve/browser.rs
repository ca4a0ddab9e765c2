//! Opens the dashboard in the browser of the desktop.
//!
//! In: its URL. Out: a browser window, or a warning: the server runs without one, too.

use std::{
    io,
    process::{Command, ExitStatus, Stdio},
};

use crate::output::Printer;

/// The program of the desktop that opens a URL.
const OPENER: &str = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };

/// Opens the dashboard at this URL.
pub(super) fn open_dashboard(printer: &Printer, url: Option<String>) {
    let Some(url) = url else {
        return printer.note("warning: --open has no effect: `server.ui = false` switches the dashboard off");
    };
    // The program may run as long as the browser. The thread ends with it, and with the process.
    std::thread::spawn(move || {
        if let Err(reason) = describe(open(&url)) {
            tracing::warn!(program = OPENER, %reason, %url, "cannot open the browser; open the URL yourself");
        }
    });
}

fn open(url: &str) -> io::Result<ExitStatus> {
    Command::new(OPENER).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()
}

fn describe(opened: io::Result<ExitStatus>) -> Result<(), String> {
    match opened {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}
