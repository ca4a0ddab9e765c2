//! A message about one or more alerts, as it is stored until it is delivered.
//!
//! In: alerts of one target that are reported together. Out: the message with its texts. The channels of `toolhub-connect` turn it into
//! the bodies of their formats.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Condition;
use toolhub_types::{ids::Tenant, timestamp::Timestamp, tool::ToolName};

/// A message to a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AlertMessage {
    /// Its id, the same for every attempt to deliver it.
    #[schemars(with = "String")]
    pub id: SmolStr,
    /// The target.
    #[schemars(with = "String")]
    pub target: SmolStr,
    /// What it says about its alerts.
    pub phase: AlertPhase,
    /// The condition; `None` in a test message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Condition>,
    /// When it was written.
    pub at: Timestamp,
    /// The alerts.
    pub alerts: Vec<Alert>,
    /// Until when the alerts hold if no message follows: a while after the next repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<Timestamp>,
    /// A page of the dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// What a message says about its alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AlertPhase {
    /// They began.
    Firing,
    /// They go on in another state.
    Changed,
    /// They go on.
    Repeated,
    /// They change too often; no message follows until they are stable.
    Flapping,
    /// They ended.
    Resolved,
    /// They happened, and have no end.
    Happened,
    /// A test of the target.
    Test,
}

impl AlertPhase {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Changed => "changed",
            Self::Repeated => "repeated",
            Self::Flapping => "flapping",
            Self::Resolved => "resolved",
            Self::Happened => "happened",
            Self::Test => "test",
        }
    }
}

/// An alert: one condition on one thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Alert {
    /// Its id, the same from its begin to its end.
    #[schemars(with = "String")]
    pub id: SmolStr,
    /// What it is about, such as the name of a tool.
    #[schemars(with = "String")]
    pub thing: SmolStr,
    /// The tool, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// The MCP server that brings the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub server: Option<SmolStr>,
    /// The tenant it concerns; absent if it concerns all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// Whether the condition holds.
    pub is_active: bool,
    /// The state in a word, such as `failed`.
    #[schemars(with = "String")]
    pub state: SmolStr,
    /// When it began.
    pub began: Timestamp,
    /// Since when it holds, or does not.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
    /// The changes since the last message, the oldest first, at most 20.
    pub changes: Vec<AlertChange>,
    /// How many changes there were, or how often it happened.
    pub count: u64,
    /// Its page of the dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// A change of an alert.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AlertChange {
    /// When.
    pub at: Timestamp,
    /// The state from then on.
    #[schemars(with = "String")]
    pub state: SmolStr,
    /// What it happened to, if the alert counts what happens to several things.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub thing: Option<SmolStr>,
    /// Why.
    pub reason: String,
}

/// Number of things that a summary names.
const MAX_NAMED: usize = 5;

impl AlertMessage {
    /// What it is about, in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let (Some(condition), Some(first)) = (self.condition, self.alerts.first()) else {
            return "test message of Toolhub: this target receives alerts".into();
        };
        let row = condition.row();
        let (noun, nouns) = row.nouns;
        if self.phase == AlertPhase::Happened {
            let count: u64 = self.alerts.iter().map(|alert| alert.count).sum();
            let reason = &first.reason;
            return match count {
                1 => format!(
                    "{noun} `{}` {}: {reason}",
                    first.changes.first().and_then(|it| it.thing.as_ref()).unwrap_or(&first.thing),
                    row.begun
                ),
                count => format!("{count} {nouns}: {}; the first: {reason}", row.begun),
            };
        }
        let verb = match self.phase {
            AlertPhase::Resolved => row.ended.to_owned(),
            AlertPhase::Flapping => "changes again and again; no message follows until it is stable".into(),
            _ => row.begun.replace("{state}", &first.state),
        };
        let still = if self.phase == AlertPhase::Repeated { "still: " } else { "" };
        let reason = if first.reason.is_empty() { String::new() } else { format!(": {}", first.reason) };
        match self.alerts.len() {
            1 => format!("{still}{noun} `{}` {verb}{reason}", first.thing),
            count => {
                let server = first
                    .server
                    .as_ref()
                    .filter(|server| self.alerts.iter().all(|it| it.server.as_ref() == Some(server)));
                let of = server.map(|server| format!(" of MCP server `{server}`")).unwrap_or_default();
                let named: Vec<_> =
                    self.alerts.iter().take(MAX_NAMED).map(|alert| format!("`{}`", alert.thing)).collect();
                let more = if count > MAX_NAMED { ", …" } else { "" };
                format!("{still}{count} {nouns}{of}: {verb}{reason} ({}{more})", named.join(", "))
            }
        }
    }

    /// What to do about it; empty if nothing is to be done.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        match (self.phase, self.condition) {
            (AlertPhase::Resolved | AlertPhase::Test, _) | (_, None) => "",
            (_, Some(condition)) => condition.row().advice,
        }
    }
}
