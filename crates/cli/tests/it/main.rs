//! Integration tests of the binary.

mod cli;
mod cli_docs;
mod config;
mod config_bad;
mod config_commands;
mod config_docs;
mod config_schema;
mod guard;
mod limits_docs;
mod serve;
