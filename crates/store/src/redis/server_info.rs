//! What a server reports about itself, and whether a store can be kept there.
//!
//! In: the answers to `INFO` and `CONFIG GET`. Out: a reason to refuse, or warnings. Changes nothing; `server_monitor.rs` asks regularly.

use std::collections::{HashMap, HashSet};

use redis::{Cmd, ErrorKind, ParsingError, RedisError, RedisResult, ServerErrorKind, Value};

use toolhub_storage::backend::StoreServer;

use super::{
    Options,
    address::Topology,
    error::{OpenError, describe},
    link::Link,
};

/// The first version with everything that the scripts use.
const MIN_VERSION: u32 = 7;

/// From this part of its `maxmemory` on, a server is nearly full.
const NEARLY_FULL: f64 = 0.8;

/// The fields of `INFO` of one server.
#[derive(Clone)]
pub(super) struct ServerInfo {
    /// Its own address, if the store has several servers.
    address: Option<String>,
    fields: HashMap<String, String>,
}

/// Settings by name, of which `INFO` shows nothing.
pub(super) type Settings = HashMap<String, String>;

impl ServerInfo {
    fn of_text(address: Option<String>, text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self { address, fields: fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect() }
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// A field that is a number; 0 if it is missing.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.get(name).parse().unwrap_or(0)
    }

    /// The used part of its `maxmemory`, if it has one.
    #[allow(clippy::cast_precision_loss, reason = "a part of the memory need not be exact")]
    pub(super) fn used_memory(&self) -> Option<f64> {
        let (limit, used) = (self.number("maxmemory"), self.number("used_memory"));
        // Buffers of replicas and of the append-only file count for no limit.
        let used = used.saturating_sub(self.number("mem_not_counted_for_evict"));
        (limit > 0).then(|| used as f64 / limit as f64)
    }

    /// What operators see of it. `store` is the address of the store.
    pub(super) fn describe(&self, store: &str, settings: Option<&Settings>) -> StoreServer {
        let sync = settings.and_then(|settings| settings.get("appendfsync"));
        StoreServer {
            address: self.address.clone().unwrap_or_else(|| store.to_owned()),
            version: self.get("redis_version").to_owned(),
            is_primary: self.get("role") == "master",
            replicas: self.number("connected_slaves"),
            persistence: match sync {
                _ if self.get("aof_enabled") != "1" => "no aof".to_owned(),
                Some(sync) => format!("aof {sync}"),
                None => "aof".to_owned(),
            },
            memory: self.number("used_memory"),
            memory_limit: Some(self.number("maxmemory")).filter(|limit| *limit > 0),
        }
    }

    pub(super) fn is_in_cluster(&self) -> bool {
        self.get("cluster_enabled") == "1"
    }
}

/// Asks the server, or each primary of a Cluster.
pub(super) async fn read(link: &mut Link) -> RedisResult<Vec<ServerInfo>> {
    Ok(parse(link.send(Cmd::new().arg("INFO")).await?)?)
}

/// Reads the answer to `INFO`: that of one server, or of each primary of a Cluster.
pub(super) fn parse(answer: Value) -> Result<Vec<ServerInfo>, ParsingError> {
    let texts: Vec<(Option<Value>, Value)> = match answer {
        Value::Map(servers) => servers.into_iter().map(|(address, text)| (Some(address), text)).collect(),
        Value::Array(servers) => {
            let parts = servers.into_iter().filter_map(|server| server.into_sequence().ok());
            parts.filter_map(|mut server| server.pop().map(|text| (server.pop(), text))).collect()
        }
        text => vec![(None, text)],
    };
    let read = |(address, text): (Option<Value>, Value)| {
        let address = address.map(redis::from_redis_value::<String>).transpose()?;
        Ok(ServerInfo::of_text(address, &redis::from_redis_value::<String>(text)?))
    };
    texts.into_iter().map(read).collect()
}

/// Identifies one life of a server; empty on a Cluster, where each server has its own. Refuses a replica, whose rows may be out of date.
///
/// # Errors
/// When the server is a replica ([`is_replica`]), or does not answer.
pub(super) async fn primary_run(link: &mut Link) -> RedisResult<String> {
    if let Link::Cluster(_) = link {
        return Ok(String::new());
    }
    let servers = read(link).await?;
    match servers.first() {
        Some(server) if server.get("role") == "master" => Ok(server.get("run_id").to_owned()),
        _ => Err(RedisError::from((ErrorKind::Server(ServerErrorKind::ReadOnly), "the server is a read-only replica"))),
    }
}

