//! What holds for one tool, and making the tool of it.
//!
//! In: what is written. Out: a plan that can be compared with another, or what is wrong, each at its key; and of a plan a tool. What
//! does the work is found in `source`, one file below for each sort. Whether the tools it waits for are there is not asked here.

pub(super) mod auth;
mod calls;
mod command;
mod rest;
mod source;

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value};
use toolhub_core::{ManagerType, Policy, StateCleanup, ToolBuilder, schema::Schema};

use self::source::Source;
use super::{
    Diagnostics, KeyPath, ToolFactory,
    raw::{Annotations, Cleanup, DependsOn, Keeper, ToolConfig, ToolState},
};

/// What holds for one tool: what is written, with its secrets fetched. Two that are equal make the same tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolPlan {
    source: Source,
    description: Option<String>,
    parameters: Option<Value>,
    depends_on: Vec<DependencyGroup>,
    annotations: Annotations,
    category: Option<String>,
    tags: Vec<String>,
    version: Option<String>,
    metadata: BTreeMap<String, Value>,
    state: ToolState,
    policy: Policy,
}

/// Tools that must have succeeded before.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DependencyGroup {
    mode: DependencyMode,
    tools: Vec<String>,
    within: Option<Duration>,
}

/// How the tools of a group are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DependencyMode {
    All,
    Any,
    Sequence,
}

/// Works out what holds; `None` when nobody can tell what the tool does. `at` is where it is written, `name` what the tool is called.
pub(super) fn plan(
    name: &str,
    said: &ToolConfig,
    at: &KeyPath,
    factory: &ToolFactory,
    desk: &mut Diagnostics<'_>,
) -> Option<ToolPlan> {
    let source = source::find(name, said, at, factory, desk);
    if source.as_ref().is_some_and(|source| !source.is_stateful()) && desk.is_set(&at.key("state")) {
        let message = "the tool remembers nothing, so there is nothing to say about its state";
        desk.report(&at.key("state"), message, "remove `state`");
    }
    let is_command = matches!(source, Some(Source::Command(_)));
    for key in ["inject", "parameter_name"] {
        let path = at.key("state").key(key);
        if source.is_some() && !is_command && desk.is_set(&path) {
            desk.report(&path, format!("`{path}` is for a `command`"), format!("remove `{key}`"));
        }
    }
    let by_itself = source.as_ref().is_some_and(Source::is_read_only);
    if said.calls.cache.is_some() && source.is_some() && !said.annotations.read_only.unwrap_or(by_itself) {
        let help = "remove `cache`: an answer given again is an effect that did not happen";
        desk.report(&at.key("cache"), "only the answers of read-only tools can be kept", help);
    }
    let parameters = said.parameters.clone().map(|schema| Value::Object(schema.into_iter().collect::<Map<_, _>>()));
    // Those of a function are laid over its own, and only then are they whole.
    if let (Some(Source::Rest(_) | Source::Command(_)), Some(schema)) = (&source, &parameters)
        && let Err(error) = Schema::compile(schema.clone())
    {
        let help = "write a JSON Schema of an object, with a property for each argument";
        desk.report(&at.key("parameters"), format!("`parameters` cannot be used: {error}"), help);
    }
    let depends_on = dependency_groups(said.depends_on.as_ref(), at, desk);
    let policy = said.calls.policy(at, desk);
    Some(ToolPlan {
        source: source?,
        description: said.description.clone(),
        parameters,
        depends_on,
        annotations: said.annotations.clone(),
        category: said.category.clone(),
        tags: said.tags.clone(),
        version: said.version.clone(),
        metadata: said.metadata.clone(),
        state: said.state.clone(),
        policy,
    })
}

fn dependency_groups(said: Option<&DependsOn>, at: &KeyPath, desk: &mut Diagnostics<'_>) -> Vec<DependencyGroup> {
    match said {
        None => Vec::new(),
        Some(DependsOn::Names(tools)) => {
            vec![DependencyGroup { mode: DependencyMode::All, tools: tools.clone(), within: None }]
        }
        Some(DependsOn::Groups(groups)) => {
            let all = [
                (DependencyMode::All, &groups.all),
                (DependencyMode::Any, &groups.any),
                (DependencyMode::Sequence, &groups.sequence),
            ];
            let within = groups.within.map(|time| time.0);
            let named = all
                .into_iter()
                .filter_map(|(how, tools)| Some(DependencyGroup { mode: how, tools: tools.clone()?, within }));
            let found: Vec<DependencyGroup> = named.collect();
            if found.is_empty() {
                let help = "name tools: depends_on = { any = [\"a\", \"b\"] }, or all, or sequence";
                desk.report(&at.key("depends_on"), "`depends_on` names no tools", help);
            }
            found
        }
    }
}

