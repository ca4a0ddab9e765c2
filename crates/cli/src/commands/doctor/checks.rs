//! What `doctor` looks at.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
};

use toolhub::{
    clock::{Clock as _, SystemClock, Timestamp},
    sqlite::{OpenError, Options},
};

use super::{Check, CheckStatus};
use crate::{
    client::{Remote, Request},
    exit::Exit,
    local_hub::LocalHub,
    session::Session,
};

/// A clock that says less was never set.
const MIN_CLOCK: &str = "2025-01-01T00:00:00Z";

/// Every check, in the order in which one may be the cause of the next.
pub(super) async fn run_all(session: &Session) -> Vec<Check> {
    let mut checks = vec![check_version(), check_clock()];
    match LocalHub::find(&session.global) {
        Err(failure) => {
            let fix = failure.help.first().cloned().unwrap_or_else(|| "toolhub config check".into());
            checks.push(Check::new("config", CheckStatus::Fail(failure.exit), failure.message.clone()).fix(fix));
        }
        Ok(local) => {
            checks.push(check_config(&local));
            checks.extend(super::model::check(&local.loaded.config.agents).await);
            let (address, serves) = check_server(session, &local).await;
            checks.push(address);
            checks.extend(check_permissions(&local));
            checks.extend(check_store(&local, serves));
        }
    }
    checks
}

fn check_version() -> Check {
    Check::new("version", CheckStatus::Pass, format!("toolhub {}", env!("CARGO_PKG_VERSION")))
}

fn check_clock() -> Check {
    let now = SystemClock.now();
    match MIN_CLOCK.parse::<Timestamp>() {
        Ok(earliest) if now < earliest => {
            Check::new("clock", CheckStatus::Fail(Exit::Unexpected), format!("it is {now}, which cannot be"))
                .fix("set the machine's clock, for instance with NTP; times of records and keys depend on it")
        }
        _ => Check::new("clock", CheckStatus::Pass, "set"),
    }
}

fn check_config(local: &LocalHub) -> Check {
    match local.config_file() {
        Some(file) => Check::new("config", CheckStatus::Pass, format!("{} is valid", file.display())),
        None => {
            Check::new("config", CheckStatus::Warn, "no toolhub.toml here: defaults, and no tools").fix("toolhub init")
        }
    }
}

/// Whether a server answers at the address; if so it has the store, if it is ours.
async fn check_server(session: &Session, local: &LocalHub) -> (Check, bool) {
    let url = session.global.server.clone().unwrap_or_else(|| local.url());
    let free = || TcpListener::bind((local.loaded.config.server.host, local.loaded.config.server.port));
    let answered = match Remote::new(&url, session.global.token.clone(), true) {
        Ok(remote) => crate::client::Client::Remote(remote).send(Request::livez()).await,
        Err(failure) => return (Check::new("server", CheckStatus::Fail(Exit::Usage), failure.message.clone()), false),
    };
    match answered {
        Ok(answer) if answer.status == 200 && answer.body.starts_with(b"ok") => {
            (Check::new("server", CheckStatus::Pass, format!("answers at {url}")), true)
        }
        Ok(answer) => {
            let check = Check::new(
                "server",
                CheckStatus::Fail(Exit::Unreachable),
                format!("something else answers at {url} ({})", answer.status),
            );
            (check.fix("toolhub serve --port ANOTHER"), false)
        }
        Err(failure) if session.global.server.is_some() => {
            let check = Check::new("server", CheckStatus::Fail(Exit::Unreachable), failure.message.clone());
            (check.fix("toolhub serve"), false)
        }
        Err(_) => match free() {
            Ok(_) => (Check::new("server", CheckStatus::Pass, format!("none runs; {url} is free")), false),
            Err(error) => {
                let check =
                    Check::new("server", CheckStatus::Fail(Exit::Unreachable), format!("{url} cannot be had: {error}"));
                (check.fix("toolhub serve --port ANOTHER"), false)
            }
        },
    }
}

/// Whether others on this machine can read what is kept.
fn check_permissions(local: &LocalHub) -> Option<Check> {
    let store = local.store_path()?;
    let folder =
        store.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or(PathBuf::from("."), Path::to_owned);
    if !folder.exists() {
        return None;
    }
    if let Err(error) = probe_writable(&folder) {
        let check = Check::new(
            "folder",
            CheckStatus::Fail(Exit::Unexpected),
            format!("{} cannot be written: {error}", folder.display()),
        );
        return Some(check.fix(format!(
            "give the folder to whoever runs toolhub, for instance: chown -R \"$USER\" {}",
            folder.display()
        )));
    }
    if store.exists() && others_enter(&folder) && others_read(store) {
        let check =
            Check::new("folder", CheckStatus::Warn, format!("everybody on this machine can read {}", store.display()));
        return Some(check.fix(format!("chmod 700 {}", folder.display())));
    }
    Some(Check::new("folder", CheckStatus::Pass, format!("{} can be written", folder.display())))
}

fn probe_writable(folder: &Path) -> std::io::Result<()> {
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
fn check_store(local: &LocalHub, serves: bool) -> Option<Check> {
    let Some(path) = local.store_path() else {
        return Some(
            Check::new("store", CheckStatus::Warn, "records are kept in memory and are gone with the process")
                .fix("set backend = \"sqlite\" in [store]"),
        );
    };
    if !path.exists() {
        return Some(Check::new("store", CheckStatus::Pass, format!("{} will be made", path.display())));
    }
    Some(match toolhub::Sqlite::open(path, Options::default()) {
        Ok(_) => Check::new("store", CheckStatus::Pass, format!("{} is sound", path.display())),
        Err(OpenError::InUse { holder, .. }) if serves => {
            Check::new("store", CheckStatus::Pass, format!("{} is in use by {holder}", path.display()))
        }
        Err(error @ OpenError::InUse { .. }) => {
            Check::new("store", CheckStatus::Fail(Exit::Unreachable), error.to_string())
                .fix("ask the server that has it: --server URL; or end that process")
        }
        Err(error) => Check::new("store", CheckStatus::Fail(Exit::Unexpected), error.to_string())
            .fix("put the last backup back: toolhub restore FILE"),
    })
}
