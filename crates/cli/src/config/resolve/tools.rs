//! What holds for `[tools.NAME]`: the rules of one tool, which the library has, and what depends on all of them.

use std::{collections::BTreeMap, sync::LazyLock};

use toolhub::{
    ToolBuilder, ToolName,
    command::Guard,
    config::{DependsOn, ToolFactory, ToolPlan},
};

use super::{
    super::{closest::closest, raw, tree::Path},
    Diagnostics,
    imports::Operation,
};
use crate::builtin;

/// The tools as they are written, by name.
type RawTools = BTreeMap<String, raw::Tool>;

/// The tools that are enabled, by name.
pub(crate) type Tools = BTreeMap<String, Tool>;

/// One tool. Two that are equal need not be replaced by each other.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tool {
    /// By a section of its own.
    Configured(Box<ToolPlan>),
    /// By a document.
    Operation(Box<Operation>),
}

/// What makes tools: it knows those that the binary carries, and programs run below the binary as their guard.
static FACTORY: LazyLock<ToolFactory> = LazyLock::new(|| {
    let factory = builtin::ALL
        .iter()
        .fold(ToolFactory::new(), |factory, builtin| factory.function(builtin.name, |name| builtin.tool(name)));
    match Guard::this_program() {
        Ok(guard) => factory.guard(guard),
        Err(error) => {
            tracing::warn!(%error, "programs run without a guard");
            factory
        }
    }
});

pub(super) fn resolve(said: &RawTools, imported: Vec<Operation>, desk: &mut Diagnostics<'_>) -> Tools {
    let mut tools = Tools::new();
    for operation in imported {
        let name = operation.name().to_owned();
        if said.contains_key(&name) || tools.contains_key(&name) {
            let help = "give one of them another name, or the document another `prefix`";
            let message = format!("there are two tools named `{name}`, and one of them comes from a document");
            desk.report(&Path::of(["imports", "openapi"]), message, help);
            continue;
        }
        tools.insert(name, Tool::Operation(Box::new(operation)));
    }
    for (name, tool) in said {
        let at = Path::of(["tools", name]);
        if let Err(error) = ToolName::new(name.as_str()) {
            desk.report(&at, error.to_string(), "rename the section: [tools.my_tool]");
        }
        let plan = FACTORY.plan(name, &tool.config, &at, desk);
        if let Some(plan) = plan.filter(|_| tool.enabled) {
            tools.insert(name.clone(), Tool::Configured(Box::new(plan)));
        }
    }
    for name in tools.keys() {
        check_dependencies(name, said, &tools, desk);
    }
    check_cycles(said, &tools, desk);
    tools
}

/// The tools that one waits for, and the ways to their names. Those of a tool that is not there do not matter.
fn dependencies_of<'a>(name: &str, said: &'a RawTools, tools: &Tools) -> impl Iterator<Item = (Path, &'a str)> {
    let tool = said.get(name).filter(|_| tools.contains_key(name));
    tool.and_then(|tool| tool.config.depends_on.as_ref()).into_iter().flat_map(DependsOn::names)
}

fn check_dependencies(name: &str, said: &RawTools, tools: &Tools, desk: &mut Diagnostics<'_>) {
    let at = Path::of(["tools", name]);
    for (way, base) in dependencies_of(name, said, tools) {
        let path = at.key("depends_on").join(way.0);
        if tools.contains_key(base) {
            continue;
        }
        if let Some(written) = said.get(base) {
            // What is wrong with one that is enabled is told at its own keys.
            if !written.enabled {
                let message = format!("`{name}` waits for `{base}`, which is not enabled");
                desk.report(&path, message, format!("enable [tools.{base}], or remove it here"));
            }
        } else {
            let close = closest(base, tools.keys().map(String::as_str));
            let help = close.map_or_else(|| format!("add [tools.{base}]"), |close| format!("did you mean {close:?}?"));
            desk.report(&path, format!("`{name}` waits for `{base}`, and there is no such tool"), help);
        }
    }
}

/// Tools that wait for each other. One circle is named; the next is found when that is gone.
fn check_cycles(said: &RawTools, tools: &Tools, desk: &mut Diagnostics<'_>) {
    for start in tools.keys() {
        let (mut ahead, mut from) = (vec![start.as_str()], BTreeMap::<&str, &str>::new());
        while let Some(name) = ahead.pop() {
            for (_, base) in dependencies_of(name, said, tools) {
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
                    return desk.report(
                        &Path::of(["tools", start, "depends_on"]),
                        message,
                        "remove one of the dependencies",
                    );
                }
                if tools.contains_key(base) && !from.contains_key(base) {
                    from.insert(base, name);
                    ahead.push(base);
                }
            }
        }
    }
}

impl Tool {
    /// Hosts that a request may reach though they are not of the open internet.
    pub(crate) fn allow_hosts(&mut self, hosts: &[String]) {
        if let Self::Configured(plan) = self {
            plan.allow_hosts(hosts);
        }
    }

    /// A tool in the making. `None` where its builtin is not there, which a config that was resolved never says.
    pub(crate) fn builder(&self, name: &str) -> Option<ToolBuilder> {
        match self {
            Self::Configured(plan) => FACTORY.build(name, plan),
            Self::Operation(operation) => Some(operation.tool_builder()),
        }
    }
}
