//! The checks of `doctor`.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
};

use axum::http::Method;
use serde_json::Value;
use toolhub::{
    backend::Backend as _,
    clock::{Clock as _, SystemClock, Timestamp},
    sqlite::{OpenError, Options},
};

use super::{Check, CheckStatus};
use crate::{
    client::{Remote, Request},
    config::{self, Backend, RedisServer},
    exit::Exit,
    local_hub::LocalHub,
    session::Session,
};

/// A clock before this was never set.
const MIN_CLOCK: &str = "2025-01-01T00:00:00Z";
/// How to fix a damaged store.
const RESTORE: &str = "restore the last backup: toolhub restore FILE";

/// Runs every check, in the order in which one may cause the next to fail.
pub(super) async fn run_all(session: &Session) -> Vec<Check> {
    let mut checks = vec![check_version(), check_clock()];
    match LocalHub::find(&session.global) {
        Err(failure) => {
            let fix = failure.help.first().cloned().unwrap_or_else(|| "toolhub config check".into());
            checks.push(Check::new("config", CheckStatus::Fail(failure.exit), failure.message.clone()).fix(fix));
        }
        Ok(local) => {
            checks.push(check_config(&local));
            checks.extend(check_tools(&local));
            checks.extend(super::mcp_servers::check(&local.loaded.config).await);
            checks.extend(super::model::check(&local.loaded.config.agents).await);
            let (address, is_running) = check_server(session, &local).await;
            checks.push(address);
            let mut store = check_store(&local, is_running);
            store.extend(local.loaded.config.state.redis.iter().flat_map(|server| check_redis("state store", server)));
            if is_running {
                let of_server = check_running_server(session, &local).await;
                // Server and `doctor` see many of the same warnings.
                let is_new = |check: &Check| store.iter().all(|other| other.detail != check.detail);
                checks.extend(of_server.into_iter().filter(is_new));
            }
            checks.extend(check_permissions(&local));
            checks.extend(store);
            checks.extend(check_seal_secret(&local));
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
            Check::new("clock", CheckStatus::Fail(Exit::Unexpected), format!("{now} is in the past")).fix(
                "set the machine's clock, e.g. with NTP; timestamps of records and the expiry of keys depend on it",
            )
        }
        _ => Check::new("clock", CheckStatus::Pass, "set"),
    }
}

fn check_config(local: &LocalHub) -> Check {
    match local.config_file() {
        Some(file) => Check::new("config", CheckStatus::Pass, format!("{} is valid", file.display())),
        None => Check::new("config", CheckStatus::Warn, "no toolhub.toml found: using defaults, without tools")
            .fix("toolhub init"),
    }
}

/// Checks that the programs, scripts and addresses of tools can be used. Nothing is called.
fn check_tools(local: &LocalHub) -> Vec<Check> {
    let problems = config::find_obstacles(&local.loaded, &[]);
    let checks = problems.into_iter().map(|problem| {
        let check =
            Check::new("tools", CheckStatus::Fail(Exit::Usage), format!("{}: {}", problem.key, problem.message));
        match problem.help {
            Some(help) => check.fix(help),
            None => check,
        }
    });
    let warnings = local.loaded.config.warnings.iter();
    checks.chain(warnings.map(|warning| Check::new("config", CheckStatus::Warn, warning.as_str()))).collect()
}

