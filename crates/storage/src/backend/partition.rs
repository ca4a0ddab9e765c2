//! Partition of rows: the unit of a transaction.

use std::{fmt, str::FromStr};

use smol_str::SmolStr;

use toolhub_types::{
    ids::{ArtifactId, CallId, IdError, IdempotencyKey, Tenant, ThreadId, ThreadKey},
    tool::ToolName,
};

/// A set of rows that can be committed in one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Partition {
    /// The tenant that owns the rows.
    pub tenant: Tenant,
    /// What the rows belong to.
    pub kind: PartitionKind,
}

/// What the rows of a partition belong to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PartitionKind {
    /// A conversation thread: its calls, state and everything else that must be consistent.
    Thread(ThreadId),
    /// A call without a thread.
    Call(CallId),
    /// An idempotency key of a tool. It is separate from the call it points to, because the caller may repeat
    /// a key without naming the thread.
    Key(ToolName, IdempotencyKey),
    /// An idempotency key of a request other than a call, by request type; the type contains no `/`.
    Request(SmolStr, IdempotencyKey),
    /// An artifact. It belongs to no thread, because it is looked up by its id alone.
    Artifact(ArtifactId),
    /// A tool: what all threads share about it, such as its status.
    Tool(ToolName),
    /// Grants that apply to all threads of a tenant.
    Grants,
    /// A state that all threads of a tenant share, by its name.
    State(SmolStr),
    /// The nodes that share a store. They belong to no tenant, so they are stored under the default tenant.
    Nodes,
    /// Events of all tenants, in one partition of the default tenant so that they have a total order. Each event names its tenant.
    Events,
    /// The API keys of a tenant.
    Keys,
    /// The audit log of a tenant's API callers.
    Audit,
    /// Tools that were created at run time. All tenants share them, so they are stored under the default tenant.
    Tools,
    /// The sessions of a tenant's MCP clients.
    McpSessions,
    /// Which layouts the records of the store may have. They belong to no tenant, so this is stored under the default tenant.
    Layouts,
    /// Alerts and the messages about them. They belong to no tenant, so they are stored under the default tenant.
    Alerts,
}

impl Partition {
    /// The partition of a call's records: its thread, or the call itself if it has none.
    #[must_use]
    pub fn for_call(tenant: Tenant, thread: Option<&ThreadId>, call: CallId) -> Self {
        Self { tenant, kind: thread.map_or(PartitionKind::Call(call), |thread| PartitionKind::Thread(thread.clone())) }
    }

    /// The partition of a thread's records.
    #[must_use]
    pub fn for_thread(tenant: Tenant, thread: ThreadId) -> Self {
        Self { tenant, kind: PartitionKind::Thread(thread) }
    }

    /// The thread, if this is a thread's partition.
    #[must_use]
    pub fn thread(&self) -> Option<&ThreadId> {
        if let PartitionKind::Thread(thread) = &self.kind { Some(thread) } else { None }
    }
}

impl From<&ThreadKey> for Partition {
    fn from(key: &ThreadKey) -> Self {
        Self::for_thread(key.tenant.clone(), key.thread.clone())
    }
}

/// `tenant/t/thread`, `tenant/c/call`, `tenant/k/tool/key`, `tenant/r/type/key` for other requests, `tenant/a/artifact`,
/// `tenant/s/tool`, `tenant/g/`, `tenant/h/state`, `tenant/n/`, `tenant/e/`, `tenant/y/` for keys, `tenant/u/` for the audit
/// log, `tenant/m/` for tools, `tenant/p/` for MCP sessions, `tenant/l/` for layouts, `tenant/w/` for alerts. Only the last part may contain a `/`, so the text
/// can be parsed back.
impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tenant.as_str())?;
        match &self.kind {
            // Without the formatting machinery: every load and every write formats this partition.
            PartitionKind::Thread(thread) => f.write_str("/t/").and_then(|()| f.write_str(thread.as_str())),
            PartitionKind::Call(call) => write!(f, "/c/{call}"),
            PartitionKind::Key(tool, key) => write!(f, "/k/{tool}/{key}"),
            PartitionKind::Request(request, key) => write!(f, "/r/{request}/{key}"),
            PartitionKind::Artifact(id) => write!(f, "/a/{id}"),
            PartitionKind::Tool(tool) => write!(f, "/s/{tool}"),
            PartitionKind::Grants => write!(f, "/g/"),
            PartitionKind::State(name) => write!(f, "/h/{name}"),
            PartitionKind::Nodes => write!(f, "/n/"),
            PartitionKind::Events => write!(f, "/e/"),
            PartitionKind::Keys => write!(f, "/y/"),
            PartitionKind::Audit => write!(f, "/u/"),
            PartitionKind::Tools => write!(f, "/m/"),
            PartitionKind::McpSessions => write!(f, "/p/"),
            PartitionKind::Layouts => write!(f, "/l/"),
            PartitionKind::Alerts => write!(f, "/w/"),
        }
    }
}

