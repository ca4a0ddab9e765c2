//! `completions`: prints a shell completion script.

use clap_complete::Shell;

use crate::{exit::Exit, failure::Failure, session::Session};

/// Print a shell completion script.
#[derive(Debug, clap::Args)]
#[command(after_help = "For bash: toolhub completions bash > ~/.local/share/bash-completion/completions/toolhub")]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(session: &Session, args: &Completions, commands: &mut clap::Command) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, commands, "toolhub", &mut script);
    session.printer.print(&String::from_utf8_lossy(&script));
    Ok(Exit::Success)
}
