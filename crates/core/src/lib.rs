//! Words, traits and the rooms a tool call passes.
#![forbid(unsafe_code)]

mod digest;
pub mod tool;