/// Whether a connection was refused because its server is a replica.
pub(super) fn is_replica(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

/// Checks the servers.
///
/// # Errors
/// When a store cannot be kept there.
pub(super) async fn check(link: &mut Link, options: &Options) -> Result<(), OpenError> {
    let failed = |error: RedisError| match error.kind() {
        _ if error.code() == Some("NOAUTH") => OpenError::Password { address: options.address.to_string() },
        ErrorKind::Server(ServerErrorKind::NoPerm) => {
            OpenError::Permission(error.detail().unwrap_or("INFO").to_owned())
        }
        // A server that refuses the certificate of a client closes the connection only now.
        ErrorKind::Io => OpenError::Unreachable { address: options.address.to_string(), reason: describe(&error) },
        _ => OpenError::Failed(describe(&error)),
    };
    let servers = read(link).await.map_err(failed)?;
    servers.iter().flat_map(|server| problems(server, options)).next().map_or(Ok(()), Err)
}

/// Why a store cannot be kept on a server.
fn problems(server: &ServerInfo, options: &Options) -> Vec<OpenError> {
    let address = || options.address.to_string();
    let version = server.get("redis_version");
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    let policy = server.get("maxmemory_policy");
    let is_volatile = options.volatile;
    let checks = [
        (major.is_none_or(|major| major < MIN_VERSION)).then(|| OpenError::TooOld { found: version.to_owned() }),
        match (server.is_in_cluster(), options.address.is_cluster()) {
            (true, false) => Some(OpenError::IsCluster { address: address() }),
            (false, true) => Some(OpenError::NoCluster { address: address() }),
            _ => None,
        },
        (server.get("role") != "master").then(|| OpenError::Replica { address: address() }),
        (policy.starts_with("allkeys-") && !is_volatile).then(|| OpenError::Eviction { policy: policy.to_owned() }),
        (server.get("aof_enabled") != "1" && !is_volatile).then_some(OpenError::NoAppendOnlyFile),
    ];
    checks.into_iter().flatten().collect()
}

/// What is worth a warning while the store is open: also what would have been refused when it was opened. There are `settings` if the user
/// is allowed to ask for them.
pub(super) fn warnings(servers: &[ServerInfo], settings: Option<&Settings>, options: &Options) -> Vec<String> {
    let mut warnings = Vec::new();
    for server in servers {
        warnings.extend(problems(server, options).iter().map(ToString::to_string));
        warnings.extend(server_warnings(server));
        warnings.extend(settings.and_then(|settings| replica_warning(server, settings)));
    }
    let can_fail_over = options.address.topology != Topology::Standalone
        || servers.iter().any(|server| server.number("connected_slaves") > 0);
    warnings.extend(setting_warnings(settings, can_fail_over));
    let mut known = HashSet::new();
    warnings.retain(|warning| known.insert(warning.clone()));
    warnings.iter().map(|warning| options.setting_names.rename(warning)).collect()
}

fn server_warnings(server: &ServerInfo) -> Vec<String> {
    let mut warnings = Vec::new();
    if server.get("maxmemory_policy").starts_with("volatile-") {
        warnings.push(
            "Redis may remove the answers to recent commits when its memory is full; set `maxmemory-policy noeviction`"
                .into(),
        );
    }
    if server.get("aof_last_write_status") == "err" {
        warnings.push("Redis cannot write its append-only file, and refuses commits; check its disk".into());
    }
    if server.get("rdb_last_bgsave_status") == "err" {
        warnings.push(
            "Redis cannot write its snapshots, and refuses commits unless `stop-writes-on-bgsave-error` is `no`; check its disk".into(),
        );
    }
    warnings.extend(server.used_memory().and_then(memory_warning).map(str::to_owned));
    warnings
}

fn memory_warning(used: f64) -> Option<&'static str> {
    match used {
        1.0.. => Some("the memory of Redis is full, and it refuses commits; raise its `maxmemory`, or remove records"),
        NEARLY_FULL.. => Some(
            "Redis uses more than 80 % of its `maxmemory`; at 90 % plain read-only calls are no longer recorded, at 100 % it refuses commits",
        ),
        _ => None,
    }
}

/// Says that a server has fewer replicas than it demands for a write.
fn replica_warning(server: &ServerInfo, settings: &Settings) -> Option<String> {
    let needed: u64 = settings.get("min-replicas-to-write")?.parse().ok()?;
    // Those that acknowledge fast enough. A server without a limit of their lag does not count them, and refuses no write.
    let found: u64 = server.get("min_slaves_good_slaves").parse().ok()?;
    (found < needed).then(|| {
        format!(
            "Redis refuses commits: it has {found} replicas in time, and `min-replicas-to-write` is {needed}; connect more, or lower that \
             setting of Redis"
        )
    })
}

/// Asks for settings that `INFO` does not show.
pub(super) fn settings_command() -> Cmd {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("appendfsync").arg("min-replicas-to-write");
    command
}

/// Reads the answer to [`settings_command`].
pub(super) fn parse_settings(answer: Value) -> Option<Settings> {
    redis::from_redis_value(answer).ok()
}

/// A managed server may forbid to read its settings.
fn setting_warnings(settings: Option<&Settings>, can_fail_over: bool) -> Vec<String> {
    let Some(settings) = settings else {
        return vec![
            "Redis does not show its settings (CONFIG GET), so it is unknown what survives a power failure".into(),
        ];
    };
    let get = |name: &str| settings.get(name).map_or("", String::as_str);
    let mut warnings = Vec::new();
    match get("appendfsync") {
        "always" => {}
        "no" => warnings.push("records may be lost in a power failure: Redis leaves syncs to its operating system; set `appendfsync always`".into()),
        _ => warnings.push("the records of the last seconds may be lost in a power failure; set `appendfsync always` in Redis to prevent that".into()),
    }
    if matches!(get("min-replicas-to-write"), "0" | "") && can_fail_over {
        warnings.push("a fail-over of Redis may lose acknowledged records; set `min-replicas-to-write 1`".into());
    }
    warnings
}
