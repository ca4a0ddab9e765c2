//! JSON Schema for tools: inferred, merged, checked and exported; and the closest known name to a misspelled one.
//!
//! The only crate that needs a JSON Schema validator. Knows definitions of tools; no call, no hub.
#![forbid(unsafe_code)]

pub mod export;
pub mod schema;
pub mod suggest;
