//! What holds for `[state]`: core's two configs of states.

use std::collections::BTreeMap;

use toolhub::{BusinessStateConfig, ManagerType, PersistenceFormat, StateManagerConfig, config::Keeper};

use super::{
    super::{
        raw::{self, Format, Manager},
        tree::Path,
    },
    Diagnostics, to_usize,
};

/// What tools remember: where, how much, and who wins when two write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) manager: StateManagerConfig,
    pub(crate) business: BusinessStateConfig,
}

/// The settings that only the persistent manager heeds, where they say something else than usual.
fn persistent_only_keys(said: &raw::State) -> Vec<&'static str> {
    let usual = raw::State::default();
    let asked = [
        (said.persistence_path != usual.persistence_path, "persistence_path"),
        (said.persistence_format != usual.persistence_format, "persistence_format"),
        (said.compression, "compression"),
        (said.state_compression, "state_compression"),
        (!said.sync_on_change, "sync_on_change"),
        (said.sync_interval != usual.sync_interval, "sync_interval"),
        (said.backup_enabled, "backup_enabled"),
        (said.backup_interval != usual.backup_interval, "backup_interval"),
        (said.backup_retention != usual.backup_retention, "backup_retention"),
    ];
    asked.into_iter().filter(|(asked, _)| *asked).map(|(_, key)| key).collect()
}

pub(super) fn resolve(said: &raw::State, tools: &BTreeMap<String, raw::Tool>, desk: &mut Diagnostics<'_>) -> State {
    let at = |key| Path::of(["state", key]);
    let on_disk = said.manager_type == Some(Manager::Persistent)
        || tools.values().any(|tool| tool.enabled && tool.config.state.manager_type == Some(Keeper::Persistent));
    let sessions = said.manager_type == Some(Manager::Session);
    for key in persistent_only_keys(said) {
        if !on_disk {
            let help =
                "add manager_type = \"persistent\" to [state], or remove it; the hub's own store is said in [store]";
            desk.report(&at(key), format!("only the persistent manager heeds `state.{key}`"), help);
        }
    }
    if sessions && !said.session_isolation {
        let help = "remove one of the two: a session is of one thread, so states that all threads share belong to none";
        desk.report(
            &at("session_isolation"),
            "session_isolation = false and manager_type = \"session\" exclude each other",
            help,
        );
    }
    if on_disk && said.persistence_format == Format::Json && said.backup_enabled {
        let help = "use persistence_format = \"sqlite\", or copy the folder, where each file is whole at any moment";
        desk.report(&at("backup_enabled"), "a folder of JSON files makes no backups of itself", help);
    }
    let manager = StateManagerConfig {
        manager_type: said.manager_type.map(|manager| match manager {
            Manager::Memory => ManagerType::Memory,
            Manager::Persistent => ManagerType::Persistent,
            Manager::Session => ManagerType::Session,
        }),
        ttl: said.ttl.map(|time| time.0),
        auto_cleanup: said.auto_cleanup,
        cleanup_interval: said.cleanup_interval.0,
        persistence_path: if on_disk {
            desk.resolve_path(&at("persistence_path"), &said.persistence_path)
        } else {
            StateManagerConfig::default().persistence_path
        },
        persistence_format: match said.persistence_format {
            Format::Sqlite => PersistenceFormat::Sqlite,
            Format::Json => PersistenceFormat::Json,
        },
        compression: said.compression,
        session_isolation: said.session_isolation,
        max_states_per_session: to_usize(said.max_states_per_session),
        session_timeout: said.session_timeout.0,
        ..StateManagerConfig::default()
    };
    let business = BusinessStateConfig {
        max_history_size: to_usize(said.max_history_size),
        max_state_size: usize::try_from(said.max_state_size.0).unwrap_or(usize::MAX),
        state_compression: said.state_compression,
        versioning: said.versioning,
        max_versions: to_usize(said.max_versions),
        auto_save: said.auto_save,
        sync_interval: said.sync_interval.0,
        sync_on_change: said.sync_on_change,
        conflict_resolution: said.conflict_resolution.map(Into::into),
        backup_enabled: said.backup_enabled,
        backup_interval: said.backup_interval.0,
        backup_retention: said.backup_retention.0,
    };
    State { manager, business }
}
