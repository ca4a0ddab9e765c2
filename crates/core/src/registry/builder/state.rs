//! What a tool's author says about its state, said while the tool is built.

use std::{collections::HashSet, ptr};

use serde_json::Value;
use smol_str::SmolStr;

use super::ToolBuilder;
use crate::state::{StateCleanup, StateRules};
use toolhub_types::{
    ids::StateName,
    state_config::{ConflictResolution, ManagerType},
    tool::Definition,
};

impl ToolBuilder {
    /// What happens when somebody else wrote the tool's state while the tool did; as the hub's owner says where nothing
    /// is said, and rejected where the owner says nothing either.
    pub fn on_conflict(mut self, resolution: ConflictResolution) -> Self {
        self.state.on_conflict = Some(resolution);
        self
    }

    /// It may be run once more with the state as it is then, where conflicts are resolved by `retry`. What it did to the
    /// world besides is done twice.
    pub fn rerunnable(mut self) -> Self {
        self.state.rerunnable = true;
        self
    }

    /// When what it remembers is thrown away; with its thread where nothing is said.
    pub fn state_cleanup(mut self, when: StateCleanup) -> Self {
        self.state.cleanup = when;
        self
    }

    /// Who keeps what it remembers; whoever keeps the hub's other states where nothing is said. All tools that share the
    /// state find it there. Where that is not the hub's own store, what the tool remembers is committed just before the end
    /// of its call, not together with it.
    pub fn manager_type(mut self, manager: ManagerType) -> Self {
        self.state.manager = Some(manager);
        self
    }

    pub(crate) fn manager(&self) -> Option<ManagerType> {
        self.state.manager
    }

    /// It is a JSON tool, and remembers something under this name. Its executor or its instance takes that out with
    /// [`JsonState::of`](crate::JsonState::of).
    pub fn json_state(mut self, name: &str) -> Self {
        self.state.json = true;
        self.states(&[name]).state_parameter_name(STATE_PARAMETER)
    }

    /// Whether a JSON tool finds its state among its arguments; it does where nothing is said.
    pub fn state_injection(mut self, inject: bool) -> Self {
        let named = self.state.parameter.take();
        self.state.parameter = inject.then(|| named.unwrap_or_else(|| STATE_PARAMETER.into()));
        self
    }

    /// The name of the argument a JSON tool finds its state in; `state` where nothing is said.
    pub fn state_parameter_name(mut self, name: impl Into<SmolStr>) -> Self {
        self.state.parameter = Some(name.into());
        self
    }
}

/// The argument a JSON tool finds its state in.
const STATE_PARAMETER: &str = "state";

/// The rules for these states; or what is wrong with them.
pub(super) fn rules(mut rules: StateRules, names: &[SmolStr]) -> Result<StateRules, String> {
    for name in names {
        let name = StateName::new(name.clone())
            .map_err(|_| format!("its state is named `{name}`; use 1 to 128 letters, digits, `.`, `_`, `:` or `-`"))?;
        if rules.names.contains(&name) {
            return Err(format!("it asks for the state `{name}` twice"));
        }
        rules.names.push(name);
    }
    rules.names.sort_unstable();
    Ok(rules)
}

/// Whether what is said about states fits the tool.
pub(super) fn check(rules: &StateRules, definition: &Definition) -> Result<(), String> {
    if rules.names.is_empty() && *rules != StateRules::default() {
        return Err("it has no state, so there is nothing to say about one".into());
    }
    if rules.parameter.is_some() && !rules.json {
        return Err("only a JSON tool finds its state among its arguments".into());
    }
    let Some(parameter) = &rules.parameter else { return Ok(()) };
    if has_parameter(&definition.parameters, parameter) {
        return Err(format!(
            "its schema has a parameter `{parameter}`, where it is to find its state; rename the parameter, choose \
             another name with `state_parameter_name`, or turn `state_injection` off"
        ));
    }
    Ok(())
}

/// Whether a schema knows a parameter of this name, in itself or in the parts it is put together from.
fn has_parameter(whole: &Value, name: &str) -> bool {
    let (mut parts, mut seen) = (vec![whole], HashSet::new());
    while let Some(schema) = parts.pop() {
        // A part may refer to one that refers to it.
        if !seen.insert(ptr::from_ref(schema)) {
            continue;
        }
        let required = schema["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name));
        if required || schema["properties"].get(name).is_some() {
            return true;
        }
        parts.extend(["allOf", "anyOf", "oneOf"].iter().filter_map(|key| schema[*key].as_array()).flatten());
        parts.extend(["if", "then", "else"].iter().filter_map(|key| schema.get(*key)));
        let referred = schema["$ref"].as_str().and_then(|text| text.strip_prefix('#'));
        parts.extend(referred.and_then(|at| whole.pointer(at)));
    }
    false
}
