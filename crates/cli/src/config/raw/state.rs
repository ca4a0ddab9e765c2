//! The section `[state]`: the fields of core's two configs of states, under the same names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub::{
    BusinessStateConfig, StateManagerConfig,
    config::{Conflict, Size, Time},
};

/// What tools remember: where, how much, and who wins when two write.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct State {
    /// Who keeps states; the hub's own store where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) manager_type: Option<Manager>,
    /// How long a state lives that is written without a time of its own; for ever where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<Time>,
    /// Whether what has expired is removed in the background. Nobody sees it in either case.
    pub(crate) auto_cleanup: bool,
    /// How often.
    pub(crate) cleanup_interval: Time,
    /// The folder of the persistent manager.
    pub(crate) persistence_path: String,
    /// How the persistent manager writes.
    pub(crate) persistence_format: Format,
    /// Whether the persistent manager packs what it writes.
    pub(crate) compression: bool,
    /// Whether every thread has states of its own. If not, all threads of a tenant share them.
    pub(crate) session_isolation: bool,
    /// With the session manager: how many states a thread may have.
    #[schemars(range(min = 1))]
    pub(crate) max_states_per_session: u32,
    /// With the session manager: how long states outlive their last use.
    pub(crate) session_timeout: Time,
    /// How many entries of a state's history are kept. 0 for none.
    pub(crate) max_history_size: u32,
    /// How large a state may be as JSON; a larger one is refused.
    pub(crate) max_state_size: Size,
    /// The same as `compression`: either of the two is enough.
    pub(crate) state_compression: bool,
    /// Whether snapshots of earlier versions are kept. Versions are counted in any case.
    pub(crate) versioning: bool,
    /// How many snapshots are kept, the present version among them.
    pub(crate) max_versions: u32,
    /// Whether what a tool changed is committed when its call succeeds. If not, only what it saved on purpose is.
    pub(crate) auto_save: bool,
    /// With the persistent manager and `sync_on_change = false`: how much later a change is written, at most.
    pub(crate) sync_interval: Time,
    /// With the persistent manager: whether a change is written before it is acknowledged.
    pub(crate) sync_on_change: bool,
    /// What happens when two write at once. Where nothing is said, people's writes win and tools' writes are rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) conflict_resolution: Option<Conflict>,
    /// With the persistent manager in SQLite: whether it makes backups of itself.
    pub(crate) backup_enabled: bool,
    /// With the persistent manager: the time from one backup to the next.
    pub(crate) backup_interval: Time,
    /// With the persistent manager: how old a backup becomes before it is removed.
    pub(crate) backup_retention: Time,
}

/// Who keeps states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Manager {
    /// Gone with the process.
    Memory,
    /// On disk, apart from the hub's own store.
    Persistent,
    /// Gone some time after a thread was used last.
    Session,
}

/// How the persistent manager writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// One SQLite database.
    #[default]
    Sqlite,
    /// One readable JSON file for each state.
    Json,
}

impl Default for State {
    fn default() -> Self {
        let (manager, business) = (StateManagerConfig::default(), BusinessStateConfig::default());
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            manager_type: None,
            ttl: manager.ttl.map(Time),
            auto_cleanup: manager.auto_cleanup,
            cleanup_interval: Time(manager.cleanup_interval),
            persistence_path: manager.persistence_path.display().to_string(),
            persistence_format: Format::default(),
            compression: manager.compression,
            session_isolation: manager.session_isolation,
            max_states_per_session: small(manager.max_states_per_session),
            session_timeout: Time(manager.session_timeout),
            max_history_size: small(business.max_history_size),
            max_state_size: Size(business.max_state_size as u64),
            state_compression: business.state_compression,
            versioning: business.versioning,
            max_versions: small(business.max_versions),
            auto_save: business.auto_save,
            sync_interval: Time(business.sync_interval),
            sync_on_change: business.sync_on_change,
            conflict_resolution: None,
            backup_enabled: business.backup_enabled,
            backup_interval: Time(business.backup_interval),
            backup_retention: Time(business.backup_retention),
        }
    }
}
