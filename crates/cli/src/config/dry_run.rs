//! Builds the hub of a config once, in memory, to find errors that only the hub detects.
//!
//! In: a loaded config. Out: those errors as problems, such as parameters that contradict a builtin. No file is opened and no
//! tool is called.

use std::{convert::Infallible, sync::Arc, time::Duration};

use toolhub::{
    BuildError, BusinessStateConfig, RegistryError, StateManagerConfig,
    backend::{Backend, Memory},
};

use super::{
    Config, Tools,
    load::LoadedConfig,
    problem::{Problem, Problems},
    tree::Path,
};

/// Builds the hub and discards it.
///
/// # Errors
/// The hub's errors, each at the key it concerns.
pub(crate) async fn dry_run(loaded: &LoadedConfig) -> Result<(), Problems> {
    match loaded.config.base_builder().state_store_factory(memory_store).build().await {
        Ok(hub) => {
            hub.shutdown(Duration::ZERO).await;
            Ok(())
        }
        Err(error) => {
            let per_tool = register_each_tool(loaded).await;
            let errors = if per_tool.is_empty() { vec![error] } else { per_tool };
            Err(Problems::new(errors.iter().map(|error| to_problem(error, loaded)).collect()))
        }
    }
}

/// The errors of each tool by itself: building a hub stops at the first.
async fn register_each_tool(loaded: &LoadedConfig) -> Vec<BuildError> {
    let without_tools = Config { tools: Tools::new(), ..loaded.config.clone() };
    let Ok(hub) = without_tools.base_builder().state_store_factory(memory_store).build().await else {
        return Vec::new();
    };
    let tools = loaded.config.tool_builders().into_iter();
    let errors = tools.filter_map(|tool| match hub.register(tool) {
        // Dependencies were checked when the config was resolved.
        Ok(_) | Err(RegistryError::UnknownDependency { .. }) => None,
        Err(error) => Some(BuildError::Tool(error)),
    });
    let errors = errors.collect();
    hub.shutdown(Duration::ZERO).await;
    errors
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
        BuildError::Tool(
            RegistryError::Refused { tool, .. }
            | RegistryError::Output { tool, .. }
            | RegistryError::UnknownDependency { tool, .. },
        ) => (Path::of(["tools", tool.as_str()]), "correct the section of this tool"),
        _ => (Path::default(), "correct it, then run `toolhub config check`"),
    };
    let node = loaded.tree.nearest(&path);
    Problem::at(&node.key_origin, &path, error.to_string()).help(help)
}
