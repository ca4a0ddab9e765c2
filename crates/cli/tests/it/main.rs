//! What the binary does, seen from outside.

mod cli;
mod config;
mod config_bad;
mod config_commands;
mod config_docs;
mod config_schema;
mod serve;
