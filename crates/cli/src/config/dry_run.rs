//! Finds the problems of a config that only show when it is used: its hub is built once, in memory, and its tools are checked.
//!
//! In: a loaded config, which may have problems. Out: more problems, such as parameters that contradict a builtin, and tools that
//! cannot work on this machine. No store is opened and no tool is called.

use std::{convert::Infallible, sync::Arc, time::Duration};

use toolhub::{
    BuildError, BusinessStateConfig, RegistryError, StateManagerConfig, ToolHub,
    backend::{Backend, Memory},
};

use super::{load::LoadedConfig, problem::Problem, resolve::locate, rule_arguments, tree::Path};

/// Builds the hub and discards it. Returns its problems, each at the key it concerns. Of a config that has these `known` problems,
/// only the tools without one are built.
pub(crate) async fn dry_run(loaded: &LoadedConfig, known: &[Problem]) -> Vec<Problem> {
    dry_run_with_warnings(loaded, known).await.0
}

/// Like [`dry_run`], and returns what is probably a mistake too.
pub(crate) async fn dry_run_with_warnings(loaded: &LoadedConfig, known: &[Problem]) -> (Vec<Problem>, Vec<String>) {
    let builder = if known.is_empty() {
        loaded.config.offline_builder()
    } else {
        let tools = loaded.config.tools.iter().filter(|(name, _)| !has_problem("tools", name, known));
        ToolHub::builder().tools(tools.filter_map(|(name, tool)| tool.offline_builder(name)))
    };
    match builder.state_store_factory(memory_store).build().await {
        Ok(hub) => {
            let warnings = rule_arguments::find_unknown(&loaded.config.policies.rules, &hub);
            hub.shutdown(Duration::ZERO).await;
            (Vec::new(), warnings)
        }
        Err(error) => {
            let problems = error.into_problems().into_iter();
            // The dependencies among all tools were checked when the config was resolved.
            let problems = problems.filter(|error| !is_dependency_error(error));
            (problems.map(|error| to_problem(&error, loaded)).collect(), Vec::new())
        }
    }
}

/// The tools and MCP servers that cannot work on this machine: their program or script does not exist, or their address is refused.
/// Those with `known` problems are left out.
pub(crate) fn find_obstacles(loaded: &LoadedConfig, known: &[Problem]) -> Vec<Problem> {
    let tools = loaded.config.tools.iter().filter(|(name, _)| !has_problem("tools", name, known));
    let servers = loaded.config.mcp_servers.iter().filter(|(name, _)| !has_problem("mcp_servers", name, known));
    let found = tools
        .flat_map(|(name, tool)| tool.obstacles(name))
        .chain(servers.flat_map(|(name, server)| server.obstacles(&Path::of(["mcp_servers", name]))));
    let mut problems: Vec<Problem> = Vec::new();
    for problem in found.map(|problem| locate(&loaded.tree, problem)) {
        // All operations of a document have the same one.
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    problems
}

fn has_problem(section: &str, name: &str, problems: &[Problem]) -> bool {
    let section = Path::of([section, name]).to_string();
    let is_inside = |problem: &Problem| {
        problem.key.strip_prefix(&section).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    problems.iter().any(is_inside)
}

fn is_dependency_error(error: &BuildError) -> bool {
    matches!(error, BuildError::Tool(RegistryError::UnknownDependency { .. } | RegistryError::DependencyCycle(_)))
}

fn memory_store(_: &StateManagerConfig, _: &BusinessStateConfig) -> Result<Arc<dyn Backend>, Infallible> {
    Ok(Arc::new(Memory::new()))
}

fn to_problem(error: &BuildError, loaded: &LoadedConfig) -> Problem {
    let (path, help) = match error {
        BuildError::Tool(RegistryError::Parameters { tool, .. }) => (
            Path::of(["tools", tool.as_str(), "parameters"]),
            "`parameters` is merged over the builtin's schema; it may refine arguments, not contradict them",
        ),
        BuildError::Tool(RegistryError::ReservedName { name, .. }) => {
            (Path::of(["tools", name.as_str()]), "rename the section, or give its OpenAPI import a `prefix`")
        }
        BuildError::Tool(RegistryError::Refused { tool, .. } | RegistryError::Output { tool, .. }) => {
            (Path::of(["tools", tool.as_str()]), "correct the section of this tool")
        }
        _ => (Path::default(), "correct it, then run `toolhub config check`"),
    };
    let node = loaded.tree.nearest(&path);
    Problem::at(&node.key_origin, &path, error.to_string()).help(help)
}
