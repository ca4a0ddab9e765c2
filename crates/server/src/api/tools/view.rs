//! The JSON form of a tool: its definition, its shared status, and a summary of its statistics.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;
use toolhub_core::{Definition, ErrorKind, Limits, Tool, ToolName, ToolStatusInfo, ids::ThreadId, status::ToolStatus};

use crate::app::App;

/// A tool, its status and its statistics.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Tool")]
pub(crate) struct ToolView {
    #[serde(flatten)]
    definition: Definition,
    /// Its shared status. A thread may have its own reasons not to be offered it.
    status: ToolStatus,
    /// The reason for the status.
    reason: String,
    /// The number of threads in which it is withheld because of what happened there.
    #[serde(skip_serializing_if = "is_zero")]
    withheld_threads: usize,
    /// The first of these threads, by id; only for a single tool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    withheld_in: Vec<ThreadId>,
    /// Its statistics since the server started.
    stats: ToolCounters,
    /// The limits of its calls; only for a single tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Limits>,
    /// The facts behind its status; only for a single tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<ToolStatusInfo>,
}

/// A summary of a tool's statistics.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ToolNumbers")]
struct ToolCounters {
    /// Calls that reached the tool and ended.
    calls: u64,
    /// How many of these failed; cancelled ones do not count.
    errors: u64,
    /// Calls the tool is executing now.
    in_flight: u64,
    /// Calls waiting for a slot now.
    queued: usize,
    /// 95th percentile of the latency.
    p95_ms: f64,
}

impl ToolView {
    /// The view of a tool without its limits.
    pub(super) fn of(app: &App, tool: &Tool, status: &ToolStatusInfo) -> Self {
        let (stats, cancelled) = (app.hub().tool_stats(&tool.definition.name), ErrorKind::Cancelled.name());
        let stats = stats.map_or(ToolCounters { calls: 0, errors: 0, in_flight: 0, queued: 0, p95_ms: 0.0 }, |stats| {
            ToolCounters {
                calls: stats.calls,
                errors: stats.errors.iter().filter(|(name, _)| **name != cancelled).map(|(_, count)| count).sum(),
                in_flight: stats.in_flight,
                queued: stats.queued,
                p95_ms: stats.latency.p95.as_secs_f64() * 1000.0,
            }
        });
        Self {
            definition: tool.definition.clone(),
            status: status.status,
            reason: status.reason.clone(),
            withheld_threads: 0,
            withheld_in: Vec::new(),
            stats,
            policy: None,
            standing: Some(status.clone()),
        }
    }

    /// Adds in how many threads it is withheld.
    pub(super) fn with_withheld_threads(self, counts: &HashMap<ToolName, usize>) -> Self {
        Self { withheld_threads: counts.get(&self.definition.name).copied().unwrap_or_default(), ..self }
    }

    /// Adds threads in which it is withheld, for the view of a single tool.
    pub(super) fn with_withheld_in(self, threads: Vec<ThreadId>) -> Self {
        Self { withheld_in: threads, ..self }
    }

    /// Adds the limits, for the view of a single tool.
    pub(super) fn with_policy(self, tool: &Tool) -> Self {
        Self { policy: Some(tool.limits().clone()), ..self }
    }

    /// Removes the facts behind the status, for lists.
    pub(super) fn without_status_details(self) -> Self {
        Self { standing: None, ..self }
    }

    pub(super) fn name(&self) -> &str {
        &self.definition.name
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Whether the name, title or description contains this text, which must be in lower case.
pub(super) fn matches_text(definition: &Definition, text: &str) -> bool {
    let title = definition.annotations.title.as_deref().unwrap_or_default();
    [definition.name.as_str(), title, &definition.description].iter().any(|field| field.to_lowercase().contains(text))
}
