//! Resolves `[tools.NAME]`: each tool by the library's rules, and the dependencies among all of them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::LazyLock,
};

use toolhub::{
    ToolBuilder, ToolName,
    config::{DependsOn, ToolFactory, ToolPlan},
};

use super::{
    super::{
        raw::{self, RawConfig},
        suggest::closest,
        tree::Path,
    },
    Diagnostics, GUARD,
    imports::Operation,
    mcp_servers,
};
use crate::builtin;

/// The tools as written, by name.
type RawTools = BTreeMap<String, raw::Tool>;

/// The enabled tools, by name.
pub(crate) type Tools = BTreeMap<String, Tool>;

/// A tool. A reload does not replace a tool by an equal one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tool {
    /// Defined by its own section.
    Configured(Box<ToolPlan>),
    /// Imported from a document.
    Operation(Box<Operation>),
}

/// Builds tools: it knows the bundled ones, and runs command tools under this binary as their guard.
static FACTORY: LazyLock<ToolFactory> = LazyLock::new(|| {
    let factory = builtin::ALL.iter().fold(ToolFactory::new().unbound_function_paths(), |factory, builtin| {
        factory.function(builtin.name, |name| builtin.tool(name))
    });
    match &*GUARD {
        Some(guard) => factory.guard(guard.clone()),
        None => factory,
    }
});

pub(super) fn resolve(
    config: &RawConfig,
    imported: Vec<Operation>,
    warnings: &mut Vec<String>,
    diagnostics: &mut Diagnostics<'_>,
) -> Tools {
    let (raw, mut tools) = (&config.tools, Tools::new());
    for operation in imported {
        let name = operation.name().to_owned();
        if raw.contains_key(&name) || tools.contains_key(&name) {
            let help = "rename one of them, or set another `prefix` for the document";
            let message = format!("there are two tools named `{name}`, one of them imported");
            diagnostics.report(&Path::of(["imports", "openapi"]), message, help);
            continue;
        }
        tools.insert(name, Tool::Operation(Box::new(operation)));
    }
    for (name, tool) in raw {
        let at = Path::of(["tools", name]);
        if let Err(error) = ToolName::new(name.as_str()) {
            diagnostics.report(&at, error.to_string(), "rename the section: [tools.my_tool]");
        }
        let plan = FACTORY.plan(name, &tool.config, &at, diagnostics);
        if let Some(plan) = plan.filter(|_| tool.enabled) {
            warnings.extend(plan.missing_keys().into_iter().map(|key| missing_key_warning(name, key)));
            warnings.extend(plan.undeclared_arguments().into_iter().map(|argument| {
                format!(
                    "[tools.{name}] uses {{{argument}}} in its request, but its `parameters` have no property `{argument}`, so a \
                     model cannot give it"
                )
            }));
            tools.insert(name.clone(), Tool::Configured(Box::new(plan)));
        }
    }
    // Also for tools with other problems, so that all are reported together.
    let known = KnownTools { raw, tools: &tools, servers: &config.mcp_servers };
    for name in raw.keys() {
        for (relative, base) in dependencies_of(name, raw) {
            known.check(name, base, &Path::of(["tools", name, "depends_on"]).join(relative.0), diagnostics);
        }
    }
    for (server, section) in config.mcp_servers.iter().filter(|(_, section)| section.enabled) {
        for (tool, section) in section.tools.iter().filter(|(_, section)| section.enabled) {
            let at = Path::of(["mcp_servers", server, "tools", tool, "depends_on"]);
            for (relative, base) in section.depends_on.iter().flat_map(DependsOn::names) {
                known.check(tool, base, &at.join(relative.0), diagnostics);
            }
        }
    }
    check_cycles(raw, diagnostics);
    tools
}

fn missing_key_warning(name: &str, key: &str) -> String {
    let lacks = if key == "description" { "when to use it" } else { "its arguments" };
    format!("[tools.{name}] has no `{key}`, so a model does not know {lacks}")
}

/// The dependencies of a tool, with the paths of their names. A tool that is not enabled has none.
fn dependencies_of<'a>(name: &str, raw: &'a RawTools) -> impl Iterator<Item = (Path, &'a str)> {
    let tool = raw.get(name).filter(|tool| tool.enabled);
    tool.and_then(|tool| tool.config.depends_on.as_ref()).into_iter().flat_map(DependsOn::names)
}

/// The tools that others can depend on.
struct KnownTools<'a> {
    raw: &'a RawTools,
    tools: &'a Tools,
    servers: &'a mcp_servers::RawServers,
}

