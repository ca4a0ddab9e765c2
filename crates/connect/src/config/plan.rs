//! Resolves and checks the config of one tool, and builds the tool from the result.
//!
//! In: a `ToolConfig`. Out: a plan that can be compared with another one, or problems, each at its key; and from a plan, a tool.
//! `source` determines what executes the tool; each source has its own file below. Whether the dependencies exist is not checked here.

pub(super) mod auth;
mod calls;
mod command;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(feature = "mcp")]
mod mcp_tool;
mod overrides;
mod rest;
mod source;

use serde_json::{Map, Value, json};
use toolhub_core::{StateCleanup, ToolBuilder, schema::Schema};

#[cfg(feature = "mcp")]
pub use self::mcp::McpServerPlan;
use self::{overrides::Overrides, source::Source};
use super::{
    Diagnostics, KeyPath, Problem, Size, ToolFactory,
    raw::{Cleanup, ToolConfig, ToolState},
};

/// The resolved config of one tool, with its secrets fetched. Equal plans build equal tools.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolPlan {
    source: Source,
    parameters: Option<Value>,
    overrides: Overrides,
    state: ToolState,
}

/// Resolves the config at `at` of the tool `name`. `None` if the source of the tool cannot be determined.
pub(super) fn plan(
    name: &str,
    config: &ToolConfig,
    at: &KeyPath,
    factory: &ToolFactory,
    diagnostics: &mut Diagnostics<'_>,
) -> Option<ToolPlan> {
    let source = source::find(name, config, at, factory, diagnostics);
    if source.as_ref().is_some_and(|source| !source.is_stateful()) && diagnostics.is_set(&at.key("state")) {
        let message = "the tool is stateless, so `state` does not apply";
        diagnostics.report(&at.key("state"), message, "remove `state`");
    }
    // A missing function may get a `command`.
    let is_command = matches!(source, Some(Source::Command(_) | Source::Missing(_)));
    for key in ["inject", "parameter_name"] {
        let path = at.key("state").key(key);
        if source.is_some() && !is_command && diagnostics.is_set(&path) {
            diagnostics.report(&path, format!("`{path}` applies only to a `command`"), format!("remove `{key}`"));
        }
    }
    let default_read_only = source.as_ref().is_some_and(Source::is_read_only);
    if config.calls.cache.is_some() && source.is_some() && !config.annotations.read_only.unwrap_or(default_read_only) {
        let help = "remove `cache`: a cached result would skip the effect of the call";
        diagnostics.report(&at.key("cache"), "only results of read-only tools can be cached", help);
    }
    let parameters = config.parameters.clone().map(|schema| Value::Object(schema.into_iter().collect::<Map<_, _>>()));
    // The parameters of a builtin are merged with its own schema and can be checked only after that.
    if let (Some(source), Some(schema)) = (&source, &parameters)
        && !matches!(source, Source::Function(_))
        && let Err(error) = Schema::compile(schema.clone())
    {
        let help = "write a JSON Schema of type object, with a property for each argument";
        diagnostics.report(&at.key("parameters"), format!("`parameters` is invalid: {error}"), help);
    }
    let overrides = Overrides {
        description: config.description.clone(),
        depends_on: overrides::dependency_groups(config.depends_on.as_ref(), at, diagnostics),
        annotations: config.annotations.clone(),
        category: config.category.clone(),
        tags: config.tags.clone(),
        version: config.version.clone(),
        metadata: config.metadata.clone(),
        policy: config.calls.policy(at, diagnostics),
    };
    Some(ToolPlan { source: source?, parameters, overrides, state: config.state.clone() })
}

impl ToolPlan {
    /// What makes every call of the tool at `at` fail on this machine: a program or script that does not exist, or an address that
    /// requests may not reach. It may change while the tool is registered, so a hub accepts such a tool.
    #[must_use]
    pub fn obstacles(&self, at: &KeyPath) -> Vec<Problem> {
        match &self.source {
            Source::Function(_) | Source::Missing(_) => Vec::new(),
            Source::Rest(rest) => rest.obstacles(at),
            Source::Command(command) => command.obstacles(at),
            #[cfg(feature = "mcp")]
            Source::Mcp(tool) => tool.obstacles(at),
        }
    }

