//! Whether a tool may be used, decided from stored facts: who failed, who is withheld, who comes back and when.
//!
//! In: facts, an event, a time. Out: new facts, a word with its reason, a decision for one call. Pure throughout:
//! nothing here waits, locks, stores or asks a clock. Whoever holds the facts stores them with a compare-and-set and
//! keeps the timers; a timer that fires late or never changes nothing, because every word is derived from timestamps.
//!
//! ```text
//! settings ─┐
//! scope ────┼─► machine: facts + event ─► facts ─► word: status, reason ─► gate: pass, probe, wait, refuse
//! window ───┘                             evidence: what a dependent tool still waits for
//! ```

mod evidence;
mod facts;
mod gate;
mod machine;
mod reason;
mod scope;
mod settings;
mod span;
mod step;
mod window;
mod word;

pub use crate::language::Language;
pub use evidence::{Evidence, Missing, Success, grows_old, missing};
pub use facts::{Breaker, Cause, Disabled, Facts, Failure, Hold, Override, Permit};
pub use gate::{Admission, admit};
pub use machine::{Answer, Event, apply};
pub use reason::Reason;
pub use scope::{Circumstances, Counting, Sufferer, count_in, counts};
pub use settings::{FailureWindow, StatusSettings};
pub use step::{helpful, next_step, presence};
pub use window::{Recent, Slice};
pub use word::{Presence, Reading, ToolStatus, read, worse};

#[cfg(test)]
mod tests;