impl KnownTools<'_> {
    /// Checks that the tool `base`, on which `name` depends, exists, or can come from an MCP server.
    fn check(&self, name: &str, base: &str, path: &Path, diagnostics: &mut Diagnostics<'_>) {
        if self.tools.contains_key(base) {
            return;
        }
        let disabled = |section: &str, diagnostics: &mut Diagnostics<'_>| {
            let message = format!("`{name}` depends on `{base}`, which is not enabled");
            diagnostics.report(path, message, format!("enable [{section}], or remove it here"));
        };
        if let Some(dependency) = self.raw.get(base) {
            // Problems of an enabled dependency are reported at its own keys.
            if !dependency.enabled {
                disabled(&format!("tools.{base}"), diagnostics);
            }
        } else if let Some((server, section)) = mcp_servers::server_of(base, self.servers) {
            if !section.enabled {
                disabled(&format!("mcp_servers.{server}"), diagnostics);
            }
        } else {
            let close = closest(base, self.raw.keys().chain(self.tools.keys()).map(String::as_str));
            let help = close.map_or_else(|| format!("add [tools.{base}]"), |close| format!("did you mean {close:?}?"));
            diagnostics.report(path, format!("`{name}` depends on `{base}`, which does not exist"), help);
        }
    }
}

/// Reports the dependency cycles, each tool in one of them at most.
fn check_cycles(raw: &RawTools, diagnostics: &mut Diagnostics<'_>) {
    let mut reported = BTreeSet::new();
    for start in raw.keys().map(String::as_str) {
        if reported.contains(start) {
            continue;
        }
        if let Some(names) = find_cycle(start, raw) {
            let message = format!("dependency cycle: {}", names.join(" → "));
            reported.extend(names);
            let path = Path::of(["tools", start, "depends_on"]);
            diagnostics.report(&path, message, "remove one of the dependencies");
        }
    }
}

/// The shortest way from a tool over its dependencies back to it.
fn find_cycle<'a>(start: &'a str, raw: &'a RawTools) -> Option<Vec<&'a str>> {
    let (mut queue, mut parent) = (VecDeque::from([start]), BTreeMap::<&str, &str>::new());
    while let Some(name) = queue.pop_front() {
        for (_, base) in dependencies_of(name, raw) {
            if base == start {
                let mut names = vec![start];
                let mut at = name;
                while at != start {
                    names.push(at);
                    at = parent[at];
                }
                names.push(start);
                names.reverse();
                return Some(names);
            }
            if raw.contains_key(base) && !parent.contains_key(base) {
                parent.insert(base, name);
                queue.push_back(base);
            }
        }
    }
    None
}

impl Tool {
    /// Allows requests to hosts with private or local addresses.
    pub(crate) fn allow_hosts(&mut self, hosts: &[String]) {
        if let Self::Configured(plan) = self {
            plan.allow_hosts(hosts);
        }
    }

    /// What makes every call of the tool fail on this machine, each at its key.
    pub(crate) fn obstacles(&self, name: &str) -> Vec<toolhub::config::Problem> {
        match self {
            Self::Configured(plan) => plan.obstacles(&Path::of(["tools", name])),
            Self::Operation(operation) => operation.obstacles(),
        }
    }

    /// A builder of the tool. `None` if an MCP server in the config brings it, or its builtin does not exist, which cannot happen
    /// for a resolved config.
    pub(crate) fn builder(&self, name: &str) -> Option<ToolBuilder> {
        self.build(name, &FACTORY)
    }

    /// Like [`builder`](Self::builder), for a hub that connects to no MCP server.
    pub(crate) fn offline_builder(&self, name: &str) -> Option<ToolBuilder> {
        self.build(name, &FACTORY.clone().offline())
    }

    fn build(&self, name: &str, factory: &ToolFactory) -> Option<ToolBuilder> {
        match self {
            Self::Configured(plan) => factory.build(name, plan),
            Self::Operation(operation) => Some(operation.tool_builder()),
        }
    }

    /// The MCP server in the config that brings the tool.
    pub(crate) fn mcp_server(&self) -> Option<&str> {
        self.plan()?.mcp_server()
    }

    /// Whether it has an MCP server of its own.
    pub(crate) fn has_own_mcp_server(&self) -> bool {
        self.plan().is_some_and(ToolPlan::has_own_mcp_server)
    }

    /// The plan of a tool with its own section.
    pub(super) fn plan(&self) -> Option<&ToolPlan> {
        match self {
            Self::Configured(plan) => Some(plan),
            Self::Operation(_) => None,
        }
    }
}
