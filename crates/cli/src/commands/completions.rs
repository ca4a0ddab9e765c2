//! `completions`: what lets a shell complete commands.

use clap_complete::Shell;

use crate::{exit::Exit, failure::Failure, session::Session};

/// Print what lets a shell complete commands.
#[derive(Debug, clap::Args)]
#[command(after_help = "For bash: toolhub completions bash > ~/.local/share/bash-completion/completions/toolhub")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(session: &Session, asked: &Completions, commands: &mut clap::Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(asked.shell, commands, "toolhub", &mut script);
    session.printer.print(&String::from_utf8_lossy(&script));
    Ok(Exit::Success)
}
