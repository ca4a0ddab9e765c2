//! A guided tour of the features, in the order in which a call meets them.
//!
//! In: the demo pack. Out: text on stdout, coloured on a terminal. Every number and text shown comes from a real call on a real
//! hub. On a terminal the user answers the one approval prompt; elsewhere a script does.

mod answer_source;
mod approval;
mod echo_server;
mod mcp_server;
mod print;
mod restart;
mod tools;
mod tour;

use std::{error::Error, path::PathBuf};

use tokio::signal::unix::{SignalKind, signal};

pub(crate) use echo_server::run_if_requested as serve_mcp_if_requested;

use crate::exit::Exit;

/// Runs the tour, until its end or until Ctrl-C.
pub(crate) async fn run(work_on: Option<PathBuf>) -> Result<Exit, Box<dyn Error>> {
    if let Some(store) = work_on {
        return restart::run_worker(&store).await.map(|()| Exit::Success);
    }
    silence_demo_panic();
    // A terminal that is closed sends SIGHUP. Without a listener it kills the process, and its folder stays.
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = tour::run() => done.map(|()| Exit::Success),
        Ok(()) = tokio::signal::ctrl_c() => {
            print::interrupted();
            Ok(Exit::Interrupted)
        }
        _ = hangup.recv() => Ok(Exit::Interrupted),
        _ = terminate.recv() => Ok(Exit::Interrupted),
    }
}

/// One of the tools panics on purpose; the default hook would print a backtrace that looks like a bug.
fn silence_demo_panic() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let on_purpose = info.payload().downcast_ref::<&str>().is_some_and(|text| *text == tools::CRASH_MESSAGE);
        if !on_purpose {
            default_hook(info);
        }
    }));
}
