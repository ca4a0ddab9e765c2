//! The one place through which an agent's tool calls pass.
#![forbid(unsafe_code)]
pub use toolhub_core::*;
