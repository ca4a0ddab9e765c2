//! `ToolBuilder`: combines a tool's handler, its inferred schema and the settings of its author.
//!
//! In: settings in any order. Out: a `Tool`, or a `RegistryError`. Nothing is checked before `build`.

mod annotations;
mod build;
mod dependencies;
mod missing_function;
mod policy;
mod state;

use std::{any::Any, sync::Arc};

use schemars::JsonSchema;
use serde_json::Value;
use smol_str::SmolStr;

pub(crate) use build::BuildContext;
use dependencies::DependencySpec;

use super::{RegistryError, reserved_names};
use crate::{execution::Executor, registration::InstanceGroup};
use missing_function::MissingFunction;
use toolhub_schema::schema::{self, Schema};
use toolhub_state::StateSettings;
use toolhub_types::{
    digest,
    policy::Policy,
    tool::{Annotations, Kind, Metadata, NameError, Origin, ToolName},
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
    missing_function: Option<Box<str>>,
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
            missing_function: None,
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
    /// [`Tool::fits`](crate::Tool::fits).
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

    /// A call whose process died before it ended is rerun after a restart, at most twice, instead of being closed as
    /// `interrupted`. For idempotent tools.
    pub fn rerun_interrupted(mut self) -> Self {
        self.rerun_interrupted = true;
        self
    }

    /// Registers the tool without an implementation: it is never offered, and its calls are refused with `tool_unavailable` and a
    /// reason that names `function`, the function of an older program that implemented it.
    pub fn unimplemented(mut self, function: impl Into<String>) -> Self {
        self.missing_function = Some(function.into().into());
        self.executor = Some(Arc::new(MissingFunction));
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
}
