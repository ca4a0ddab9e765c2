//! Test support for tool authors: a controlled clock, scripted tools, a controlled source, an event recorder and outcome assertions.
//!
//! Only with the feature `testing`.

mod assert;
mod recorder;
mod scripted;
mod source;

pub use assert::AssertOutcome;
pub use recorder::EventRecorder;
pub use scripted::{ScriptStep, ScriptedTool, scripted};
pub use source::{TestSource, TestSourceControl};
pub use toolhub_storage::testing::{ObservedStore, StoreUse, TestClock, contract, history};
