//! What a tool's author says about its state, said while the tool is built.

use smol_str::SmolStr;

use super::ToolBuilder;
use crate::{
    ids::StateName,
    state::{ConflictResolution, StateCleanup, StateRules},
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

    /// It is a JSON tool.
    pub(crate) fn json(mut self) -> Self {
        self.state.json = true;
        self
    }

    /// Whether a JSON tool finds its state among its arguments; it does where nothing is said.
    pub fn state_injection(mut self, inject: bool) -> Self {
        self.state.parameter = inject.then(|| STATE_PARAMETER.into());
        self
    }

    /// The name of the argument a JSON tool finds its state in; `state` where nothing is said.
    pub fn state_parameter_name(mut self, name: impl Into<SmolStr>) -> Self {
        self.state.parameter = Some(name.into());
        self
    }
}

/// The argument a JSON tool finds its state in.
pub(crate) const STATE_PARAMETER: &str = "state";

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
    let taken = definition.parameters.pointer("/properties").and_then(|all| all.get(parameter.as_str())).is_some();
    if taken {
        return Err(format!(
            "its schema has a parameter `{parameter}`, where it is to find its state; rename the parameter, choose \
             another name with `state_parameter_name`, or turn `state_injection` off"
        ));
    }
    Ok(())
}
