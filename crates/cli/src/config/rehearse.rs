//! Builds the hub of a config once, in memory, to see whether it can be built.
//!
//! In: a loaded config. Out: what only the hub itself can find wrong, such as parameters that contradict a builtin. No file
//! is opened and no tool is called.

use std::{convert::Infallible, sync::Arc, time::Duration};

use toolhub::{BuildError, RegistryError, backend::Memory};

use super::{
    load::Loaded,
    problem::{Problem, Problems},
    tree::Path,
};

/// Tries the config out.
///
/// # Errors
/// What the hub says, at the place it is about.
pub(crate) async fn rehearse(loaded: &Loaded) -> Result<(), Problems> {
    let memory = |_: &_, _: &_| Ok::<_, Infallible>(Arc::new(Memory::new()) as Arc<_>);
    match loaded.config.builder().managers(memory).build().await {
        Ok(hub) => {
            hub.shutdown(Duration::ZERO).await;
            Ok(())
        }
        Err(error) => Err(Problems::new(vec![told(&error, loaded)])),
    }
}

fn told(error: &BuildError, loaded: &Loaded) -> Problem {
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
    Problem::at(&node.key, &path, error.to_string()).help(help)
}
