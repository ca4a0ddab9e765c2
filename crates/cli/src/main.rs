//! The binary `toolhub`: commands, and the demo.
#![forbid(unsafe_code)]

mod builtin;
mod config;
mod demo;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use config::commands::{self, ConfigCommand, Flags, InitFlags, Output};

/// The one place through which an AI agent's tool calls pass.
#[derive(Parser)]
#[command(name = "toolhub", version, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    /// Write JSON
    #[arg(long, global = true)]
    json: bool,
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
    /// Check and show the config
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write a first toolhub.toml
    Init(InitFlags),
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Cli { flags, json, command } = Cli::parse();
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    let mut to = Output { out: &mut out, err: &mut err, json };
    match command {
        Command::Demo { work_on } => demo::run(work_on).await,
        Command::Config(command) => Ok(commands::run(&command, &flags.asked()?, &mut to).await?.into()),
        Command::Init(init) => Ok(commands::init(&init, &flags.asked()?, &mut to)?.into()),
    }
}
