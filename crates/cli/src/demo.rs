//! A guided tour of what exists, in the order a call meets it.
//!
//! In: the demo pack. Out: text for a person: colours on a terminal, plain text elsewhere. Every number and text shown
//! comes from a real call on a real hub. On a terminal the person is asked once; elsewhere a script answers.

mod answer_source;
mod approval;
mod pack;
mod print;
mod restart;
mod tour;

use std::{error::Error, path::PathBuf};

use crate::exit::Exit;

/// Runs the tour, until its end or until Ctrl-C.
pub(crate) async fn run(work_on: Option<PathBuf>) -> Result<Exit, Box<dyn Error>> {
    if let Some(store) = work_on {
        return restart::run_worker(&store).await.map(|()| Exit::Success);
    }
    silence_demo_panic();
    tokio::select! {
        done = tour::run() => done.map(|()| Exit::Success),
        Ok(()) = tokio::signal::ctrl_c() => {
            print::interrupted();
            Ok(Exit::Interrupted)
        }
    }
}

/// One of the tools crashes on purpose. Its trace would look like an accident.
fn silence_demo_panic() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let on_purpose = info.payload().downcast_ref::<&str>().is_some_and(|text| *text == pack::CRASH_MESSAGE);
        if !on_purpose {
            usual(info);
        }
    }));
}
