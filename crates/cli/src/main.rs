//! The binary `toolhub`: commands, and the demo.
#![forbid(unsafe_code)]

mod demo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The one place through which an AI agent's tool calls pass.
#[derive(Parser)]
#[command(name = "toolhub", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A guided tour of what toolhub does, with tools of its own. Needs no key, no config and no network.
    Demo,
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    match Cli::parse().command {
        Command::Demo => demo::run().await,
    }
}
