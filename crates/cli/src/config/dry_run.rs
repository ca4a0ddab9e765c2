//! Builds the hub of a config once, in memory, to see whether it can be built.
//!
//! In: a loaded config. Out: what only the hub itself can find wrong, such as parameters that contradict a builtin. No file
//! is opened and no tool is called.

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

/// Tries the config out.
///
/// # Errors
/// What the hub says, each at the place it is about.
pub(crate) async fn dry_run(loaded: &LoadedConfig) -> Result<(), Problems> {
    match loaded.config.base_builder().state_store_factory(memory_store).build().await {
        Ok(hub) => {
            hub.shutdown(Duration::ZERO).await;
            Ok(())
        }
        Err(error) => {
            let each = register_each_tool(loaded).await;
            let all = if each.is_empty() { vec![error] } else { each };
            Err(Problems::new(all.iter().map(|error| to_problem(error, loaded)).collect()))
        }
    }
}

/// What is wrong with each tool by itself: a hub ends at the first that it cannot take.
async fn register_each_tool(loaded: &LoadedConfig) -> Vec<BuildError> {
    let bare = Config { tools: Tools::new(), ..loaded.config.clone() };
    let Ok(hub) = bare.base_builder().state_store_factory(memory_store).build().await else { return Vec::new() };
    let tools = loaded.config.tool_builders().into_iter();
    let wrong = tools.filter_map(|tool| match hub.register(tool) {
        // Whether those it waits for are there was looked at before.
        Ok(_) | Err(RegistryError::UnknownDependency { .. }) => None,
        Err(error) => Some(BuildError::Tool(error)),
    });
    let wrong = wrong.collect();
    hub.shutdown(Duration::ZERO).await;
    wrong
}

fn memory_store(_: &StateManagerConfig, _: &BusinessStateConfig) -> Result<Arc<dyn Backend>, Infallible> {
    Ok(Arc::new(Memory::new()))
}

fn to_problem(error: &BuildError, loaded: &LoadedConfig) -> Problem {
    let (path, help) = match error {
        BuildError::Tool(RegistryError::Parameters { tool, .. }) => (
            Path::of(["tools", tool.as_str(), "parameters"]),
            "`parameters` is laid over what the builtin expects; say more about its arguments, not something else",
        ),
        BuildError::Tool(
            RegistryError::Refused { tool, .. }
            | RegistryError::Output { tool, .. }
            | RegistryError::UnknownDependency { tool, .. },
        ) => (Path::of(["tools", tool.as_str()]), "change what the section says about it"),
        _ => (Path::default(), "change it, and check again with `toolhub config check`"),
    };
    let node = loaded.tree.nearest(&path);
    Problem::at(&node.key_origin, &path, error.to_string()).help(help)
}
