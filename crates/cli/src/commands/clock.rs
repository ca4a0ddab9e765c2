//! `clock accept`: makes a running server follow the machine's clock after a jump.

use crate::{client::Request, exit::Exit, failure::Failure, session::Session};

/// Commands for the clock of a server.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ClockCommand {
    /// Follow the machine's clock although it has jumped; what is then too old expires
    Accept,
}

pub(crate) async fn run(session: &Session, command: &ClockCommand) -> Result<Exit, Failure> {
    let ClockCommand::Accept = command;
    let no_server = || {
        Failure::usage("no server is running on this config, so no clock has to be accepted")
            .help("commands without a server follow the machine's clock; name a server with --server URL")
    };
    let client = session.server_client().await?.ok_or_else(no_server)?;
    client.send_checked(Request::post(["clock", "accept"])).await?;
    session.printer.note("the server follows the machine's clock");
    Ok(Exit::Success)
}
