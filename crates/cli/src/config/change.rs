//! What is different between two configs, for a hub that goes on running.
//!
//! In: the config that holds and the one that is to hold. Out: which tools come, which are replaced, which go, whether
//! policies, keys and agents change, and which keys wait for a restart. Tools are compared by what was worked out for them, so
//! that one whose lines were only moved stays untouched.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Config, raw::RawConfig};

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChangePlan {
    /// Tools that were not there.
    pub(crate) added: Vec<String>,
    /// Tools that are another.
    pub(crate) replaced: Vec<String>,
    /// Tools that are no more.
    pub(crate) removed: Vec<String>,
    /// Whether `[defaults]`, `[[limits]]` or `[[policy]]` say something else.
    pub(crate) policies: bool,
    /// Whether `[status]` says something else.
    pub(crate) status: bool,
    /// Whether the keys of `[auth]` are others.
    pub(crate) keys: bool,
    /// Whether `[llm]`, `[agents]` or `[toolsets]` say something else.
    pub(crate) agents: bool,
    /// The keys that say something else and hold only after a restart.
    pub(crate) needs_restart: Vec<String>,
}

impl Config {
    /// What is different from an older config.
    pub(crate) fn change_from(&self, old: &Self) -> ChangePlan {
        let other = |name: &&String| self.tools.get(*name) != old.tools.get(*name);
        let (mut added, mut replaced) = (Vec::new(), Vec::new());
        for name in self.tools.keys().filter(other) {
            if old.tools.contains_key(name) { replaced.push(name.clone()) } else { added.push(name.clone()) }
        }
        let removed = old.tools.keys().filter(|name| !self.tools.contains_key(*name)).cloned().collect();
        let keys: std::collections::BTreeSet<&String> =
            self.restart_only.keys().chain(old.restart_only.keys()).collect();
        let changed = keys.into_iter().filter(|key| self.restart_only.get(*key) != old.restart_only.get(*key));
        ChangePlan {
            added,
            replaced,
            removed,
            policies: self.policies != old.policies,
            status: self.status != old.status,
            keys: self.auth.keys != old.auth.keys,
            agents: self.agents != old.agents,
            needs_restart: changed.cloned().collect(),
        }
    }
}

/// The keys that hold until a restart, by name, as they are written.
pub(super) fn restart_only_keys(raw: &RawConfig) -> BTreeMap<String, Value> {
    let mut whole = match serde_json::to_value(raw) {
        Ok(Value::Object(whole)) => whole,
        _ => Map::new(),
    };
    for section in ["tools", "imports", "defaults", "limits", "policy", "status", "llm", "agents", "toolsets"] {
        whole.remove(section);
    }
    if let Some(auth) = whole.get_mut("auth").and_then(Value::as_object_mut) {
        auth.remove("keys");
    }
    if let Some(server) = whole.get_mut("server").and_then(Value::as_object_mut) {
        server.remove("tool_hosts");
    }
    let mut leaves = BTreeMap::new();
    flatten("", &Value::Object(whole), &mut leaves);
    leaves
}

fn flatten(path: &str, value: &Value, leaves: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(table) => {
            for (key, inner) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                flatten(&path, inner, leaves);
            }
        }
        other => {
            leaves.insert(path.into(), other.clone());
        }
    }
}