    /// What a model would miss: a description, or the arguments of a program.
    #[must_use]
    pub fn missing_keys(&self) -> Vec<&'static str> {
        let has_description = self.overrides.description.as_ref().is_some_and(|text| !text.trim().is_empty());
        let is_command = matches!(self.source, Source::Command(_));
        let describes_itself = !is_command && !matches!(self.source, Source::Rest(_) | Source::Missing(_));
        let description = (!describes_itself && !has_description).then_some("description");
        let parameters = (is_command && self.parameters.is_none()).then_some("parameters");
        description.into_iter().chain(parameters).collect()
    }

    /// The arguments that its request uses and its `parameters` do not have, so that a model cannot give them.
    #[must_use]
    pub fn undeclared_arguments(&self) -> Vec<String> {
        let (Source::Rest(rest), Some(parameters)) = (&self.source, &self.parameters) else { return Vec::new() };
        // Other keywords may declare more properties.
        let composed = ["$ref", "allOf", "anyOf", "oneOf", "patternProperties"];
        match parameters.get("properties").and_then(Value::as_object) {
            Some(declared) if composed.iter().all(|keyword| parameters.get(keyword).is_none()) => {
                rest.request().arguments().into_iter().filter(|name| !declared.contains_key(name)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Exempts hosts from the address guard, which refuses private and local addresses.
    pub fn allow_hosts(&mut self, hosts: &[String]) {
        match &mut self.source {
            Source::Rest(rest) => rest.allow_hosts(hosts),
            #[cfg(feature = "mcp")]
            Source::Mcp(tool) => tool.allow_hosts(hosts),
            Source::Function(_) | Source::Command(_) | Source::Missing(_) => {}
        }
    }

    /// Whether it has an MCP server of its own, which has the name of the tool.
    #[cfg(feature = "mcp")]
    #[must_use]
    pub fn has_own_mcp_server(&self) -> bool {
        matches!(&self.source, Source::Mcp(tool) if tool.server().is_none())
    }

    #[cfg(feature = "mcp")]
    fn named_tool_settings(&self) -> Option<crate::mcp::NamedToolSettings> {
        match &self.source {
            Source::Mcp(tool) => Some(tool.settings(self)),
            _ => None,
        }
    }

    /// The MCP server whose tool it is, by name; such a tool is added to the plan of the server instead of being built.
    #[cfg(feature = "mcp")]
    #[must_use]
    pub fn mcp_server(&self) -> Option<&str> {
        match &self.source {
            Source::Mcp(tool) => tool.server(),
            _ => None,
        }
    }

    /// Builds the tool. `None` if its function is unknown to the factory, which a plan of the same factory rules out, or if it
    /// belongs to the plan of an MCP server.
    pub(super) fn tool(&self, name: &str, factory: &ToolFactory) -> Option<ToolBuilder> {
        #[cfg(feature = "mcp")]
        if let Source::Mcp(tool) = &self.source {
            return tool.single_tool(name, self, factory.is_offline());
        }
        let mut tool = match &self.source {
            Source::Function(function) => {
                factory.build_function(&function.name, name)?.implementation(&json!({"builtin": function.name}))
            }
            Source::Command(command) => command.tool(name, factory.command_guard()),
            Source::Rest(rest) => {
                let parameters = self.parameters.clone().unwrap_or_else(|| rest.parameters());
                rest.request().tool_with(name, parameters)
            }
            Source::Missing(missing) => missing.tool(name),
            #[cfg(feature = "mcp")]
            Source::Mcp(_) => return None,
        };
        if let Some(schema) = self.parameters.as_ref().filter(|_| !matches!(self.source, Source::Rest(_))) {
            tool = tool.parameters(schema.clone());
        }
        Some(self.with_state(self.overrides.apply(tool)))
    }

    fn with_state(&self, mut tool: ToolBuilder) -> ToolBuilder {
        let state = &self.state;
        if let Some(manager_type) = state.manager_type {
            tool = tool.manager_type(manager_type.into());
        }
        if let Some(cleanup) = state.cleanup {
            tool = tool.state_cleanup(match cleanup {
                Cleanup::Never => StateCleanup::Never,
                Cleanup::AfterCall => StateCleanup::AfterCall,
                Cleanup::ThreadEnd => StateCleanup::ThreadEnd,
            });
        }
        if let Some(conflict) = state.conflict_resolution {
            tool = tool.on_conflict(conflict.into());
        }
        if let Some(ttl) = state.ttl {
            tool = tool.state_ttl(ttl.0);
        }
        if let Some(Size(bytes)) = state.max_state_size {
            tool = tool.max_state_size(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        if let Some(versions) = state.max_versions {
            tool = tool.max_versions(usize::try_from(versions).unwrap_or(usize::MAX));
        }
        if let Some(entries) = state.max_history_size {
            tool = tool.max_history_size(usize::try_from(entries).unwrap_or(usize::MAX));
        }
        if let Some(auto_save) = state.auto_save {
            tool = tool.auto_save(auto_save);
        }
        if let Some(inject) = state.inject {
            tool = tool.state_injection(inject);
        }
        if let Some(name) = &state.parameter_name {
            tool = tool.state_parameter_name(name.as_str());
        }
        if state.rerunnable == Some(true) { tool.rerunnable() } else { tool }
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
