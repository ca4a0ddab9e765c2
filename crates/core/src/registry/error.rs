//! Why a tool cannot be registered.

use toolhub_schema::schema::SchemaError;
use toolhub_types::tool::{Kind, NameError, ToolName};

/// Why a tool cannot be registered. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name is not valid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Another tool has this name.
    #[error("there is a tool named `{0}` already; unregister it first, or choose another name")]
    Duplicate(ToolName),
    /// The schema of the arguments cannot be used.
    #[error("the parameters of `{tool}` cannot be used: {source}")]
    Parameters {
        /// The tool.
        tool: ToolName,
        /// What is wrong with them.
        source: SchemaError,
    },
    /// The output schema is not a valid JSON Schema.
    #[error("the output schema of `{tool}` cannot be used: {source}")]
    Output {
        /// The tool.
        tool: ToolName,
        /// What is wrong with it.
        source: SchemaError,
    },
    /// A dependency is not registered.
    #[error("`{tool}` depends on `{missing}`, which is not registered{}", hint(suggestions))]
    UnknownDependency {
        /// The dependent tool.
        tool: ToolName,
        /// The unknown name.
        missing: ToolName,
        /// Similar names.
        suggestions: Vec<String>,
    },
    /// Tools depend on each other.
    #[error("these tools depend on each other, so none could ever run: {}", .0.iter().map(ToolName::as_str).collect::<Vec<_>>().join(" → "))]
    DependencyCycle(Vec<ToolName>),
    /// There is no executor for the kind.
    #[error(
        "`{tool}` cannot be registered: there is no executor for tools of kind `{kind}`; add one with `.executor(\"{kind}\", …)`"
    )]
    NoExecutor {
        /// The tool.
        tool: ToolName,
        /// Its kind.
        kind: Kind,
    },
    /// The executor or the registry refuses it.
    #[error("`{tool}` cannot be registered: {reason}")]
    Refused {
        /// The tool.
        tool: ToolName,
        /// Why.
        reason: String,
    },
}

fn hint(suggestions: &[String]) -> String {
    suggestions.first().map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}