impl FromStr for Partition {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let invalid = || IdError::new("partition", "expected `tenant/kind/…`, e.g. `tenant/t/thread`", text);
        let mut parts = text.splitn(3, '/');
        let (Some(tenant), Some(tag), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(invalid());
        };
        let kind = match tag {
            "t" => PartitionKind::Thread(ThreadId::new(rest)?),
            "c" => PartitionKind::Call(rest.parse()?),
            "s" => PartitionKind::Tool(ToolName::new(rest).map_err(|_| invalid())?),
            "g" if rest.is_empty() => PartitionKind::Grants,
            "n" if rest.is_empty() => PartitionKind::Nodes,
            "e" if rest.is_empty() => PartitionKind::Events,
            "y" if rest.is_empty() => PartitionKind::Keys,
            "u" if rest.is_empty() => PartitionKind::Audit,
            "m" if rest.is_empty() => PartitionKind::Tools,
            "p" if rest.is_empty() => PartitionKind::McpSessions,
            "l" if rest.is_empty() => PartitionKind::Layouts,
            "w" if rest.is_empty() => PartitionKind::Alerts,
            "h" if !rest.is_empty() => PartitionKind::State(rest.into()),
            "a" => PartitionKind::Artifact(ArtifactId::new(rest)?),
            "r" => {
                let (request, key) =
                    rest.split_once('/').filter(|(request, _)| !request.is_empty()).ok_or_else(invalid)?;
                PartitionKind::Request(request.into(), IdempotencyKey::new(key)?)
            }
            "k" => {
                let (tool, key) = rest.split_once('/').ok_or_else(invalid)?;
                PartitionKind::Key(ToolName::new(tool).map_err(|_| invalid())?, IdempotencyKey::new(key)?)
            }
            _ => return Err(invalid()),
        };
        Ok(Self { tenant: Tenant::new(tenant)?, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_types::timestamp::Timestamp;

    #[test]
    fn a_partition_is_read_back_from_its_text() {
        let tenant = Tenant::default;
        let key = PartitionKind::Key(ToolName::new("pay").unwrap(), IdempotencyKey::new("a/b c").unwrap());
        for partition in [
            Partition::for_thread(tenant(), ThreadId::new("t:1").unwrap()),
            Partition::for_call(tenant(), None, CallId::mint(Timestamp::from_millis(5))),
            Partition { tenant: tenant(), kind: key },
            Partition {
                tenant: tenant(),
                kind: PartitionKind::Request("threads".into(), IdempotencyKey::new("a/b").unwrap()),
            },
            Partition { tenant: tenant(), kind: PartitionKind::Tool(ToolName::new("pay").unwrap()) },
            Partition { tenant: tenant(), kind: PartitionKind::Artifact(ArtifactId::mint()) },
            Partition { tenant: tenant(), kind: PartitionKind::Grants },
            Partition { tenant: tenant(), kind: PartitionKind::Nodes },
            Partition { tenant: tenant(), kind: PartitionKind::Events },
            Partition { tenant: tenant(), kind: PartitionKind::Keys },
            Partition { tenant: tenant(), kind: PartitionKind::Audit },
            Partition { tenant: tenant(), kind: PartitionKind::Tools },
            Partition { tenant: tenant(), kind: PartitionKind::McpSessions },
            Partition { tenant: tenant(), kind: PartitionKind::Layouts },
            Partition { tenant: tenant(), kind: PartitionKind::Alerts },
            Partition { tenant: tenant(), kind: PartitionKind::State("cart".into()) },
        ] {
            assert_eq!(partition.to_string().parse(), Ok(partition));
        }
        for invalid in [
            "",
            "main",
            "main/t",
            "main/x/1",
            "main/k/pay",
            "main/r/x",
            "main/r//x",
            "a b/t/1",
            "main/g/x",
            "main/y/x",
            "main/u/x",
            "main/h/",
        ] {
            assert!(invalid.parse::<Partition>().is_err(), "{invalid}");
        }
    }
}
