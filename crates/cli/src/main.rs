//! The binary `toolhub`.
#![forbid(unsafe_code)]
fn main() {}
