//! State settings of `ToolBuilder`, and their validation.

use std::{collections::HashSet, ptr, time::Duration};

use serde_json::Value;
use smol_str::SmolStr;

use super::ToolBuilder;
use toolhub_state::{StateCleanup, StateSettings};
use toolhub_types::{
    ids::StateName,
    state_config::{ConflictResolution, ManagerType},
    tool::{Definition, Kind},
};

impl ToolBuilder {
    /// What happens when the tool's state was changed concurrently. Default: the hub's `conflict_resolution`, or `reject` if that
    /// is not set either.
    pub fn on_conflict(mut self, resolution: ConflictResolution) -> Self {
        self.state.on_conflict = Some(resolution);
        self
    }

    /// With the conflict resolution `retry`, the tool may be run again on the changed state. Its other side effects then happen
    /// twice.
    pub fn rerunnable(mut self) -> Self {
        self.state.rerunnable = true;
        self
    }

    /// When the state is deleted. Default: with its thread.
    pub fn state_cleanup(mut self, when: StateCleanup) -> Self {
        self.state.cleanup = when;
        self
    }

    /// The manager that stores its state. Default: that of the hub's other states. It applies to all tools that share the state.
    /// If it is not the hub's own store, the state is committed just before the end of the call, not in the same transaction.
    pub fn manager_type(mut self, manager: ManagerType) -> Self {
        self.state.manager = Some(manager);
        self
    }

    /// How long its state lives after each write. Default: the hub's `ttl`. Like the other limits of a state, it applies to every
    /// write, also over the API, and tools that share the state must not set different ones.
    pub fn state_ttl(mut self, ttl: Duration) -> Self {
        self.state.limits.ttl = Some(ttl);
        self
    }

    /// Maximum size of its state as JSON text, in bytes. Default: the hub's `max_state_size`.
    pub fn max_state_size(mut self, bytes: usize) -> Self {
        self.state.limits.max_state_size = Some(bytes);
        self
    }

    /// Maximum number of snapshots of its state, including the current version. Default: the hub's `max_versions`. The hub's
    /// `versioning` must be on.
    pub fn max_versions(mut self, versions: usize) -> Self {
        self.state.limits.max_versions = Some(versions);
        self
    }

    /// Maximum number of history entries of its state; 0 for none. Default: the hub's `max_history_size`.
    pub fn max_history_size(mut self, entries: usize) -> Self {
        self.state.limits.max_history_size = Some(entries);
        self
    }

    /// Whether its changes are committed when the call succeeds; if not, only [`State::save`](crate::State::save) commits.
    /// Default: the hub's `auto_save`.
    pub fn auto_save(mut self, auto_save: bool) -> Self {
        self.state.auto_save = Some(auto_save);
        self
    }

    pub(crate) fn manager(&self) -> Option<ManagerType> {
        self.state.manager
    }

    /// Gives a JSON tool a state of this name. Its executor or instance checks it out with
    /// [`JsonState::from_context`](crate::JsonState::from_context).
    pub fn json_state(mut self, name: &str) -> Self {
        self.state.json = true;
        self.states(&[name]).state_parameter_name(STATE_PARAMETER)
    }

    /// Whether a JSON tool gets its state as an argument. Default: true.
    pub fn state_injection(mut self, inject: bool) -> Self {
        let name = self.state.parameter.take();
        self.state.parameter = inject.then(|| name.unwrap_or_else(|| STATE_PARAMETER.into()));
        self
    }

    /// The name of the argument that holds the state of a JSON tool. Default: `state`.
    pub fn state_parameter_name(mut self, name: impl Into<SmolStr>) -> Self {
        self.state.parameter = Some(name.into());
        self
    }
}

/// Default name of the argument that holds the state of a JSON tool.
const STATE_PARAMETER: &str = "state";

/// The rules for these states, or why a name is not valid.
pub(super) fn rules(mut rules: StateSettings, names: &[SmolStr]) -> Result<StateSettings, String> {
    for name in names {
        let name = StateName::new(name.clone())
            .map_err(|_| format!("its state is named `{name}`; use 1 to 128 letters, digits, `.`, `_`, `:` or `-`"))?;
        if rules.names.contains(&name) {
            return Err(format!("it uses the state `{name}` twice"));
        }
        rules.names.push(name);
    }
    rules.names.sort_unstable();
    Ok(rules)
}

/// The name of the state that describes the connection of a tool: its first state, or one of its own name.
pub(super) fn connection_name(rules: &StateSettings, definition: &Definition) -> Option<StateName> {
    match definition.kind {
        Kind::Stateful | Kind::Rest | Kind::Mcp => {
            rules.names.first().cloned().or_else(|| StateName::new(definition.name.as_str()).ok())
        }
        _ => None,
    }
}

/// Checks the state rules against the tool's definition.
pub(super) fn check(rules: &StateSettings, definition: &Definition) -> Result<(), String> {
    if rules.names.is_empty() && *rules != StateSettings::default() {
        return Err("it has no state, so state settings do not apply".into());
    }
    if rules.limits.ttl.is_some_and(|ttl| ttl.as_millis() == 0) {
        return Err("its state has a `ttl` of less than a millisecond; use a longer one, or none".into());
    }
    if rules.parameter.is_some() && !rules.json {
        return Err("only a JSON tool can get its state as an argument".into());
    }
    let Some(parameter) = &rules.parameter else { return Ok(()) };
    if has_parameter(&definition.parameters, parameter) {
        return Err(format!(
            "its schema has a parameter `{parameter}`, which is the name of its state argument; rename the parameter, choose \
             another name for the state (`state_parameter_name`, in a config `state.parameter_name`), or do not pass it \
             (`state_injection(false)`, in a config `state.inject = false`)"
        ));
    }
    Ok(())
}

/// Whether a schema has a parameter of this name, directly or in one of its subschemas.
fn has_parameter(root: &Value, name: &str) -> bool {
    let (mut schemas, mut visited) = (vec![root], HashSet::new());
    while let Some(schema) = schemas.pop() {
        // References may be circular.
        if !visited.insert(ptr::from_ref(schema)) {
            continue;
        }
        let required = schema["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
        if required || schema["properties"].get(name).is_some() {
            return true;
        }
        schemas.extend(["allOf", "anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten());
        schemas.extend(["if", "then", "else"].iter().filter_map(|key| schema.get(*key)));
        let reference = schema["$ref"].as_str().and_then(|text| text.strip_prefix('#'));
        schemas.extend(reference.and_then(|pointer| root.pointer(pointer)));
    }
    false
}
