//! Test support for tool authors: a controlled clock, scripted tools, an event recorder and outcome assertions.
//!
//! Only with the feature `testing`.

mod assert;
mod recorder;
mod scripted;

pub use assert::AssertOutcome;
pub use recorder::EventRecorder;
pub use scripted::{ScriptStep, ScriptedTool, scripted};
pub use toolhub_storage::testing::{TestClock, contract};
