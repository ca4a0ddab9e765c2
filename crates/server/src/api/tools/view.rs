//! A tool as the API shows it: its definition, how it stands for everybody, and what it has done, in short.

use schemars::JsonSchema;
use serde::Serialize;
use toolhub_core::{Definition, ErrorKind, Limits, Tool, ToolStatusInfo, status::ToolStatus};

use crate::app::App;

/// A tool, how it stands, and what it has done.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Tool")]
pub(crate) struct ToolView {
    #[serde(flatten)]
    definition: Definition,
    /// How it stands for everybody. A thread may have reasons of its own not to be offered it.
    status: ToolStatus,
    /// Why.
    reason: String,
    /// What it has done since the server began.
    stats: ToolCounters,
    /// What holds for its calls; told of a single tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Limits>,
    /// The facts behind its status; told of a single tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<ToolStatusInfo>,
}

/// What a tool has done, in short.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ToolNumbers")]
struct ToolCounters {
    /// How many calls reached the tool and ended.
    calls: u64,
    /// How many of these failed.
    errors: u64,
    /// How many calls are with the tool now.
    in_flight: u64,
    /// How many calls wait for a slot now.
    queued: usize,
    /// 95 of 100 calls took no longer.
    p95_ms: f64,
}

/// Whether a call that ended with this error had reached its tool.
fn is_execution_error(name: &str) -> bool {
    ErrorKind::TABLE.iter().any(|row| row.name == name && row.http == 200 && row.kind != ErrorKind::Cancelled)
}

impl ToolView {
    /// A tool, in short.
    pub(super) fn of(app: &App, tool: &Tool, status: &ToolStatusInfo) -> Self {
        let stats = app.hub().tool_stats(&tool.definition.name);
        let stats = stats.map_or(ToolCounters { calls: 0, errors: 0, in_flight: 0, queued: 0, p95_ms: 0.0 }, |stats| {
            ToolCounters {
                calls: stats.calls,
                errors: stats.errors.iter().filter(|(name, _)| is_execution_error(name)).map(|(_, many)| many).sum(),
                in_flight: stats.in_flight,
                queued: stats.queued,
                p95_ms: stats.latency.p95.as_secs_f64() * 1000.0,
            }
        });
        Self {
            definition: tool.definition.clone(),
            status: status.status,
            reason: status.reason.clone(),
            stats,
            policy: None,
            standing: Some(status.clone()),
        }
    }

    /// With everything that is told of a single tool.
    pub(super) fn with_policy(self, tool: &Tool) -> Self {
        Self { policy: Some(tool.limits().clone()), ..self }
    }

    /// In a list.
    pub(super) fn without_standing(self) -> Self {
        Self { standing: None, ..self }
    }

    pub(super) fn name(&self) -> &str {
        &self.definition.name
    }
}

/// Whether a tool has this text, in small letters, where people would look for it.
pub(super) fn matches_text(definition: &Definition, text: &str) -> bool {
    let title = definition.annotations.title.as_deref().unwrap_or_default();
    [definition.name.as_str(), title, &definition.description].iter().any(|words| words.to_lowercase().contains(text))
}
