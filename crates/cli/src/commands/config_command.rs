//! `config` and `init`: the config file. What they do is the config room's; this is how they are called.

pub(crate) use crate::config::commands::{ConfigCommand, InitFlags};

use crate::{
    config::commands::{self, CommandOutput},
    exit::Exit,
    failure::Failure,
    session::Session,
};

pub(crate) async fn run(session: &Session, command: &ConfigCommand) -> Result<Exit, Failure> {
    let asked = session.global.load_options()?;
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    let mut to = CommandOutput { out: &mut out, err: &mut err, json: session.printer.json };
    to_exit(commands::run(command, &asked, &mut to).await)
}

pub(crate) fn init(session: &Session, flags: &InitFlags) -> Result<Exit, Failure> {
    let asked = session.global.load_options()?;
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    to_exit(commands::init(
        flags,
        &asked,
        &mut CommandOutput { out: &mut out, err: &mut err, json: session.printer.json },
    ))
}

/// These commands say themselves what is wrong. One that cannot write has nobody to tell.
#[expect(clippy::needless_pass_by_value, reason = "it is what the command came to, and nobody needs it after")]
fn to_exit(ended: std::io::Result<u8>) -> Result<Exit, Failure> {
    Ok(match ended {
        Ok(0) => Exit::Success,
        Ok(_) => Exit::Usage,
        Err(_) => Exit::Unexpected,
    })
}
