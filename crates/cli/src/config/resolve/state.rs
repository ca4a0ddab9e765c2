//! Resolves `[state]` into core's two state configs.

use std::collections::BTreeMap;

use toolhub::{BusinessStateConfig, ManagerType, PersistenceFormat, StateManagerConfig, redis};

use super::{
    super::{
        raw::{self, Format, Manager},
        tree::Path,
    },
    Backend, Diagnostics, Store,
    redis_server::{self, RedisServer},
    to_usize,
};

/// State of tools: where it is stored, its size limits, and how conflicting writes are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) manager: StateManagerConfig,
    pub(crate) business: BusinessStateConfig,
    /// Whether the hub or a tool uses the persistent manager, which has its own store.
    pub(crate) on_disk: bool,
    /// The server of the distributed manager, if the hub or a tool uses it.
    pub(crate) redis: Option<RedisServer>,
}

/// Whether the hub or a tool uses this manager.
pub(super) fn uses(raw: &raw::State, tools: &BTreeMap<String, raw::Tool>, manager: ManagerType) -> bool {
    let of_hub = raw.manager_type.map(|raw| match raw {
        Manager::Memory => ManagerType::Memory,
        Manager::Persistent => ManagerType::Persistent,
        Manager::Session => ManagerType::Session,
        Manager::Distributed => ManagerType::Distributed,
    });
    let of_tool = |tool: &raw::Tool| tool.config.state.manager_type.map(ManagerType::from);
    of_hub == Some(manager) || tools.values().any(|tool| tool.enabled && of_tool(tool) == Some(manager))
}

/// Keys that only the persistent manager uses, if they differ from their defaults.
fn persistent_only_keys(raw: &raw::State) -> Vec<&'static str> {
    let defaults = raw::State::default();
    let differing = [
        (raw.persistence_path != defaults.persistence_path, "persistence_path"),
        (raw.persistence_format != defaults.persistence_format, "persistence_format"),
        (raw.compression, "compression"),
        (raw.state_compression, "state_compression"),
        (!raw.sync_on_change, "sync_on_change"),
        (raw.sync_interval != defaults.sync_interval, "sync_interval"),
        (raw.backup_enabled, "backup_enabled"),
        (raw.backup_interval != defaults.backup_interval, "backup_interval"),
        (raw.backup_retention != defaults.backup_retention, "backup_retention"),
    ];
    differing.into_iter().filter(|(differs, _)| *differs).map(|(_, key)| key).collect()
}

pub(super) fn resolve(
    raw: &raw::State,
    tools: &BTreeMap<String, raw::Tool>,
    store: (&raw::Store, &Store),
    diagnostics: &mut Diagnostics<'_>,
) -> State {
    let at = |key| Path::of(["state", key]);
    let on_disk = uses(raw, tools, ManagerType::Persistent);
    let redis = uses(raw, tools, ManagerType::Distributed).then(|| resolve_redis(raw, store, diagnostics));
    if redis.is_none() {
        let defaults = raw::State::default();
        let unused = [
            (raw.redis_url.is_some(), "redis_url"),
            (raw.redis_prefix != defaults.redis_prefix, "redis_prefix"),
            (raw.redis_db != defaults.redis_db, "redis_db"),
        ];
        for (_, key) in unused.into_iter().filter(|(is_set, _)| *is_set) {
            let help = "add manager_type = \"distributed\" to [state], or remove it; the hub's own store is configured in [store]";
            diagnostics.report(&at(key), format!("`state.{key}` has no effect without the distributed manager"), help);
        }
    }
    let sessions = raw.manager_type == Some(Manager::Session);
    for key in persistent_only_keys(raw) {
        if !on_disk {
            let help = "add manager_type = \"persistent\" to [state], or remove it; the hub's own store is configured in [store]";
            diagnostics.report(&at(key), format!("`state.{key}` has no effect without the persistent manager"), help);
        }
    }
    if sessions && !raw.session_isolation {
        let help =
            "remove one of the two: a session belongs to one thread, so shared states cannot belong to a session";
        diagnostics.report(
            &at("session_isolation"),
            "session_isolation = false and manager_type = \"session\" exclude each other",
            help,
        );
    }
    let manager = StateManagerConfig {
        manager_type: raw.manager_type.map(|manager| match manager {
            Manager::Memory => ManagerType::Memory,
            Manager::Persistent => ManagerType::Persistent,
            Manager::Session => ManagerType::Session,
            Manager::Distributed => ManagerType::Distributed,
        }),
        ttl: raw.ttl.map(|time| time.0),
        auto_cleanup: raw.auto_cleanup,
        cleanup_interval: raw.cleanup_interval.0,
        persistence_path: if on_disk {
            diagnostics.resolve_path(&at("persistence_path"), &raw.persistence_path)
        } else {
            StateManagerConfig::default().persistence_path
        },
        persistence_format: match raw.persistence_format {
            Format::Sqlite => PersistenceFormat::Sqlite,
            Format::Json => PersistenceFormat::Json,
        },
        compression: raw.compression,
        redis_url: raw.redis_url.clone(),
        redis_prefix: raw.redis_prefix.clone(),
        redis_db: raw.redis_db,
        session_isolation: raw.session_isolation,
        max_states_per_session: to_usize(raw.max_states_per_session),
        session_timeout: raw.session_timeout.0,
    };
    let business = BusinessStateConfig {
        max_history_size: to_usize(raw.max_history_size),
        max_state_size: usize::try_from(raw.max_state_size.0).unwrap_or(usize::MAX),
        state_compression: raw.state_compression,
        versioning: raw.versioning,
        max_versions: to_usize(raw.max_versions),
        auto_save: raw.auto_save,
        sync_interval: raw.sync_interval.0,
        sync_on_change: raw.sync_on_change,
        conflict_resolution: raw.conflict_resolution.map(Into::into),
        backup_enabled: raw.backup_enabled,
        backup_interval: raw.backup_interval.0,
        backup_retention: raw.backup_retention.0,
    };
    State { manager, business, on_disk, redis }
}

/// The server of the distributed manager, with the login of [store.redis].
fn resolve_redis(
    raw: &raw::State,
    (raw_store, store): (&raw::Store, &Store),
    diagnostics: &mut Diagnostics<'_>,
) -> RedisServer {
    let address = match raw.redis_url.as_deref() {
        Some(url) => redis_server::resolve_address(url, "state", "redis_url", diagnostics),
        None => {
            let message = "manager_type = \"distributed\" needs `state.redis_url`";
            diagnostics.report(&Path::of(["state"]), message, "write it like \"redis://localhost:6379\"");
            redis::Address::default()
        }
    };
    let (address, prefix) = (address.database(raw.redis_db), raw.redis_prefix.clone());
    if prefix.is_empty() || prefix.contains(['{', '}']) {
        let help = "use letters, digits and `-`, such as \"tool_state\"";
        let at = Path::of(["state", "redis_prefix"]);
        diagnostics.report(&at, "`state.redis_prefix` must not be empty nor contain braces", help);
    }
    let server = match &store.backend {
        Backend::Redis(server) => server.at(address, prefix),
        _ => redis_server::resolve_server(address, prefix, &raw_store.redis, diagnostics),
    };
    server.of_state()
}
