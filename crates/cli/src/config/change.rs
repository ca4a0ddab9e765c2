//! Compares two configs, for a reload without a restart.
//!
//! In: the running config and the new one. Out: which tools are added, replaced and removed, whether policies, keys and agents
//! change, and which changed keys need a restart. Tools are compared by their resolved form, so moving the lines of a tool
//! changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Config, raw::RawConfig, tree::Path};

/// The changes to apply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChangePlan {
    /// New tools.
    pub(crate) added: Vec<String>,
    /// Tools with a new definition.
    pub(crate) replaced: Vec<String>,
    /// Tools that are no longer configured.
    pub(crate) removed: Vec<String>,
    /// Whether `[defaults]`, `[[limits]]` or `[[policy]]` changed.
    pub(crate) policies: bool,
    /// Whether `[status]` changed.
    pub(crate) status: bool,
    /// Whether the keys of `[auth]` changed.
    pub(crate) keys: bool,
    /// Whether `[llm]`, `[agents]` or `[toolsets]` changed.
    pub(crate) agents: bool,
    /// Whether `[[alerts]]` changed.
    pub(crate) alerts: bool,
    /// Changed keys that take effect only after a restart.
    pub(crate) needs_restart: Vec<String>,
}

impl Config {
    /// The changes from an older config to this one.
    pub(crate) fn change_from(&self, old: &Self) -> ChangePlan {
        let differs = |name: &&String| self.tools.get(*name) != old.tools.get(*name);
        let (mut added, mut replaced) = (Vec::new(), Vec::new());
        for name in self.tools.keys().filter(differs) {
            if old.tools.contains_key(name) { replaced.push(name.clone()) } else { added.push(name.clone()) }
        }
        let removed = old.tools.keys().filter(|name| !self.tools.contains_key(*name)).cloned().collect();
        let keys: BTreeSet<&String> = self.restart_only.keys().chain(old.restart_only.keys()).collect();
        let changed = keys.into_iter().filter(|key| self.restart_only.get(*key) != old.restart_only.get(*key));
        ChangePlan {
            added,
            replaced,
            removed,
            policies: self.policies != old.policies,
            status: self.status != old.status,
            keys: self.auth.keys != old.auth.keys,
            agents: self.agents != old.agents,
            alerts: self.alerts != old.alerts,
            needs_restart: changed.cloned().collect(),
        }
    }
}

impl Config {
    /// The sections, other than tools and those that need a restart, that differ from an older config.
    pub(crate) fn changed_sections(&self, old: &Self) -> Vec<String> {
        let sections = [
            ("auth.keys", self.auth.keys != old.auth.keys),
            ("server.tool_hosts", self.server.tool_hosts != old.server.tool_hosts),
            ("status", self.status != old.status),
            ("defaults", self.policies.defaults != old.policies.defaults),
            ("limits", self.policies.limits != old.policies.limits),
            ("policy", self.policies.rules != old.policies.rules),
            ("llm", self.agents.llm != old.agents.llm),
            ("agents", self.agents.agents != old.agents.agents),
            ("alerts", self.alerts != old.alerts),
            ("toolsets", self.agents.toolsets != old.agents.toolsets),
        ];
        let servers: BTreeSet<&String> = self.mcp_servers.keys().chain(old.mcp_servers.keys()).collect();
        // The tools of [tools] that name a server are no part of its section.
        let is_same = |name: &String| match (self.mcp_servers.get(name), old.mcp_servers.get(name)) {
            (Some(new), Some(old)) => new.is_same_server(old),
            _ => false,
        };
        let servers = servers.into_iter().filter(|name| !is_same(name));
        let servers = servers.map(|name| Path::of(["mcp_servers", name]).to_string());
        let sections = sections.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name.to_owned());
        servers.chain(sections).collect()
    }
}

/// The values of the keys that need a restart to change, by path.
pub(super) fn restart_only_keys(raw: &RawConfig) -> BTreeMap<String, Value> {
    let mut values = match serde_json::to_value(raw) {
        Ok(Value::Object(values)) => values,
        _ => Map::new(),
    };
    for section in [
        "tools",
        "mcp_servers",
        "imports",
        "defaults",
        "limits",
        "policy",
        "status",
        "llm",
        "agents",
        "toolsets",
        "alerts",
    ] {
        values.remove(section);
    }
    if let Some(auth) = values.get_mut("auth").and_then(Value::as_object_mut) {
        auth.remove("keys");
    }
    if let Some(server) = values.get_mut("server").and_then(Value::as_object_mut) {
        server.remove("tool_hosts");
    }
    let mut leaves = BTreeMap::new();
    flatten("", &Value::Object(values), &mut leaves);
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