impl ToolPlan {
    /// Hosts that a request may reach though they are not of the open internet.
    pub fn allow_hosts(&mut self, hosts: &[String]) {
        if let Source::Rest(rest) = &mut self.source {
            rest.allow_hosts(hosts);
        }
    }

    /// A tool in the making. `None` where its function is none of the factory's, which no plan of the same factory says.
    pub(super) fn tool(&self, name: &str, factory: &ToolFactory) -> Option<ToolBuilder> {
        let mut tool = match &self.source {
            Source::Function(function) => factory.build_function(&function.name, name)?,
            Source::Command(command) => command.tool(name, factory.command_guard()),
            Source::Rest(rest) => {
                let parameters = self.parameters.clone().unwrap_or_else(|| rest.parameters());
                rest.request().tool_with(name, parameters)
            }
        };
        let said = &self.annotations;
        tool = tool.annotations(|own| {
            let Annotations { title, read_only, destructive, idempotent, open_world } = said;
            own.title = title.clone().or(own.title.take());
            own.read_only = read_only.unwrap_or(own.read_only);
            // What changes nothing destroys nothing and may be repeated, unless somebody says so.
            let harmless = *read_only == Some(true);
            own.destructive = destructive.unwrap_or(own.destructive && !harmless);
            own.idempotent = idempotent.unwrap_or(own.idempotent || harmless);
            own.open_world = open_world.unwrap_or(own.open_world);
        });
        tool = tool.policy(|own| *own = merge_policy(own, &self.policy));
        if let Some(text) = &self.description {
            tool = tool.description(text.as_str());
        }
        if let Some(schema) = self.parameters.as_ref().filter(|_| !matches!(self.source, Source::Rest(_))) {
            tool = tool.parameters(schema.clone());
        }
        for DependencyGroup { mode: how, tools, within } in &self.depends_on {
            let names = tools.iter().map(String::as_str);
            tool = match how {
                DependencyMode::All => tool.after_all(names),
                DependencyMode::Any => tool.after_any(names),
                DependencyMode::Sequence => tool.after_sequence(names),
            };
            if let Some(time) = within {
                tool = tool.within(*time);
            }
        }
        if let Some(category) = &self.category {
            tool = tool.category(category.as_str());
        }
        if let Some(version) = &self.version {
            tool = tool.version(version.as_str());
        }
        tool = self.tags.iter().fold(tool, |tool, tag| tool.tag(tag.as_str()));
        tool = self.metadata.iter().fold(tool, |tool, (name, value)| tool.metadata(name.as_str(), value.clone()));
        Some(self.with_state(tool))
    }

    fn with_state(&self, mut tool: ToolBuilder) -> ToolBuilder {
        let said = &self.state;
        if let Some(keeper) = said.manager_type {
            tool = tool.manager_type(match keeper {
                Keeper::Memory => ManagerType::Memory,
                Keeper::Persistent => ManagerType::Persistent,
            });
        }
        if let Some(cleanup) = said.cleanup {
            tool = tool.state_cleanup(match cleanup {
                Cleanup::Never => StateCleanup::Never,
                Cleanup::AfterCall => StateCleanup::AfterCall,
                Cleanup::ThreadEnd => StateCleanup::ThreadEnd,
            });
        }
        if let Some(conflict) = said.conflict_resolution {
            tool = tool.on_conflict(conflict.into());
        }
        if let Some(inject) = said.inject {
            tool = tool.state_injection(inject);
        }
        if let Some(name) = &said.parameter_name {
            tool = tool.state_parameter_name(name.as_str());
        }
        if said.rerunnable == Some(true) { tool.rerunnable() } else { tool }
    }
}

/// What the owner says weighs more than what the function says.
fn merge_policy(own: &Policy, said: &Policy) -> Policy {
    let said = said.clone();
    Policy {
        timeout: said.timeout.or(own.timeout),
        attempt_timeout: said.attempt_timeout.or(own.attempt_timeout),
        idle_timeout: said.idle_timeout.or(own.idle_timeout),
        text_limit: said.text_limit.or(own.text_limit),
        output_limit: said.output_limit.or(own.output_limit),
        retry: said.retry.or_else(|| own.retry.clone()),
        rate_limits: said.rate_limits.or_else(|| own.rate_limits.clone()),
        max_concurrency: said.max_concurrency.or(own.max_concurrency),
        queue_timeout: said.queue_timeout.or(own.queue_timeout),
        cache: said.cache.or(own.cache),
        parallel_safe: said.parallel_safe.or(own.parallel_safe),
        confirm: said.confirm.or(own.confirm),
        approval_timeout: said.approval_timeout.or(own.approval_timeout),
    }
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