/// What the server reports of itself: a clock that has jumped, damaged stores, and what it knows of a store that nodes share.
async fn check_running_server(session: &Session, local: &LocalHub) -> Vec<Check> {
    let url = session.global.server.clone().unwrap_or_else(|| local.url());
    let Ok(remote) = Remote::new(&url, session.global.token.clone(), true) else { return Vec::new() };
    let client = crate::client::Client::Remote(remote);
    let response = client.send(Request::get(["info"])).await;
    let Some(info) = response.ok().and_then(|response| response.json().ok()) else { return Vec::new() };
    let damage = info["storeDamage"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut checks: Vec<Check> = check_server_clock(&info["clockJump"]).into_iter().collect();
    checks.extend(damage.map(|damage| damaged_store("server store", damage)));
    if let Backend::Redis(_) = local.loaded.config.store.backend {
        let request = Request::at_root(Method::GET, ["readyz"]).query("verbose", Some(""));
        let response = client.send(request).await;
        let text = response.map(|response| String::from_utf8_lossy(&response.body).into_owned()).unwrap_or_default();
        checks.extend(text.lines().filter_map(check_of_ready_line));
    }
    checks
}

/// What a running server says of a store that it may share with other nodes. Damage has a check of its own.
fn check_of_ready_line(line: &str) -> Option<Check> {
    let (mark, rest) = line.split_at_checked(3)?;
    if let Some(warning) = rest.strip_prefix("store warning: ") {
        return Some(Check::new("store", CheckStatus::Warn, warning));
    }
    let subjects = [
        "store server ",
        "store notifications",
        "store clock",
        "store degraded: it does not answer",
        "store degraded: refuses writes",
        "node",
        "maintenance ",
    ];
    if !subjects.iter().any(|subject| rest.starts_with(subject)) {
        return None;
    }
    let status = if mark == "[+]" { CheckStatus::Pass } else { CheckStatus::Warn };
    Some(Check::new("nodes", status, rest))
}

/// Whether the server follows its machine's clock. It does not while the clock has jumped.
fn check_server_clock(jump: &Value) -> Option<Check> {
    let millis = jump["millis"].as_i64()?;
    let accepted_at = jump["acceptedAt"].as_str().unwrap_or_default();
    let detail =
        format!("jumped by {} s; the server goes on in its time from before until {accepted_at}", millis / 1000);
    let check = Check::new("server clock", CheckStatus::Warn, detail);
    Some(check.fix("set the clock back if it is wrong; if it is right: toolhub clock accept"))
}

fn damaged_store(name: &'static str, damage: &str) -> Check {
    Check::new(name, CheckStatus::Warn, damage).fix(RESTORE)
}

/// Checks the server's address. The flag says whether a server responds; it may then hold the store's lock.
async fn check_server(session: &Session, local: &LocalHub) -> (Check, bool) {
    let url = session.global.server.clone().unwrap_or_else(|| local.url());
    let try_bind = || TcpListener::bind((local.loaded.config.server.host, local.loaded.config.server.port));
    let result = match Remote::new(&url, session.global.token.clone(), true) {
        Ok(remote) => crate::client::Client::Remote(remote).send(Request::livez()).await,
        Err(failure) => return (Check::new("server", CheckStatus::Fail(Exit::Usage), failure.message.clone()), false),
    };
    match result {
        Ok(response) if response.status == 200 && response.body.starts_with(b"ok") => {
            (Check::new("server", CheckStatus::Pass, format!("running at {url}")), true)
        }
        Ok(response) => {
            let check = Check::new(
                "server",
                CheckStatus::Fail(Exit::Unreachable),
                format!("another program responds at {url} (status {})", response.status),
            );
            (check.fix("toolhub serve --port ANOTHER"), false)
        }
        Err(failure) if session.global.server.is_some() => {
            let check = Check::new("server", CheckStatus::Fail(Exit::Unreachable), failure.message.clone());
            (check.fix("toolhub serve"), false)
        }
        Err(_) => match try_bind() {
            Ok(_) => (Check::new("server", CheckStatus::Pass, format!("not running; {url} is free")), false),
            Err(error) => {
                let check = Check::new(
                    "server",
                    CheckStatus::Fail(Exit::Unreachable),
                    format!("cannot listen on {url}: {error}"),
                );
                (check.fix("toolhub serve --port ANOTHER"), false)
            }
        },
    }
}

/// Checks that the store's folder is writable, and not readable by other users.
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
            format!("{} is not writable: {error}", folder.display()),
        );
        return Some(
            check.fix(format!(
                "make the user that runs toolhub its owner, e.g.: chown -R \"$USER\" {}",
                folder.display()
            )),
        );
    }
    if store.exists() && is_world_traversable(&folder) && is_world_readable(store) {
        let check =
            Check::new("folder", CheckStatus::Warn, format!("every user of this machine can read {}", store.display()));
        return Some(check.fix(format!("chmod 700 {}", folder.display())));
    }
    Some(Check::new("folder", CheckStatus::Pass, format!("{} is writable", folder.display())))
}

