//! What `doctor` looks at.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
};

use toolhub::{
    clock::{Clock as _, SystemClock, Timestamp},
    sqlite::{OpenError, Options},
};

use super::{Check, Found};
use crate::{
    client::{Remote, Request},
    exit::Exit,
    local::Local,
    session::Session,
};

/// A clock that says less was never set.
const EARLIEST: &str = "2025-01-01T00:00:00Z";

/// Every check, in the order in which one may be the cause of the next.
pub(super) async fn all(session: &Session) -> Vec<Check> {
    let mut checks = vec![version(), clock()];
    match Local::find(&session.global) {
        Err(failure) => {
            let fix = failure.help.first().cloned().unwrap_or_else(|| "toolhub config check".into());
            checks.push(Check::new("config", Found::Bad(failure.exit), failure.message.clone()).fix(fix));
        }
        Ok(local) => {
            checks.push(config(&local));
            checks.extend(super::model::check(&local.loaded.config.agents).await);
            let (address, serves) = address(session, &local).await;
            checks.push(address);
            checks.extend(permissions(&local));
            checks.extend(store(&local, serves));
        }
    }
    checks
}

fn version() -> Check {
    Check::new("version", Found::Good, format!("toolhub {}", env!("CARGO_PKG_VERSION")))
}

fn clock() -> Check {
    let now = SystemClock.now();
    match EARLIEST.parse::<Timestamp>() {
        Ok(earliest) if now < earliest => {
            Check::new("clock", Found::Bad(Exit::Unexpected), format!("it is {now}, which cannot be"))
                .fix("set the machine's clock, for instance with NTP; times of records and keys depend on it")
        }
        _ => Check::new("clock", Found::Good, "set"),
    }
}

fn config(local: &Local) -> Check {
    match local.file() {
        Some(file) => Check::new("config", Found::Good, format!("{} is valid", file.display())),
        None => Check::new("config", Found::Odd, "no toolhub.toml here: defaults, and no tools").fix("toolhub init"),
    }
}

/// Whether a server answers at the address; if so it has the store, if it is ours.
async fn address(session: &Session, local: &Local) -> (Check, bool) {
    let url = session.global.server.clone().unwrap_or_else(|| local.url());
    let free = || TcpListener::bind((local.loaded.config.server.host, local.loaded.config.server.port));
    let answered = match Remote::new(&url, session.global.token.clone(), true) {
        Ok(remote) => crate::client::Client::Remote(remote).send(Request::livez()).await,
        Err(failure) => return (Check::new("server", Found::Bad(Exit::Usage), failure.message.clone()), false),
    };
    match answered {
        Ok(answer) if answer.status == 200 && answer.body.starts_with(b"ok") => {
            (Check::new("server", Found::Good, format!("answers at {url}")), true)
        }
        Ok(answer) => {
            let check = Check::new(
                "server",
                Found::Bad(Exit::Unreachable),
                format!("something else answers at {url} ({})", answer.status),
            );
            (check.fix("toolhub serve --port ANOTHER"), false)
        }
        Err(failure) if session.global.server.is_some() => {
            let check = Check::new("server", Found::Bad(Exit::Unreachable), failure.message.clone());
            (check.fix("toolhub serve"), false)
        }
        Err(_) => match free() {
            Ok(_) => (Check::new("server", Found::Good, format!("none runs; {url} is free")), false),
            Err(error) => {
                let check =
                    Check::new("server", Found::Bad(Exit::Unreachable), format!("{url} cannot be had: {error}"));
                (check.fix("toolhub serve --port ANOTHER"), false)
            }
        },
    }
}

/// Whether others on this machine can read what is kept.
fn permissions(local: &Local) -> Option<Check> {
    let store = local.store()?;
    let folder =
        store.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or(PathBuf::from("."), Path::to_owned);
    if !folder.exists() {
        return None;
    }
    if let Err(error) = writable(&folder) {
        let check = Check::new(
            "folder",
            Found::Bad(Exit::Unexpected),
            format!("{} cannot be written: {error}", folder.display()),
        );
        return Some(check.fix(format!(
            "give the folder to whoever runs toolhub, for instance: chown -R \"$USER\" {}",
            folder.display()
        )));
    }
    if store.exists() && others_enter(&folder) && others_read(store) {
        let check = Check::new("folder", Found::Odd, format!("everybody on this machine can read {}", store.display()));
        return Some(check.fix(format!("chmod 700 {}", folder.display())));
    }
    Some(Check::new("folder", Found::Good, format!("{} can be written", folder.display())))
}

fn writable(folder: &Path) -> std::io::Result<()> {
    let probe = folder.join(format!(".toolhub-doctor-{}", std::process::id()));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)
}

#[cfg(unix)]
fn others_read(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o004 != 0)
}

#[cfg(unix)]
fn others_enter(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o001 != 0)
}

#[cfg(not(unix))]
fn others_enter(_: &Path) -> bool {
    false
}

#[cfg(not(unix))]
fn others_read(_: &Path) -> bool {
    false
}

/// Opens the store, which looks through all of it, and closes it again.
fn store(local: &Local, serves: bool) -> Option<Check> {
    let Some(path) = local.store() else {
        return Some(
            Check::new("store", Found::Odd, "records are kept in memory and are gone with the process")
                .fix("set backend = \"sqlite\" in [store]"),
        );
    };
    if !path.exists() {
        return Some(Check::new("store", Found::Good, format!("{} will be made", path.display())));
    }
    Some(match toolhub::Sqlite::open(path, Options::default()) {
        Ok(_) => Check::new("store", Found::Good, format!("{} is sound", path.display())),
        Err(OpenError::InUse { holder, .. }) if serves => {
            Check::new("store", Found::Good, format!("{} is in use by {holder}", path.display()))
        }
        Err(error @ OpenError::InUse { .. }) => Check::new("store", Found::Bad(Exit::Unreachable), error.to_string())
            .fix("ask the server that has it: --server URL; or end that process"),
        Err(error) => Check::new("store", Found::Bad(Exit::Unexpected), error.to_string())
            .fix("put the last backup back: toolhub restore FILE"),
    })
}
