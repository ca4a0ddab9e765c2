//! What the calls of a registered tool ask its server for: one of its tools, or what it has besides tools.

use rmcp::model::CompleteRequestParams;
use serde::Deserialize;
use serde_json::Value;
use toolhub_core::ToolError;

use super::{connection::Operation, error};

/// What the calls ask the server for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// The tool of this name at the server.
    Tool(String),
    Resource,
    Prompt,
    Completion,
}

impl Target {
    /// The request of a call with these arguments, which fit the schema of the tool.
    pub(super) fn operation(&self, arguments: &Value) -> Result<Operation, ToolError> {
        let object = |value: &Value| value.as_object().cloned().unwrap_or_default();
        let text = |member: &str| arguments[member].as_str().unwrap_or_default().to_owned();
        Ok(match self {
            Self::Tool(name) => Operation::CallTool { name: name.clone(), arguments: object(arguments) },
            Self::Resource => Operation::ReadResource { uri: text("uri") },
            Self::Prompt => Operation::GetPrompt { name: text("name"), arguments: object(&arguments["arguments"]) },
            Self::Completion => {
                let params = CompleteRequestParams::deserialize(arguments);
                Operation::Complete(Box::new(params.map_err(|_| error::invalid_arguments())?))
            }
        })
    }

    /// The member that a result must have; `None` for tools.
    pub(super) fn result_member(&self) -> Option<&'static str> {
        match self {
            Self::Tool(_) => None,
            Self::Resource => Some("contents"),
            Self::Prompt => Some("messages"),
            Self::Completion => Some("completion"),
        }
    }
}
