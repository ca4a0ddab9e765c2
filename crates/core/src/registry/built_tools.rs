//! Tools built together, and the problems of those that could not be built.
//!
//! In: builders. Out: the tools and all problems, so that the registry can report them with the problems it finds itself.

use super::{BuildContext, RegistryError, ToolBuilder};
use crate::execution::Tool;
use toolhub_types::tool::ToolName;

/// Tools to be added to the registry.
#[derive(Default)]
pub(crate) struct BuiltTools {
    pub(crate) tools: Vec<Tool>,
    /// The names of those that could not be built.
    pub(crate) failed: Vec<ToolName>,
    pub(crate) problems: Vec<RegistryError>,
    /// The names of those that a source of their own, with the same name, registers later.
    pub(crate) sourced: Vec<ToolName>,
}

impl BuiltTools {
    /// Builds every tool that can be built.
    pub(crate) fn build(builders: impl IntoIterator<Item = ToolBuilder>, context: &BuildContext<'_>) -> Self {
        let mut built = Self::default();
        for builder in builders {
            let name = builder.name();
            match builder.build(context) {
                Ok(tool) => built.tools.push(tool),
                Err(problem) => {
                    built.failed.extend(name);
                    built.problems.push(problem);
                }
            }
        }
        built
    }
}
