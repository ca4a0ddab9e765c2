//! What holds for `[tools.NAME]`, and making tools of it.

mod source;

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value};
use toolhub::{ManagerType, Policy, StateCleanup, ToolBuilder, ToolName};

use super::{
    super::{
        closest::closest,
        raw::{self, Annotations, Cleanup, Conflict, DependsOn, Keeper},
        tree::Path,
    },
    Desk,
    calls::policy,
    imports::Operation,
    state::conflict,
};
use crate::builtin;

pub(crate) use source::Source;
use source::source;

/// The tools that are enabled, by name.
pub(crate) type Tools = BTreeMap<String, Tool>;

/// One tool. Two that are equal need not be replaced by each other.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    pub(crate) source: Source,
    pub(crate) description: Option<String>,
    pub(crate) parameters: Option<Value>,
    pub(crate) depends_on: Vec<Group>,
    pub(crate) annotations: Annotations,
    pub(crate) category: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) version: Option<String>,
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) manager: Option<Keeper>,
    pub(crate) cleanup: Option<Cleanup>,
    pub(crate) conflict: Option<Conflict>,
    pub(crate) rerunnable: bool,
    /// Whether the state is among what a program is asked, and what it is called there.
    pub(crate) injection: (Option<bool>, Option<String>),
    pub(crate) policy: Policy,
}

/// Tools that must have succeeded before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) how: How,
    pub(crate) tools: Vec<String>,
    pub(crate) within: Option<Duration>,
}

/// How the tools of a group are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    All,
    Any,
    Sequence,
}

pub(super) fn resolve(said: &BTreeMap<String, raw::Tool>, imported: Vec<Operation>, desk: &mut Desk<'_>) -> Tools {
    let mut tools = Tools::new();
    for operation in imported {
        let name = operation.name().to_owned();
        if said.contains_key(&name) || tools.contains_key(&name) {
            let help = "give one of them another name, or the document another `prefix`";
            let message = format!("there are two tools named `{name}`, and one of them comes from a document");
            desk.wrong(&Path::of(["imports", "openapi"]), message, help);
            continue;
        }
        tools.insert(name, Tool::of(Source::Operation(Box::new(operation))));
    }
    for (name, tool) in said {
        let at = Path::of(["tools", name]);
        if let Err(error) = ToolName::new(name.as_str()) {
            desk.wrong(&at, error.to_string(), "rename the section: [tools.my_tool]");
        }
        let resolved = one(tool, &at, desk);
        if let Some(resolved) = resolved.filter(|_| tool.enabled) {
            tools.insert(name.clone(), resolved);
        }
    }
    for name in tools.keys() {
        dependencies(name, said, &tools, desk);
    }
    circle(&tools, desk);
    tools
}

fn one(said: &raw::Tool, at: &Path, desk: &mut Desk<'_>) -> Option<Tool> {
    let source = source(said, at, desk);
    if source.as_ref().is_some_and(|source| !source.is_stateful()) && desk.said(&at.key("state")) {
        let message = "the tool remembers nothing, so there is nothing to say about its state";
        desk.wrong(&at.key("state"), message, "remove `state`");
    }
    let is_command = matches!(source, Some(Source::Command(_)));
    for key in ["inject", "parameter_name"] {
        let path = at.key("state").key(key);
        if source.is_some() && !is_command && desk.said(&path) {
            desk.wrong(&path, format!("`{path}` is for a `command`"), format!("remove `{key}`"));
        }
    }
    let by_itself = source.as_ref().is_some_and(Source::is_read_only);
    if said.calls.cache.is_some() && source.is_some() && !said.annotations.read_only.unwrap_or(by_itself) {
        let help = "remove `cache`: an answer given again is an effect that did not happen";
        desk.wrong(&at.key("cache"), "only the answers of read-only tools can be kept", help);
    }
    let depends_on = groups(said.depends_on.as_ref(), at, desk);
    let policy = policy(&said.calls, at, desk);
    Some(Tool {
        description: said.description.clone(),
        parameters: said.parameters.clone().map(|schema| Value::Object(schema.into_iter().collect::<Map<_, _>>())),
        depends_on,
        annotations: said.annotations.clone(),
        category: said.category.clone(),
        tags: said.tags.clone(),
        version: said.version.clone(),
        metadata: said.metadata.clone(),
        manager: said.state.manager_type,
        cleanup: said.state.cleanup,
        conflict: said.state.conflict_resolution,
        rerunnable: said.state.rerunnable == Some(true),
        injection: (said.state.inject, said.state.parameter_name.clone()),
        policy,
        ..Tool::of(source?)
    })
}

fn groups(said: Option<&DependsOn>, at: &Path, desk: &mut Desk<'_>) -> Vec<Group> {
    match said {
        None => Vec::new(),
        Some(DependsOn::Names(tools)) => vec![Group { how: How::All, tools: tools.clone(), within: None }],
        Some(DependsOn::Groups(groups)) => {
            let all = [(How::All, &groups.all), (How::Any, &groups.any), (How::Sequence, &groups.sequence)];
            let within = groups.within.map(|time| time.0);
            let named = all.into_iter().filter_map(|(how, tools)| Some(Group { how, tools: tools.clone()?, within }));
            let found: Vec<Group> = named.collect();
            if found.is_empty() {
                let help = "name tools: depends_on = { any = [\"a\", \"b\"] }, or all, or sequence";
                desk.wrong(&at.key("depends_on"), "`depends_on` names no tools", help);
            }
            found
        }
    }
}

