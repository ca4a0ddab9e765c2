//! The behaviour of the library, in one test binary.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it stands")]
#![allow(clippy::needless_pass_by_value, reason = "tools take their arguments by value")]

mod alloc;
mod approvals;
mod awkward_store;
mod batches;
mod busy;
mod cache;
mod calls;
mod cleaning;
mod compile_errors;
mod damaged;
mod dependencies;
mod endings;
mod errors;
mod events;
mod executors;
mod hooks;
mod house;
mod idempotency;
mod instance_life;
mod instances;
mod limits;
mod offers;
mod output;
mod policies;
mod registry;
mod retries;
mod runs;
mod shop;
mod state;
mod state_across;
mod state_manager;
mod state_model;
mod status;
mod status_events;
mod status_views;
mod store;
mod storm;
mod threads;
mod validation;
