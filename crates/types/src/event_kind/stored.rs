//! Reads the kinds of stored events.
//!
//! In: the name of an event and its fields. Out: its kind. Only kinds that are [persisted](EventKind::is_persisted) can be read.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::EventKind;

impl EventKind {
    /// The kind of a stored event; `None` if its name or fields are unknown, because a newer version has stored it.
    #[must_use]
    pub fn from_stored(name: &str, data: Map<String, Value>) -> Option<Self> {
        let mut fields = Fields(data);
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
            },
            "node.joined" => Self::NodeJoined { node_id: fields.take("nodeId")?, node_name: fields.take("nodeName")? },
            "node.left" => Self::NodeLeft {
                node_id: fields.take("nodeId")?,
                node_name: fields.take("nodeName")?,
                reason: fields.take("reason")?,
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
    fn every_stored_kind_is_read_as_it_was_written() {
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
            ("store.lost", json!({"commits": 2, "since": "2026-01-01T00:00:00.000Z", "partitions": ["main/t"]})),
            ("node.joined", json!({"nodeId": "n", "nodeName": "one"})),
            ("node.left", json!({"nodeId": "n", "nodeName": "one", "reason": "r"})),
        ];
        let mut names = Vec::new();
        for (name, fields) in stored {
            let kind = EventKind::from_stored(name, fields.as_object().unwrap().clone());
            let kind = kind.unwrap_or_else(|| panic!("{name} is not read"));
            assert!(kind.is_persisted());
            assert_eq!((kind.name(), serde_json::to_value(&kind).unwrap()), (name, fields));
            names.push(name);
        }
        names.dedup();
        assert_eq!(names.len(), 9, "as many as `is_persisted` names");
        assert_eq!(EventKind::from_stored("tool.registered", Map::new()), None);
        assert_eq!(EventKind::from_stored("node.left", Map::new()), None, "a field is missing");
    }
}
