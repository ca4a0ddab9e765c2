//! JSON Schema of tools: inference, merging, validation and export to model providers; and suggestions for misspelled names.
//!
//! The only crate that depends on a JSON Schema validator. Knows tool definitions, but neither calls nor the hub.
#![forbid(unsafe_code)]

pub mod draft;
pub mod export;
pub mod schema;
pub mod suggest;
mod walk;
