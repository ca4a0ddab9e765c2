//! Resolves `[tools.NAME]`: each tool by the library's rules, and the dependencies among all of them.

use std::{collections::BTreeMap, sync::LazyLock};

use toolhub::{
    ToolBuilder, ToolName,
    command::Guard,
    config::{DependsOn, ToolFactory, ToolPlan},
};

use super::{
    super::{raw, suggest::closest, tree::Path},
    Diagnostics,
    imports::Operation,
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
    let factory = builtin::ALL
        .iter()
        .fold(ToolFactory::new(), |factory, builtin| factory.function(builtin.name, |name| builtin.tool(name)));
    match Guard::this_program() {
        Ok(guard) => factory.guard(guard),
        Err(error) => {
            tracing::warn!(
                %error,
                "command tools run without a guard process; their child processes may survive a crash of the hub"
            );
            factory
        }
    }
});

pub(super) fn resolve(raw: &RawTools, imported: Vec<Operation>, diagnostics: &mut Diagnostics<'_>) -> Tools {
    let mut tools = Tools::new();
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
            tools.insert(name.clone(), Tool::Configured(Box::new(plan)));
        }
    }
    for name in tools.keys() {
        check_dependencies(name, raw, &tools, diagnostics);
    }
    check_cycles(raw, &tools, diagnostics);
    tools
}

/// The dependencies of a tool, with the paths of their names. A tool that is not enabled has none.
fn dependencies_of<'a>(name: &str, raw: &'a RawTools, tools: &Tools) -> impl Iterator<Item = (Path, &'a str)> {
    let tool = raw.get(name).filter(|_| tools.contains_key(name));
    tool.and_then(|tool| tool.config.depends_on.as_ref()).into_iter().flat_map(DependsOn::names)
}

fn check_dependencies(name: &str, raw: &RawTools, tools: &Tools, diagnostics: &mut Diagnostics<'_>) {
    let at = Path::of(["tools", name]);
    for (relative, base) in dependencies_of(name, raw, tools) {
        let path = at.key("depends_on").join(relative.0);
        if tools.contains_key(base) {
            continue;
        }
        if let Some(dependency) = raw.get(base) {
            // Problems of an enabled dependency are reported at its own keys.
            if !dependency.enabled {
                let message = format!("`{name}` depends on `{base}`, which is not enabled");
                diagnostics.report(&path, message, format!("enable [tools.{base}], or remove it here"));
            }
        } else {
            let close = closest(base, tools.keys().map(String::as_str));
            let help = close.map_or_else(|| format!("add [tools.{base}]"), |close| format!("did you mean {close:?}?"));
            diagnostics.report(&path, format!("`{name}` depends on `{base}`, which does not exist"), help);
        }
    }
}

/// Reports a dependency cycle. Only the first is reported.
fn check_cycles(raw: &RawTools, tools: &Tools, diagnostics: &mut Diagnostics<'_>) {
    for start in tools.keys() {
        let (mut stack, mut parent) = (vec![start.as_str()], BTreeMap::<&str, &str>::new());
        while let Some(name) = stack.pop() {
            for (_, base) in dependencies_of(name, raw, tools) {
                if base == start {
                    let mut names = vec![start.as_str()];
                    let mut at = name;
                    while at != start {
                        names.push(at);
                        at = parent[at];
                    }
                    names.push(start);
                    names.reverse();
                    let message = format!("dependency cycle: {}", names.join(" → "));
                    return diagnostics.report(
                        &Path::of(["tools", start, "depends_on"]),
                        message,
                        "remove one of the dependencies",
                    );
                }
                if tools.contains_key(base) && !parent.contains_key(base) {
                    parent.insert(base, name);
                    stack.push(base);
                }
            }
        }
    }
}

impl Tool {
    /// Allows requests to hosts with private or local addresses.
    pub(crate) fn allow_hosts(&mut self, hosts: &[String]) {
        if let Self::Configured(plan) = self {
            plan.allow_hosts(hosts);
        }
    }

    /// A builder of the tool. `None` if its builtin does not exist, which cannot happen for a resolved config.
    pub(crate) fn builder(&self, name: &str) -> Option<ToolBuilder> {
        match self {
            Self::Configured(plan) => FACTORY.build(name, plan),
            Self::Operation(operation) => Some(operation.tool_builder()),
        }
    }
}
