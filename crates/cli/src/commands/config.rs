//! `config` and `init`: the config file. What they do is the config room's; this is how they are called.

pub(crate) use crate::config::commands::{ConfigCommand as Config, InitFlags as Init};
use crate::{
    config::commands::{self, Output},
    exit::Exit,
    failure::Failure,
    session::Session,
};

pub(crate) async fn run(session: &Session, config: &Config) -> Result<Exit, Failure> {
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    let mut to = Output { out: &mut out, err: &mut err, json: session.show.json };
    ended(commands::run(config, &session.global.asked()?, &mut to).await)
}

pub(crate) fn init(session: &Session, init: &Init) -> Result<Exit, Failure> {
    let (mut out, mut err) = (anstream::stdout(), anstream::stderr());
    let mut to = Output { out: &mut out, err: &mut err, json: session.show.json };
    ended(commands::init(init, &session.global.asked()?, &mut to))
}

fn ended(written: std::io::Result<u8>) -> Result<Exit, Failure> {
    match written {
        Ok(0) => Ok(Exit::Fine),
        Ok(_) => Ok(Exit::Usage),
        Err(error) => Err(Failure::unexpected(format!("nothing can be written: {error}"))),
    }
}
