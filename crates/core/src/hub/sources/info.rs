//! What a source says about itself, for routes, commands and explanations.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use toolhub_schema::suggest;
use toolhub_types::{
    error::{CallError, Detail, ErrorKind},
    language::Language,
    timestamp::Timestamp,
    tool::ToolName,
};

/// The state of a source.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceInfo {
    /// Its connection.
    #[serde(flatten)]
    pub status: SourceStatus,
    /// What is specific to its kind, such as the protocol version.
    pub details: Map<String, Value>,
    /// The same, only for administrators: how a program is started.
    #[serde(skip)]
    pub admin_details: Map<String, Value>,
    /// What it offers, sorted by name.
    pub tools: Vec<SourceTool>,
}

/// The connection of a source, and what is known about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// The source.
    pub name: String,
    /// Whether it is connected.
    pub connection: SourceConnection,
    /// Since when it is connected, or not.
    pub since: Timestamp,
    /// Why the last connection was lost or could not be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When the next attempt to connect is made, if none is being made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<Timestamp>,
}

impl SourceStatus {
    /// Whether the first attempt to connect is being made.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.connection == SourceConnection::Connecting && self.last_error.is_none()
    }

    /// The connection in words, such as "disconnected since …: exited with 1; next attempt at …".
    #[must_use]
    pub fn text(&self, language: Language) -> String {
        let since = self.since;
        let mut text = match language {
            Language::English => format!("{} since {since}", self.connection.as_str()),
            Language::Chinese => format!("自 {since} 起{}", self.connection.chinese()),
        };
        let (colon, next) = match language {
            Language::English => (": ", "; next attempt at "),
            Language::Chinese => ("：", "；下次尝试："),
        };
        text.extend(self.last_error.iter().flat_map(|error| [colon, error.as_str()]));
        if let Some(at) = self.next_attempt {
            text += &format!("{next}{at}");
        }
        text
    }
}

/// The connection of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceConnection {
    /// It is connected.
    Connected,
    /// A connection is being made.
    Connecting,
    /// It is not connected; the next attempt is scheduled.
    Disconnected,
    /// It is disabled.
    Disabled,
}

impl SourceConnection {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Connecting => "connecting",
            Self::Disconnected => "disconnected",
            Self::Disabled => "disabled",
        }
    }

    fn chinese(self) -> &'static str {
        match self {
            Self::Connected => "已连接",
            Self::Connecting => "正在连接",
            Self::Disconnected => "已断开",
            Self::Disabled => "已停用",
        }
    }
}

/// A tool as its source names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceTool {
    /// The name at the source.
    pub name: String,
    /// The name in the hub, if it is registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<ToolName>,
    /// Whether it can be used.
    pub state: SourceToolState,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether a tool of a source can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceToolState {
    /// It is registered.
    Registered,
    /// Its definition waits for the approval of a person.
    PendingApproval,
    /// It cannot be registered.
    Quarantined,
}

/// A definition that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionChange {
    /// The name at the source.
    pub name: String,
    /// Whether no definition of this name was approved before.
    pub is_new: bool,
    /// How it differs from the approved definition, completely.
    pub differences: Vec<DefinitionDifference>,
    /// The digest of the definition. An approval that names it approves no other.
    pub digest: String,
}

/// A value that is different in two definitions. Values are whole and as the source sent them: what shows them to people must escape
/// hidden characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionDifference {
    /// Where it is, such as `inputSchema.properties.path.type`, without hidden characters.
    pub path: String,
    /// The value in the approved definition; missing if it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The value in the definition that waits; missing if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The approval of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefinitionApproval {
    /// The name at the source.
    pub name: String,
    /// The digest of the definition that is approved; `None` for whichever waits.
    pub digest: Option<String>,
}

/// Why definitions cannot be approved.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionApprovalError {
    /// A definition is not the one that was named.
    #[error("the definition of `{0}` has changed again")]
    Changed(String),
    /// A name is unknown, or the store does not answer.
    #[error(transparent)]
    Call(#[from] CallError),
}

impl DefinitionApproval {
    /// The names of the pending definitions that these approvals select; all, if there are none.
    ///
    /// # Errors
    /// When no definition of a name waits, or another one than was named.
    pub fn select(approvals: &[Self], pending: &[DefinitionChange]) -> Result<Vec<String>, DefinitionApprovalError> {
        if approvals.is_empty() {
            return Ok(pending.iter().map(|change| change.name.clone()).collect());
        }
        for Self { name, digest } in approvals {
            let Some(change) = pending.iter().find(|change| change.name == *name) else {
                let closest = suggest::closest(name, pending.iter().map(|change| change.name.as_str()), 3);
                return Err(CallError::new(ErrorKind::ToolNotFound)
                    .operator(format!("no definition of `{name}` waits for approval"))
                    .detail(Detail::Suggestions(closest.into_iter().map(String::from).collect()))
                    .into());
            };
            if digest.as_ref().is_some_and(|digest| *digest != change.digest) {
                return Err(DefinitionApprovalError::Changed(name.clone()));
            }
        }
        Ok(approvals.iter().map(|approval| approval.name.clone()).collect())
    }
}
