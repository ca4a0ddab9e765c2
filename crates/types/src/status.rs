//! Tool status: a circuit breaker with probation, operator overrides and dependencies, as pure functions over stored records.
//!
//! In: a record, an event, a time. Out: the new record, a status with its reason, an admission decision for one call. Nothing here waits,
//! locks, stores or reads a clock. The caller stores records with a compare-and-set and runs the timers; a timer that fires late or never
//! changes nothing, because every status is derived from timestamps.
//!
//! ```text
//! settings ───────┐
//! scope ──────────┼─► machine: record + event ─► record ─► evaluation: status, reason ─► gate: pass, probe, wait, refuse
//! rolling_window ─┘                              evidence: what a dependent tool still waits for
//! ```

mod dependency_hint;
mod evaluation;
mod evidence;
mod gate;
mod interval;
mod machine;
mod reason;
mod record;
mod rolling_window;
mod scope;
mod settings;

pub use crate::language::Language;
pub use dependency_hint::{dependency_readiness, next_step, tools_to_call};
pub use evaluation::{EffectiveStatus, Readiness, ToolStatus, evaluate, evaluate_in_thread, worst};
pub use evidence::{Evidence, MissingDependency, Success, dependencies_changed, missing_dependencies, next_expiry};
pub use gate::{Admission, admit};
pub use machine::{HealthSignal, StatusEvent, apply};
pub use reason::Reason;
pub use record::{Breaker, BreakerCause, Disabled, Failure, Override, OverrideStatus, ProbeLease, StatusRecord};
pub use rolling_window::{RollingWindow, WindowSlice};
pub use scope::{FailureContext, FailureTargets, ThreadFingerprint, counts_as_failure, failure_targets};
pub use settings::{FailureWindow, StatusSettings};

#[cfg(test)]
mod tests;
