//! A guided tour of what exists, in the order a call meets it.
//!
//! In: the demo pack. Out: text for a person: colours on a terminal, plain text elsewhere. Every number and text shown
//! comes from a real call on a real hub.

mod calculator;
mod pack;
mod print;
mod tour;

use std::error::Error;

/// Runs the tour.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    quiet_crashes();
    tour::run().await
}

/// One of the tools crashes on purpose. Its trace would look like an accident.
fn quiet_crashes() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let on_purpose = info.payload().downcast_ref::<&str>().is_some_and(|text| *text == pack::ON_PURPOSE);
        if !on_purpose {
            usual(info);
        }
    }));
}
