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

mod dependency_hint;
mod evaluation;
mod evidence;
mod gate;
mod machine;
mod reason;
mod record;
mod rolling_window;
mod scope;
mod settings;
mod span;

pub use crate::language::Language;
pub use dependency_hint::{dependency_readiness, next_step, tools_to_call};
pub use evaluation::{EffectiveStatus, Readiness, ToolStatus, evaluate, worst};
pub use evidence::{Evidence, MissingDependency, Success, missing_dependencies, next_expiry};
pub use gate::{Admission, admit};
pub use machine::{HealthSignal, StatusEvent, apply};
pub use reason::Reason;
pub use record::{Breaker, BreakerCause, Disabled, Failure, Override, OverrideStatus, ProbeLease, StatusRecord};
pub use rolling_window::{RollingWindow, WindowSlice};
pub use scope::{FailureContext, FailureTargets, ThreadFingerprint, counts_as_failure, failure_targets};
pub use settings::{FailureWindow, StatusSettings};

#[cfg(test)]
mod tests;
