//! Why a tool cannot be registered.

use toolhub_schema::schema::SchemaError;
use toolhub_types::tool::{Kind, NameError, ToolName};

/// Why a tool cannot be registered. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The name is not legal.
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
    /// The output schema is no schema.
    #[error("the output schema of `{tool}` cannot be used: {source}")]
    Output {
        /// The tool.
        tool: ToolName,
        /// What is wrong with it.
        source: SchemaError,
    },
    /// A dependency names no tool.
    #[error("`{tool}` depends on `{missing}`, which is not registered{}", hint(close))]
    UnknownDependency {
        /// The tool that depends.
        tool: ToolName,
        /// The name nobody has.
        missing: ToolName,
        /// Names like it.
        close: Vec<String>,
    },
    /// Tools wait for each other.
    #[error("these tools wait for each other and none could ever run: {}", .0.iter().map(ToolName::as_str).collect::<Vec<_>>().join(" → "))]
    DependencyCycle(Vec<ToolName>),
    /// Nobody runs tools of this kind.
    #[error(
        "nobody runs tools of kind `{kind}`, so `{tool}` cannot be registered; give the hub one with `.executor(\"{kind}\", …)`"
    )]
    NoExecutor {
        /// The tool.
        tool: ToolName,
        /// Its kind.
        kind: Kind,
    },
    /// The executor will not run it.
    #[error("`{tool}` cannot be registered: {reason}")]
    Refused {
        /// The tool.
        tool: ToolName,
        /// Why.
        reason: String,
    },
}

fn hint(close: &[String]) -> String {
    close.first().map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}
