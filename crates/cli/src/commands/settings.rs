//! `config` and `init`: the config file. What they do is the config room's; this is how they are called.

pub(crate) use crate::config::commands::{ConfigCommand, InitFlags};

use crate::{
    config::commands::{self, Output},
    exit::Exit,
    failure::Failure,
    session::Session,
};

pub(crate) async fn run(session: &Session, command: &ConfigCommand) -> Result<Exit, Failure> {
    let asked = session.global.asked()?;
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    let mut to = Output { out: &mut out, err: &mut err, json: session.show.json };
    ended(commands::run(command, &asked, &mut to).await)
}

pub(crate) fn init(session: &Session, flags: &InitFlags) -> Result<Exit, Failure> {
    let asked = session.global.asked()?;
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    ended(commands::init(flags, &asked, &mut Output { out: &mut out, err: &mut err, json: session.show.json }))
}

/// These commands say themselves what is wrong. One that cannot write has nobody to tell.
#[expect(clippy::needless_pass_by_value, reason = "it is what the command came to, and nobody needs it after")]
fn ended(ended: std::io::Result<u8>) -> Result<Exit, Failure> {
    Ok(match ended {
        Ok(0) => Exit::Fine,
        Ok(_) => Exit::Usage,
        Err(_) => Exit::Unexpected,
    })
}
