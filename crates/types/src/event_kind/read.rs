//! Reads the kinds of events that other nodes stored or passed on.
//!
//! In: the name of an event and its fields. Out: its kind. Only kinds that are [persisted](EventKind::is_persisted) or
//! [relayed](EventKind::is_relayed) can be read.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::EventKind;
use crate::millis;

impl EventKind {
    /// The kind of a stored or relayed event; `None` if its name or fields are unknown, because a newer version has written it.
    #[must_use]
    pub fn from_fields(name: &str, data: Map<String, Value>) -> Option<Self> {
        let mut fields = Fields(data);
        Self::read_persisted(name, &mut fields).or_else(|| Self::read_relayed(name, &mut fields))
    }

    fn read_persisted(name: &str, fields: &mut Fields) -> Option<Self> {
        Some(match name {
            "tool.status.changed" => Self::StatusChanged {
                tool_name: fields.take("toolName")?,
                old_status: fields.take("oldStatus")?,
                new_status: fields.take("newStatus")?,
                reason: fields.take("reason")?,
            },
            "approval.requested" => Self::ApprovalRequested {
                approval_id: fields.take("approvalId")?,
                call_id: fields.take("callId")?,
                run_id: fields.take("runId")?,
                tool_name: fields.take("toolName")?,
                rule: fields.take("rule")?,
                reason: fields.take("reason")?,
                expires_at: fields.take("expiresAt")?,
            },
            "approval.resolved" => Self::ApprovalResolved {
                approval_id: fields.take("approvalId")?,
                call_id: fields.take("callId")?,
                run_id: fields.take("runId")?,
                tool_name: fields.take("toolName")?,
                state: fields.take("state")?,
                outcome: fields.take("outcome")?,
                by: fields.take("by")?,
            },
            "config.reloaded" => Self::ConfigReloaded {
                added: fields.take("added")?,
                replaced: fields.take("replaced")?,
                removed: fields.take("removed")?,
                adjusted: fields.take("adjusted")?,
                needs_restart: fields.take("needsRestart")?,
            },
            "mcp.server.connected" => {
                Self::ServerConnected { server_name: fields.take("serverName")?, tools: fields.take("tools")? }
            }
            "mcp.server.disconnected" => Self::ServerDisconnected {
                server_name: fields.take("serverName")?,
                tools: fields.take("tools")?,
                reason: fields.take("reason")?,
            },
            "store.lost" => Self::StoreLost {
                commits: fields.take("commits")?,
                since: fields.take("since")?,
                partitions: fields.take("partitions")?,
                other_partitions: fields.take::<Option<u64>>("otherPartitions")?.unwrap_or_default(),
                calls: fields.take::<Option<Vec<_>>>("calls")?.unwrap_or_default(),
                other_calls: fields.take::<Option<u64>>("otherCalls")?.unwrap_or_default(),
            },
            "node.joined" => Self::NodeJoined { node_id: fields.take("nodeId")?, node_name: fields.take("nodeName")? },
            "node.left" => Self::NodeLeft {
                node_id: fields.take("nodeId")?,
                node_name: fields.take("nodeName")?,
                reason: fields.take("reason")?,
            },
            "alert.failed" => Self::AlertFailed {
                alert_target: fields.take("alertTarget")?,
                message_id: fields.take("messageId")?,
                reason: fields.take("reason")?,
                disabled: fields.take("disabled")?,
            },
            _ => return None,
        })
    }

    fn read_relayed(name: &str, fields: &mut Fields) -> Option<Self> {
        Some(match name {
            "tool.execution.started" => Self::ExecutionStarted {
                call_id: fields.take("callId")?,
                run_id: fields.take("runId")?,
                tool_name: fields.take("toolName")?,
            },
            "tool.execution.completed" => Self::ExecutionCompleted {
                call_id: fields.take("callId")?,
                run_id: fields.take("runId")?,
                tool_name: fields.take("toolName")?,
                effect: fields.take("effect")?,
                duration: millis::fractional::deserialize(fields.0.remove("durationMs")?).ok()?,
                replayed: fields.take("replayed")?,
            },
            "tool.execution.failed" => Self::ExecutionFailed {
                call_id: fields.take("callId")?,
                run_id: fields.take("runId")?,
                tool_name: fields.take("toolName")?,
                status: fields.take("status")?,
                effect: fields.take("effect")?,
                error: fields.take("error")?,
                message: fields.take("message")?,
            },
            "call.progress" => Self::CallProgress {
                call_id: fields.take("callId")?,
                run_id: fields.take("runId")?,
                tool_name: fields.take("toolName")?,
                message: fields.take("message")?,
                fraction: fields.take("fraction")?,
                done: fields.take("done")?,
                total: fields.take("total")?,
            },
            "call.log" => Self::CallLog {
                call_id: fields.take("callId")?,
                run_id: fields.take("runId")?,
                tool_name: fields.take("toolName")?,
                level: fields.take("level")?,
                message: fields.take("message")?,
            },
            "run.started" => Self::RunStarted { run_id: fields.take("runId")?, agent: fields.take("agent")? },
            "run.completed" => Self::RunCompleted {
                run_id: fields.take("runId")?,
                status: fields.take("status")?,
                steps: fields.take("steps")?,
                stop: fields.take("stop")?,
            },
            "run.failed" => Self::RunFailed {
                run_id: fields.take("runId")?,
                steps: fields.take("steps")?,
                code: fields.take("code")?,
                message: fields.take("message")?,
            },
            "message.delta" => Self::MessageDelta {
                run_id: fields.take("runId")?,
                text: fields.take("text")?,
                again: fields.take::<Option<bool>>("again")?.unwrap_or_default(),
            },
            "message.completed" => Self::MessageCompleted {
                run_id: fields.take("runId")?,
                role: fields.take("role")?,
                content: fields.take("content")?,
                calls: fields.take("calls")?,
            },
            _ => return None,
        })
    }
}

