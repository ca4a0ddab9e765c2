//! The vocabulary of Toolhub: ids, errors, tool definitions, policies, the status machine, outcomes and events.
//!
//! Plain data and pure functions: no I/O, no storage, no async runtime. Every other crate may depend on it.
#![forbid(unsafe_code)]

pub mod approval;
pub mod content;
pub mod count_by_key;
pub mod digest;
pub mod effect;
pub mod error;
pub mod event_kind;
pub mod export_format;
pub mod hidden_chars;
pub mod ids;
pub mod json;
pub mod language;
pub mod millis;
pub mod outcome;
pub mod page_budget;
pub mod policy;
pub mod problem;
pub mod progress;
pub mod redact;
pub mod resource;
pub mod state_config;
pub mod status;
pub mod store_role;
mod text_schema;
pub mod timestamp;
pub mod timing;
pub mod tool;
pub mod trace;
pub mod units;
