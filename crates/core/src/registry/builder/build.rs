//! Builds a tool from its settings, and checks them.

use std::{collections::HashMap, sync::Arc};

use serde_json::json;

use super::{DependencySpec, OutputSchema, ToolBuilder, state};
use crate::{
    execution::{Executor, Tool},
    hooks::Hook,
    registration::Registration,
    registry::{RegistryError, reserved_names},
    scheduler::Scheduler,
    services::Services,
};
use toolhub_schema::schema::{self, Schema};
use toolhub_state::StateSettings;
use toolhub_types::{
    policy::{Gate, Glob, Limits, Policy},
    tool::{Definition, DependsOn, Kind, ToolName},
};

/// What `ToolBuilder::build` needs from the hub.
pub(crate) struct BuildContext<'a> {
    pub(crate) executors: &'a HashMap<Kind, Arc<dyn Executor>>,
    pub(crate) hooks: &'a [(Glob, Arc<dyn Hook>)],
    pub(crate) scheduler: &'a Scheduler,
    pub(crate) services: &'a Arc<Services>,
}

impl ToolBuilder {
    /// Builds the tool, with its own executor or the one for its kind.
    pub(crate) fn build(self, context: &BuildContext<'_>) -> Result<Tool, RegistryError> {
        let name = ToolName::new(self.name)?;
        reserved_names::check(&name)?;
        let executor = self.executor.or_else(|| context.executors.get(&self.kind).cloned());
        let Some(executor) = executor else {
            return Err(RegistryError::NoExecutor { tool: name, kind: self.kind });
        };
        let state = match state::rules(self.state, &self.states).and_then(|rules| {
            context.services.state.store_router().check(&rules)?;
            Ok(rules)
        }) {
            Ok(state) => state,
            Err(reason) => return Err(RegistryError::Refused { tool: name, reason }),
        };
        if self.depends_on.iter().any(|group| group.names.is_empty()) {
            let reason = "it depends on an empty list of tools, which could never be satisfied".into();
            return Err(RegistryError::Refused { tool: name, reason });
        }
        let invalid = |source| RegistryError::Parameters { tool: name.clone(), source };
        let mut from_type = None;
        let schema = match (self.compiled_schema, self.inferred_schema, self.explicit_schema) {
            (Some(compiled), ..) => compiled,
            (None, inferred, explicit) => {
                let mut parameters = match (inferred, explicit) {
                    (Some(inferred), Some(explicit)) => schema::merge(&inferred, &explicit).map_err(invalid)?,
                    (Some(only), None) | (None, Some(only)) => only,
                    (None, None) => json!({"type": "object"}),
                };
                // The doc comment of the arguments' type describes the tool; repeated in the schema it would only cost tokens.
                from_type = parameters.as_object_mut().and_then(|root| root.remove("description"));
                Schema::compile(parameters).map_err(invalid)?
            }
        };
        let description = self.description.or_else(|| from_type.and_then(|text| text.as_str().map(String::from)));
        let invalid = |source| RegistryError::Output { tool: name.clone(), source };
        let output = match self.output_schema {
            None => None,
            Some(OutputSchema::Compiled(schema)) => Some(schema),
            Some(OutputSchema::Unchecked(schema)) => Some(Schema::compile_any(schema).map_err(invalid)?),
        };
        let depends_on = self.depends_on.into_iter().map(DependencySpec::into_group).collect::<Result<_, _>>()?;
        let definition = Definition {
            id: Definition::derive_id(&self.kind, &name, self.origin.as_ref()),
            kind: self.kind,
            description: description.unwrap_or_default(),
            parameters: schema.value().clone(),
            output_schema: output.as_ref().map(|schema| schema.value().clone()),
            annotations: self.annotations,
            metadata: self.metadata,
            depends_on: DependsOn(depends_on),
            origin: self.origin,
            config: self.config,
            name,
        };
        if let Err(reason) = executor.validate_definition(&definition) {
            return Err(RegistryError::Refused { tool: definition.name, reason });
        }
        if self.rerun_interrupted && !definition.annotations.idempotent {
            let reason = "its interrupted calls cannot be rerun: it is not `idempotent`".into();
            return Err(RegistryError::Refused { tool: definition.name, reason });
        }
        let stateful = executor.needs_thread();
        if let Err(reason) = check(&self.policy, &definition, &state, stateful) {
            return Err(RegistryError::Refused { tool: definition.name, reason });
        }
        let hooks = context.hooks.iter().filter(|(tools, _)| tools.matches(&definition.name));
        Ok(Tool {
            registration: Registration::new(&definition.name, self.instance_group),
            // The registry applies its policies when it adds the tool.
            limits: Limits::default(),
            gate: Gate::default(),
            runtime: context.scheduler.tool_runtime(&definition.name),
            hooks: hooks.map(|(_, hook)| hook.clone()).collect(),
            fingerprint: definition.fingerprint(self.implementation.as_deref()),
            needs_thread: stateful || !definition.depends_on.is_empty(),
            services: context.services.clone(),
            connection: state::connection_name(&state, &definition),
            state,
            policy: self.policy,
            rerun_interrupted: self.rerun_interrupted,
            disabled: self.disabled,
            missing_function: self.missing_function,
            pending_approval: self.pending_approval,
            unlisted: self.unlisted,
            link: None,
            source: None,
            registered_at: None,
            definition,
            schema,
            output,
            executor,
            stateful,
        })
    }
}

/// Checks the policy and the state rules against the definition.
fn check(policy: &Policy, definition: &Definition, state: &StateSettings, stateful: bool) -> Result<(), String> {
    policy.check()?;
    state::check(state, definition)?;
    let only_instances = stateful && state.names.is_empty();
    if policy.cache.is_some() && !definition.annotations.read_only {
        return Err("its results cannot be cached: it is not `read_only`".into());
    }
    if policy.cache.is_some() && only_instances {
        return Err("its results cannot be cached: an instance may return something else at any time".into());
    }
    Ok(())
}
