//! The section `[state]`: the fields of core's two state configs, under the same names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub::{
    BusinessStateConfig, StateManagerConfig,
    config::{Conflict, PositiveDuration, Size},
};

/// State of tools: where it is stored, its size limits, and how conflicting writes are resolved.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct State {
    /// Which manager stores state. Default: the hub's own store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) manager_type: Option<Manager>,
    /// TTL of a state that is written without one. Default: no expiry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<PositiveDuration>,
    /// Whether expired states are removed in the background. They are invisible in any case.
    pub(crate) auto_cleanup: bool,
    /// Interval of the background removal.
    pub(crate) cleanup_interval: PositiveDuration,
    /// Folder of the persistent manager.
    pub(crate) persistence_path: String,
    /// Storage format of the persistent manager.
    pub(crate) persistence_format: Format,
    /// Whether the persistent manager compresses what it writes.
    pub(crate) compression: bool,
    /// Address of the Redis server of the distributed manager, as in `store.url`. Its login and TLS are those of [store.redis].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) redis_url: Option<String>,
    /// With the distributed manager: what all keys begin with.
    pub(crate) redis_prefix: String,
    /// With the distributed manager: number of the database. 0 leaves that of `redis_url`.
    pub(crate) redis_db: u32,
    /// Whether every thread has its own states. If not, all threads of a tenant share them.
    pub(crate) session_isolation: bool,
    /// With the session manager: maximum number of states per thread.
    #[schemars(range(min = 1))]
    pub(crate) max_states_per_session: u32,
    /// With the session manager: how long states are kept after their last use.
    pub(crate) session_timeout: PositiveDuration,
    /// Maximum number of history entries per state. 0 for none.
    pub(crate) max_history_size: u32,
    /// Maximum size of a state as JSON; a larger one is refused.
    pub(crate) max_state_size: Size,
    /// Same as `compression`; either of the two is enough.
    pub(crate) state_compression: bool,
    /// Whether snapshots of earlier versions are kept. Versions are counted in any case.
    pub(crate) versioning: bool,
    /// Maximum number of snapshots, including the current version.
    pub(crate) max_versions: u32,
    /// Whether a tool's changes are committed when its call succeeds. If not, only what it saves explicitly.
    pub(crate) auto_save: bool,
    /// With the persistent manager and `sync_on_change = false`: maximum delay before a change is written.
    pub(crate) sync_interval: PositiveDuration,
    /// With the persistent manager: whether a change is written before it is acknowledged.
    pub(crate) sync_on_change: bool,
    /// How conflicting writes are resolved. Default: writes through the API win (last write wins), writes of tools are rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) conflict_resolution: Option<Conflict>,
    /// With the persistent manager: whether it makes automatic backups, in `backups` in its folder.
    pub(crate) backup_enabled: bool,
    /// With the persistent manager: interval between backups.
    pub(crate) backup_interval: PositiveDuration,
    /// With the persistent manager: how long a backup is kept.
    pub(crate) backup_retention: PositiveDuration,
}

/// Which manager stores state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Manager {
    /// In memory; lost when the process ends.
    Memory,
    /// On disk, separate from the hub's own store.
    Persistent,
    /// In memory; removed when a thread has been unused for `session_timeout`.
    Session,
    /// On the Redis server of `redis_url`, separate from the hub's own store.
    Distributed,
}

/// Storage format of the persistent manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// One SQLite database.
    #[default]
    Sqlite,
    /// One readable JSON file per state.
    Json,
}

impl Default for State {
    fn default() -> Self {
        let (manager, business) = (StateManagerConfig::default(), BusinessStateConfig::default());
        let to_u32 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            manager_type: None,
            ttl: manager.ttl.map(PositiveDuration),
            auto_cleanup: manager.auto_cleanup,
            cleanup_interval: PositiveDuration(manager.cleanup_interval),
            persistence_path: manager.persistence_path.display().to_string(),
            persistence_format: Format::default(),
            compression: manager.compression,
            redis_url: manager.redis_url,
            redis_prefix: manager.redis_prefix,
            redis_db: manager.redis_db,
            session_isolation: manager.session_isolation,
            max_states_per_session: to_u32(manager.max_states_per_session),
            session_timeout: PositiveDuration(manager.session_timeout),
            max_history_size: to_u32(business.max_history_size),
            max_state_size: Size(business.max_state_size as u64),
            state_compression: business.state_compression,
            versioning: business.versioning,
            max_versions: to_u32(business.max_versions),
            auto_save: business.auto_save,
            sync_interval: PositiveDuration(business.sync_interval),
            sync_on_change: business.sync_on_change,
            conflict_resolution: None,
            backup_enabled: business.backup_enabled,
            backup_interval: PositiveDuration(business.backup_interval),
            backup_retention: PositiveDuration(business.backup_retention),
        }
    }
}
