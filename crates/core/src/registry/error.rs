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
    /// The HTTP API has a route of this name beside the routes of tools.
    #[error(
        "no tool can be named `{name}`: the HTTP API has the route `/api/v1/tools/{name}`; name it `{suggestion}`, for example"
    )]
    ReservedName {
        /// The name.
        name: ToolName,
        /// A name that can be used.
        suggestion: String,
    },
    /// Another tool has this name.
    #[error("there is a tool named `{0}` already; unregister it first, or choose another name")]
    Duplicate(ToolName),
    /// A source, such as an MCP server, has added a tool of this name.
    #[error("there is a tool named `{tool}` already, added by `{owner}`; choose another name")]
    OwnedBySource {
        /// The tool.
        tool: ToolName,
        /// The source.
        owner: String,
    },
    /// The name belongs to the tools of another source, whether that has such a tool or not.
    #[error("the name `{tool}` is reserved for the tools of `{owner}`")]
    NameOfSource {
        /// The tool.
        tool: ToolName,
        /// The other source.
        owner: String,
    },
    /// A source may not add a tool of this name.
    #[error("`{owner}` may not add a tool named `{tool}`")]
    NotOfSource {
        /// The tool.
        tool: ToolName,
        /// The source.
        owner: String,
    },
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
    /// Several problems, of one tool or of several.
    #[error("{} problems:\n{}", .0.len(), join_lines(.0))]
    Several(Vec<RegistryError>),
}

impl RegistryError {
    /// All problems as one error; none is `Ok`.
    pub(crate) fn combine(mut problems: Vec<Self>) -> Result<(), Self> {
        match problems.len() {
            0 => Ok(()),
            1 => Err(problems.remove(0)),
            _ => Err(Self::Several(problems)),
        }
    }

    /// The tools that cannot be registered because of it.
    pub(crate) fn tools(&self) -> Vec<&ToolName> {
        match self {
            Self::Name(_) => Vec::new(),
            Self::ReservedName { name: tool, .. }
            | Self::Duplicate(tool)
            | Self::OwnedBySource { tool, .. }
            | Self::NameOfSource { tool, .. }
            | Self::NotOfSource { tool, .. }
            | Self::Parameters { tool, .. }
            | Self::Output { tool, .. }
            | Self::UnknownDependency { tool, .. }
            | Self::NoExecutor { tool, .. }
            | Self::Refused { tool, .. } => vec![tool],
            Self::DependencyCycle(tools) => tools.iter().collect(),
            Self::Several(problems) => problems.iter().flat_map(Self::tools).collect(),
        }
    }

    /// Whether a tool cannot be registered because of it.
    #[must_use]
    pub fn concerns(&self, tool: &ToolName) -> bool {
        self.tools().contains(&tool)
    }

    /// The single problems.
    #[must_use]
    pub fn problems(&self) -> &[Self] {
        match self {
            Self::Several(problems) => problems,
            one => std::slice::from_ref(one),
        }
    }

    /// The single problems, by value.
    pub(crate) fn into_problems(self) -> Vec<Self> {
        match self {
            Self::Several(problems) => problems,
            one => vec![one],
        }
    }
}

fn hint(suggestions: &[String]) -> String {
    suggestions.first().map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// The texts of problems, one per line.
pub(crate) fn join_lines<T: std::fmt::Display>(problems: &[T]) -> String {
    problems.iter().map(|problem| format!("- {problem}")).collect::<Vec<_>>().join("\n")
}
