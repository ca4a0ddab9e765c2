//! `config` and `init`: the config file. What they do is the config room's; this is how they are called.

use clap::{Args, Subcommand};

use crate::{exit::Exit, failure::Failure, session::Session};

/// Check, show and describe the config.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Say everything that is wrong with the config
    Check,
    /// Show the config as it holds, secrets masked
    Show {
        /// Say where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Print the JSON Schema of the config, for editors
    Schema,
    /// Print which files are read
    Path,
}

/// Write a toolhub.toml to begin with.
#[derive(Debug, Args)]
pub(crate) struct Init {
    /// With the tools of the demo [default]
    #[arg(long, conflicts_with = "empty")]
    pub(crate) demo: bool,
    /// Without tools
    #[arg(long)]
    pub(crate) empty: bool,
    /// Write over a file that is there
    #[arg(long)]
    pub(crate) force: bool,
}

pub(crate) fn run(session: &Session, config: &Config) -> Result<Exit, Failure> {
    let _ = (session, config);
    Err(Failure::unexpected("not wired yet"))
}

pub(crate) fn init(session: &Session, init: &Init) -> Result<Exit, Failure> {
    let _ = (session, init);
    Err(Failure::unexpected("not wired yet"))
}