struct Fields(Map<String, Value>);

impl Fields {
    /// A field. One that is absent reads as null, which only optional fields accept.
    fn take<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        T::deserialize(self.0.remove(name).unwrap_or(Value::Null)).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_stored_or_relayed_kind_is_read_as_it_was_written() {
        let (approval, call, run) = (
            "apr_01a1f14b-ac2f-7eca-a78e-17031b6e4aba",
            "call_01a1f14b-ac2f-7eca-a78e-17031b6e4aba",
            "run_01a1f14b-ac2f-7eca-a78e-17031b6e4aba",
        );
        let stored = [
            (
                "tool.status.changed",
                json!({"toolName": "a", "oldStatus": "available", "newStatus": "failed", "reason": "r"}),
            ),
            ("tool.status.changed", json!({"toolName": "a", "newStatus": "available", "reason": "r"})),
            (
                "approval.requested",
                json!({"approvalId": approval, "callId": call, "runId": run, "toolName": "a", "rule": "r", "reason": "w",
                       "expiresAt": "2026-01-01T00:00:00.000Z"}),
            ),
            (
                "approval.resolved",
                json!({"approvalId": approval, "callId": call, "toolName": "a", "state": "approved", "outcome": "proceed_once",
                       "by": "me"}),
            ),
            (
                "config.reloaded",
                json!({"added": ["a"], "replaced": [], "removed": [], "adjusted": [], "needsRestart": ["k"]}),
            ),
            ("mcp.server.connected", json!({"serverName": "s", "tools": 3})),
            ("mcp.server.disconnected", json!({"serverName": "s", "tools": 3, "reason": "r"})),
            (
                "store.lost",
                json!({"commits": 2, "since": "2026-01-01T00:00:00.000Z", "partitions": ["main/t"], "otherPartitions": 0,
                       "calls": [call], "otherCalls": 3}),
            ),
            ("node.joined", json!({"nodeId": "n", "nodeName": "one"})),
            ("node.left", json!({"nodeId": "n", "nodeName": "one", "reason": "r"})),
            ("alert.failed", json!({"alertTarget": "ops", "messageId": "msg_1", "reason": "r", "disabled": false})),
            ("tool.execution.started", json!({"callId": call, "runId": run, "toolName": "a"})),
            (
                "tool.execution.completed",
                json!({"callId": call, "toolName": "a", "effect": "none", "durationMs": 1.5, "replayed": false}),
            ),
            (
                "tool.execution.failed",
                json!({"callId": call, "toolName": "a", "status": "error", "effect": "unknown", "error": "timeout", "message": "m"}),
            ),
            (
                "call.progress",
                json!({"callId": call, "runId": run, "toolName": "a", "message": "m", "fraction": 0.5, "done": 1.0, "total": 2.0}),
            ),
            ("call.log", json!({"callId": call, "toolName": "a", "level": "info", "message": "m"})),
            ("run.started", json!({"runId": run, "agent": "a"})),
            ("run.completed", json!({"runId": run, "status": "completed", "steps": 2, "stop": "end"})),
            ("run.failed", json!({"runId": run, "steps": 2, "code": "c", "message": "m"})),
            ("message.delta", json!({"runId": run, "text": "t"})),
            ("message.delta", json!({"runId": run, "text": "t", "again": true})),
            (
                "message.completed",
                json!({"runId": run, "role": "assistant", "content": "t",
                       "calls": [{"id": call, "tool": "a", "arguments": {"n": 1}}]}),
            ),
        ];
        let mut names = Vec::new();
        for (name, fields) in stored {
            let kind = EventKind::from_fields(name, fields.as_object().unwrap().clone());
            let kind = kind.unwrap_or_else(|| panic!("{name} is not read"));
            assert!(kind.is_persisted() != kind.is_relayed());
            assert_eq!((kind.name(), serde_json::to_value(&kind).unwrap()), (name, fields));
            names.push(name);
        }
        names.dedup();
        assert_eq!(names.len(), 20, "as many as `is_persisted` and `is_relayed` name");
        assert_eq!(EventKind::from_fields("tool.registered", Map::new()), None);
        assert_eq!(EventKind::from_fields("node.left", Map::new()), None, "a field is missing");
    }
}
