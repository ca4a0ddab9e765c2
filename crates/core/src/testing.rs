//! For people who test their tools: time that stands still, tools that fail on cue, and assertions that say what they saw.
//!
//! Only with the feature `testing`.

mod assert;
mod recorder;
mod scripted;

pub use assert::AssertOutcome;
pub use recorder::EventRecorder;
pub use scripted::{ScriptStep, ScriptedTool, scripted};
pub use toolhub_storage::testing::{TestClock, contract};
