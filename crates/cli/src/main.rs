//! The binary `toolhub`: commands, and the demo.
#![forbid(unsafe_code)]

mod demo;

use std::{path::PathBuf, process::ExitCode};

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
    Demo {
        /// Work on this file until killed: what the demo does to itself once.
        #[arg(long, hide = true)]
        work_on: Option<PathBuf>,
    },
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    match Cli::parse().command {
        Command::Demo { work_on } => demo::run(work_on).await,
    }
}
