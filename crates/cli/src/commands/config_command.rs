//! `config` and `init`: connects `config::commands` to the command line.

pub(crate) use crate::config::commands::{ConfigCommand, InitFlags};

use crate::{
    config::commands::{self, CommandOutput},
    exit::Exit,
    failure::Failure,
    session::Session,
};

pub(crate) async fn run(session: &Session, command: &ConfigCommand) -> Result<Exit, Failure> {
    let options = session.global.load_options()?;
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    let mut output = CommandOutput { out: &mut out, err: &mut err, json: session.printer.json };
    to_exit(commands::run(command, &options, &mut output).await)
}

pub(crate) fn init(session: &Session, flags: &InitFlags) -> Result<Exit, Failure> {
    let options = session.global.load_options()?;
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    to_exit(commands::init(
        flags,
        &options,
        &mut CommandOutput { out: &mut out, err: &mut err, json: session.printer.json },
    ))
}

/// These commands print their own errors. An I/O error means that the output could not be written.
#[expect(clippy::needless_pass_by_value, reason = "the signature matches the result it converts")]
fn to_exit(result: std::io::Result<u8>) -> Result<Exit, Failure> {
    Ok(match result {
        Ok(0) => Exit::Success,
        Ok(_) => Exit::Usage,
        Err(_) => Exit::Unexpected,
    })
}