fn probe_writable(folder: &Path) -> std::io::Result<()> {
    let probe = folder.join(format!(".toolhub-doctor-{}", std::process::id()));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)
}

#[cfg(unix)]
fn is_world_readable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o004 != 0)
}

#[cfg(unix)]
fn is_world_traversable(folder: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
}

#[cfg(not(unix))]
fn is_world_traversable(_: &Path) -> bool {
    false
}

#[cfg(not(unix))]
fn is_world_readable(_: &Path) -> bool {
    false
}

/// Whether several nodes can use the store without losing calls with secrets.
fn check_seal_secret(local: &LocalHub) -> Option<Check> {
    let Backend::Redis(server) = &local.loaded.config.store.backend else { return None };
    let check = Check::new("store secrets", CheckStatus::Warn, "nodes cannot read each other's secrets and forms");
    (!server.has_seal_secret()).then(|| check.fix("set the same `store.redis.seal_secret` on each node"))
}

/// Checks the servers of a store in Redis. Writes nothing there.
fn check_redis(name: &'static str, server: &RedisServer) -> Vec<Check> {
    let found = match server.inspect() {
        Ok(found) => found,
        Err(error) => return vec![Check::new(name, CheckStatus::Fail(Exit::Unreachable), error.to_string())],
    };
    let mut checks: Vec<Check> =
        found.warnings.iter().map(|warning| Check::new(name, CheckStatus::Warn, warning.as_str())).collect();
    if !found.exists {
        checks.push(Check::new(name, CheckStatus::Pass, "the store in Redis will be created"));
    } else if checks.is_empty() {
        let servers: Vec<String> = found.servers.iter().map(ToString::to_string).collect();
        let detail = format!("the Redis server keeps what it acknowledges: {}", servers.join("; "));
        checks.push(Check::new(name, CheckStatus::Pass, detail));
    }
    checks
}

/// Opens the store, which verifies its integrity, and closes it again.
fn check_store(local: &LocalHub, is_running: bool) -> Vec<Check> {
    match &local.loaded.config.store.backend {
        Backend::Redis(server) => check_redis("store", server),
        _ => vec![check_local_store(local, is_running)],
    }
}

fn check_local_store(local: &LocalHub, is_running: bool) -> Check {
    let Some(path) = local.store_path() else {
        return Check::new("store", CheckStatus::Warn, "records are kept in memory and lost when the process ends")
            .fix("set backend = \"sqlite\" in [store]");
    };
    if !path.exists() {
        return Check::new("store", CheckStatus::Pass, format!("{} will be created", path.display()));
    }
    match toolhub::Sqlite::open(path, Options::default()) {
        Ok(mut store) => {
            store.wait_for_integrity_check();
            match store.damage() {
                Some(damage) => damaged_store("store", &damage),
                None => Check::new("store", CheckStatus::Pass, format!("{} is intact", path.display())),
            }
        }
        Err(OpenError::InUse { holder, .. }) if is_running => {
            Check::new("store", CheckStatus::Pass, format!("{} is in use by {holder}", path.display()))
        }
        Err(error @ OpenError::InUse { .. }) => {
            Check::new("store", CheckStatus::Fail(Exit::Unreachable), error.to_string())
                .fix("use the server that has it open: --server URL; or stop that process")
        }
        Err(error) => Check::new("store", CheckStatus::Fail(Exit::Unexpected), error.to_string()).fix(RESTORE),
    }
}
