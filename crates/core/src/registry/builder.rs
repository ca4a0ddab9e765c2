//! `ToolBuilder`: combines a tool's handler, its inferred schema and the settings of its author.
//!
//! In: settings in any order. Out: a `Tool`, or a `RegistryError`. Nothing is checked before `build`.

mod policy;
mod state;

use std::{any::Any, collections::HashMap, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde_json::{Value, json};
use smol_str::SmolStr;

use super::{RegistryError, reserved_names};
use crate::{
    execution::{Executor, Tool},
    hooks::Hook,
    registration::{InstanceGroup, Registration},
    scheduler::Scheduler,
    services::Services,
};
use toolhub_schema::schema::{self, Schema};
use toolhub_state::StateSettings;
use toolhub_types::{
    digest,
    policy::{Gate, Glob, Limits, Policy},
    tool::{Annotations, Definition, DependencyGroup, DependsOn, Kind, Metadata, NameError, Origin, ToolName},
};

/// Builds a tool. Start with [`tool`](crate::tool()), [`stateful`](crate::stateful), [`blocking`](crate::blocking()),
/// [`instance`](crate::instance) or, for a kind of your own, with [`ToolBuilder::new`].
#[must_use = "a tool does nothing until it is given to a hub"]
pub struct ToolBuilder {
    name: SmolStr,
    kind: Kind,
    description: Option<String>,
    inferred_schema: Option<Value>,
    explicit_schema: Option<Value>,
    compiled_schema: Option<Schema>,
    output_schema: Option<OutputSchema>,
    annotations: Annotations,
    metadata: Metadata,
    depends_on: Vec<DependencySpec>,
    origin: Option<Origin>,
    config: Value,
    implementation: Option<String>,
    policy: Policy,
    states: Vec<SmolStr>,
    state: StateSettings,
    rerun_interrupted: bool,
    disabled: Option<Box<str>>,
    pending_approval: Option<Box<str>>,
    unlisted: bool,
    executor: Option<Arc<dyn Executor>>,
    instance_group: Option<InstanceGroup>,
    /// The source that registers the tool instead; its type is known to `hub::sources`.
    own_source: Option<Arc<dyn Any + Send + Sync>>,
}

/// The schema of the output; `build` checks one that is not compiled.
enum OutputSchema {
    Unchecked(Value),
    Compiled(Schema),
}

/// A dependency with unchecked names; `build` checks them.
struct DependencySpec {
    names: Vec<SmolStr>,
    within: Option<Duration>,
    group: fn(Vec<ToolName>) -> DependencyGroup,
}

impl ToolBuilder {
    /// Starts a tool of any kind. Without an [`executor`](Self::executor) of its own, the hub's executor for the kind runs it.
    pub fn new(name: impl Into<SmolStr>, kind: impl Into<Kind>) -> Self {
        Self {
            name: name.into(),
            kind: kind.into(),
            description: None,
            inferred_schema: None,
            explicit_schema: None,
            compiled_schema: None,
            output_schema: None,
            annotations: Annotations::default(),
            metadata: Metadata::default(),
            depends_on: Vec::new(),
            origin: None,
            config: Value::Null,
            implementation: None,
            policy: Policy::default(),
            states: Vec::new(),
            state: StateSettings::default(),
            rerun_interrupted: false,
            disabled: None,
            pending_approval: None,
            unlisted: false,
            executor: None,
            instance_group: None,
            own_source: None,
        }
    }

    /// What the tool does, for the model. Default: the doc comment of the arguments' type.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// A JSON Schema of the arguments, merged over the inferred one. It may add constraints, but must not contradict the
    /// function's type. The schema of an imported tool is replaced.
    pub fn parameters(mut self, schema: Value) -> Self {
        self.explicit_schema = Some(schema);
        self.compiled_schema = None;
        self
    }

    /// Infers the output schema from a type.
    pub fn output<T: JsonSchema>(self) -> Self {
        self.output_schema(schema::infer::<T>())
    }

    /// A JSON Schema of the output. Clients are told that outputs fit it; one that does not is still returned, see
    /// [`Tool::fits`].
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(OutputSchema::Unchecked(schema));
        self
    }

    /// The schemas of an imported tool that are compiled already; nothing is inferred then.
    #[doc(hidden)]
    pub fn compiled_schemas(mut self, parameters: Schema, output: Option<Schema>) -> Self {
        self.compiled_schema = Some(parameters);
        self.output_schema = output.map(OutputSchema::Compiled);
        self
    }

    /// The tool changes nothing: it may be repeated, run concurrently with others and in the caller's task.
    pub fn read_only(mut self) -> Self {
        self.annotations.read_only = true;
        self.annotations.destructive = false;
        self.annotations.idempotent = true;
        self
    }

    /// Calling it twice with the same arguments does no more than calling it once.
    pub fn idempotent(mut self) -> Self {
        self.annotations.idempotent = true;
        self
    }

    /// A call whose process died before it ended is rerun after a restart, at most twice, instead of being closed as
    /// `interrupted`. For idempotent tools.
    pub fn rerun_interrupted(mut self) -> Self {
        self.rerun_interrupted = true;
        self
    }

    /// Registers the tool as disabled: it is never offered, and its calls are refused with `tool_unavailable`.
    pub fn disabled(mut self, why: impl Into<String>) -> Self {
        self.disabled = Some(why.into().into());
        self
    }

    /// Registers the tool with a definition that waits for the approval of a person: it is not offered, and its calls are refused
    /// with `tool_maintenance` and this text, which says how to review it.
    pub fn pending_approval(mut self, how_to_review: impl Into<String>) -> Self {
        self.pending_approval = Some(how_to_review.into().into());
        self
    }

    /// Keeps the tool out of lists, toolsets, offers, exports and suggestions. It can still be called by its name, and its calls pass
    /// the pipeline like any other.
    pub fn unlisted(mut self) -> Self {
        self.unlisted = true;
        self
    }

    /// The tool only adds; it destroys nothing.
    pub fn additive(mut self) -> Self {
        self.annotations.destructive = false;
        self
    }

    /// The tool reaches nothing outside this system.
    pub fn closed_world(mut self) -> Self {
        self.annotations.open_world = false;
        self
    }

    /// A display name.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.annotations.title = Some(title.into());
        self
    }

    /// Changes the annotations in place.
    pub fn annotations(mut self, change: impl FnOnce(&mut Annotations)) -> Self {
        change(&mut self.annotations);
        self
    }

    /// Adds a tag, by which tools can be listed.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.metadata.tags.push(tag.into());
        self
    }

    /// The category of the tool.
    pub fn category(mut self, category: impl Into<String>) -> Self {
        self.metadata.category = Some(category.into());
        self
    }

    /// The tool's own version.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.metadata.version = Some(version.into());
        self
    }

    /// Adds a free metadata field.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.metadata.extra.insert(name.into(), value.into());
        self
    }

    /// Can be used in a thread once this tool has succeeded there.
    pub fn after(self, tool: impl Into<SmolStr>) -> Self {
        self.after_all([tool])
    }

    /// Can be used in a thread once each of these has succeeded there.
    pub fn after_all<N: Into<SmolStr>>(self, tools: impl IntoIterator<Item = N>) -> Self {
        self.add_dependency(tools, |tools| DependencyGroup::All { tools, within: None })
    }

    /// Can be used in a thread once one of these has succeeded there.
    pub fn after_any<N: Into<SmolStr>>(self, tools: impl IntoIterator<Item = N>) -> Self {
        self.add_dependency(tools, |tools| DependencyGroup::Any { tools, within: None })
    }

    /// Can be used in a thread once each of these has succeeded there, in this order.
    pub fn after_sequence<N: Into<SmolStr>>(self, tools: impl IntoIterator<Item = N>) -> Self {
        self.add_dependency(tools, |tools| DependencyGroup::Sequence { tools, within: None })
    }

    /// Maximum age of the successes that the last `after…` requires.
    pub fn within(mut self, time: Duration) -> Self {
        match self.depends_on.last_mut() {
            Some(last) => last.within = Some(time),
            // There is no dependency to limit: add an empty one, which `build` refuses.
            None => return self.after_all(Vec::<SmolStr>::new()),
        }
        self
    }

    /// The kind-specific settings, for its executor.
    pub fn config(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    /// What executes the tool, as far as its definition does not show it: the arguments of a program, the templates of a
    /// request. Approvals, grants and cached results of a tool are void once this changes. Only a digest is kept.
    pub fn implementation(mut self, details: &Value) -> Self {
        self.implementation = Some(digest::hash_json(details));
        self
    }

    /// The source of an imported tool, and its name there.
    pub fn origin(mut self, source: impl Into<String>, name: impl Into<String>) -> Self {
        self.origin = Some(Origin { source: source.into(), name: name.into() });
        self
    }

    /// The executor that runs it.
    pub fn executor(mut self, executor: Arc<dyn Executor>) -> Self {
        self.executor = Some(executor);
        self
    }

    /// Shares its instances with the other tools of a group. Default: it has its own.
    pub fn instance_group(mut self, group: &InstanceGroup) -> Self {
        self.instance_group = Some(group.clone());
        self
    }

    pub(crate) fn own_source(mut self, source: Arc<dyn Any + Send + Sync>) -> Self {
        self.own_source = Some(source);
        self
    }

    pub(crate) fn take_own_source(&mut self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.own_source.take()
    }

    /// Checks a tool that its own source registers: its name, and that it has no settings, which would be lost.
    pub(crate) fn check_sourced(self) -> Result<ToolName, RegistryError> {
        let name = ToolName::new(self.name)?;
        reserved_names::check(&name)?;
        let has_settings = self.description.is_some()
            || self.explicit_schema.is_some()
            || !self.depends_on.is_empty()
            || self.annotations != Annotations::default()
            || self.metadata != Metadata::default()
            || self.policy != Policy::default();
        if has_settings {
            let reason = "its server defines it; change it in the closure that the server is given".into();
            return Err(RegistryError::Refused { tool: name, reason });
        }
        Ok(name)
    }

    pub(crate) fn inferred_schema(mut self, schema: Value) -> Self {
        self.inferred_schema = Some(schema);
        self
    }

    pub(crate) fn states<N: AsRef<str>>(mut self, names: &[N]) -> Self {
        self.states.extend(names.iter().map(SmolStr::new));
        self
    }

    pub(crate) fn name(&self) -> Result<ToolName, NameError> {
        ToolName::new(self.name.clone())
    }

    /// The kind of the tool.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    fn add_dependency<N: Into<SmolStr>>(
        mut self,
        tools: impl IntoIterator<Item = N>,
        group: fn(Vec<ToolName>) -> DependencyGroup,
    ) -> Self {
        self.depends_on.push(DependencySpec {
            names: tools.into_iter().map(Into::into).collect(),
            within: None,
            group,
        });
        self
    }

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

/// What `ToolBuilder::build` needs from the hub.
pub(crate) struct BuildContext<'a> {
    pub(crate) executors: &'a HashMap<Kind, Arc<dyn Executor>>,
    pub(crate) hooks: &'a [(Glob, Arc<dyn Hook>)],
    pub(crate) scheduler: &'a Scheduler,
    pub(crate) services: &'a Arc<Services>,
}

impl DependencySpec {
    fn into_group(self) -> Result<DependencyGroup, NameError> {
        let names = self.names.into_iter().map(ToolName::new).collect::<Result<_, _>>()?;
        let group = (self.group)(names);
        Ok(match self.within {
            Some(limit) => group.with_max_age(limit),
            None => group,
        })
    }
}
