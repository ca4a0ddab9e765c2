//! Backends of Toolhub that survive the process.
#![forbid(unsafe_code)]