/// Where the names of a group stand.
fn place(at: &Path, group: &Group, index: usize, desk: &Desk<'_>) -> Path {
    let how = match group.how {
        How::All => "all",
        How::Any => "any",
        How::Sequence => "sequence",
    };
    let (list, table) = (at.key("depends_on").place(index), at.key("depends_on").key(how).place(index));
    if desk.said(&table) { table } else { list }
}

fn dependencies(name: &str, said: &BTreeMap<String, raw::Tool>, tools: &Tools, desk: &mut Desk<'_>) {
    let at = Path::of(["tools", name]);
    for group in &tools[name].depends_on {
        for (index, base) in group.tools.iter().enumerate() {
            let path = place(&at, group, index, desk);
            if said.contains_key(base) && !tools.contains_key(base) {
                let message = format!("`{name}` waits for `{base}`, which is not enabled");
                desk.wrong(&path, message, format!("enable [tools.{base}], or remove it here"));
            } else if !tools.contains_key(base) {
                let close = closest(base, tools.keys().map(String::as_str));
                let help =
                    close.map_or_else(|| format!("add [tools.{base}]"), |close| format!("did you mean {close:?}?"));
                desk.wrong(&path, format!("`{name}` waits for `{base}`, and there is no such tool"), help);
            }
        }
    }
}

/// Tools that wait for each other. One circle is named; the next is found when that is gone.
fn circle(tools: &Tools, desk: &mut Desk<'_>) {
    let bases =
        |name: &str| tools.get(name).into_iter().flat_map(|tool| &tool.depends_on).flat_map(|group| &group.tools);
    for start in tools.keys() {
        let (mut ahead, mut from) = (vec![start.as_str()], BTreeMap::<&str, &str>::new());
        while let Some(name) = ahead.pop() {
            for base in bases(name) {
                if base == start {
                    let mut names = vec![start.as_str()];
                    let mut at = name;
                    while at != start {
                        names.push(at);
                        at = from[at];
                    }
                    names.push(start);
                    names.reverse();
                    let message =
                        format!("these tools wait for each other, so none could ever run: {}", names.join(" → "));
                    return desk.wrong(
                        &Path::of(["tools", start, "depends_on"]),
                        message,
                        "remove one of the dependencies",
                    );
                }
                if tools.contains_key(base) && !from.contains_key(base.as_str()) {
                    from.insert(base, name);
                    ahead.push(base);
                }
            }
        }
    }
}

impl Tool {
    /// A tool of which nothing more is said.
    fn of(source: Source) -> Self {
        Self {
            source,
            description: None,
            parameters: None,
            depends_on: Vec::new(),
            annotations: Annotations::default(),
            category: None,
            tags: Vec::new(),
            version: None,
            metadata: BTreeMap::new(),
            manager: None,
            cleanup: None,
            conflict: None,
            rerunnable: false,
            injection: (None, None),
            policy: Policy::default(),
        }
    }

    /// Hosts that a request may reach though they are not of the open internet.
    pub(crate) fn allow_hosts(&mut self, hosts: &[String]) {
        if let Source::Rest(rest) = &mut self.source {
            rest.allow(hosts);
        }
    }

    /// A tool in the making. `None` where its builtin is not there, which a config that was resolved never says.
    pub(crate) fn builder(&self, name: &str) -> Option<ToolBuilder> {
        let mut tool = match &self.source {
            Source::Builtin(builtin) => builtin::find(builtin)?.tool(name),
            Source::Command(command) => command.tool(name),
            Source::Operation(operation) => operation.tool(),
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
        tool = tool.policy(|own| *own = laid_over(own, &self.policy));
        if let Some(text) = &self.description {
            tool = tool.description(text.as_str());
        }
        if let Some(schema) = self.parameters.as_ref().filter(|_| !matches!(self.source, Source::Rest(_))) {
            tool = tool.parameters(schema.clone());
        }
        for Group { how, tools, within } in &self.depends_on {
            let names = tools.iter().map(String::as_str);
            tool = match how {
                How::All => tool.after_all(names),
                How::Any => tool.after_any(names),
                How::Sequence => tool.after_sequence(names),
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
        if let Some(keeper) = self.manager {
            tool = tool.manager_type(match keeper {
                Keeper::Memory => ManagerType::Memory,
                Keeper::Persistent => ManagerType::Persistent,
            });
        }
        if let Some(cleanup) = self.cleanup {
            tool = tool.state_cleanup(match cleanup {
                Cleanup::Never => StateCleanup::Never,
                Cleanup::AfterCall => StateCleanup::AfterCall,
                Cleanup::ThreadEnd => StateCleanup::ThreadEnd,
            });
        }
        if let Some(said) = self.conflict {
            tool = tool.on_conflict(conflict(said));
        }
        let (inject, parameter) = &self.injection;
        if let Some(inject) = inject {
            tool = tool.state_injection(*inject);
        }
        if let Some(name) = parameter {
            tool = tool.state_parameter_name(name.as_str());
        }
        if self.rerunnable { tool.rerunnable() } else { tool }
    }
}

/// What the owner says weighs more than what the builtin says.
fn laid_over(own: &Policy, said: &Policy) -> Policy {
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
