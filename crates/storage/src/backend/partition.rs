//! What is committed together: one transaction, one Redis slot.

use std::{fmt, str::FromStr};

use smol_str::SmolStr;

use toolhub_types::{
    ids::{ArtifactId, CallId, IdError, IdempotencyKey, Tenant, ThreadId, ThreadKey},
    tool::ToolName,
};

/// Rows that are committed together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Partition {
    /// Whose rows they are.
    pub tenant: Tenant,
    /// What holds them together.
    pub kind: PartitionKind,
}

/// What holds the rows of a partition together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PartitionKind {
    /// A conversation: its calls, state and everything else that must agree.
    Thread(ThreadId),
    /// A call that belongs to no conversation.
    Call(CallId),
    /// An idempotency key of a tool. It lies apart from the call it points to, because the caller may repeat
    /// a key without naming the thread.
    Key(ToolName, IdempotencyKey),
    /// An idempotency key of a request that is no call, by the sort of request; its name holds no `/`.
    Request(SmolStr, IdempotencyKey),
    /// An artifact. It belongs to no thread: it is found by its id alone.
    Artifact(ArtifactId),
    /// A tool: what all threads share about it.
    Tool(ToolName),
    /// What a tenant's people have allowed for all of its threads.
    Grants,
    /// A state that all threads of a tenant share, by its name.
    State(SmolStr),
    /// The nodes that share a store. They are nobody's own, so they lie with the default tenant.
    Nodes,
    /// Events. Whose they are is in them; they lie together, with the default tenant, so that there is one order.
    Events,
    /// The keys of a tenant's callers from outside.
    Keys,
    /// What a tenant's callers from outside did.
    Audit,
    /// Tools that were made at run time. They are everybody's, so they lie with the default tenant.
    Tools,
}

impl Partition {
    /// Where the records of a call belong.
    #[must_use]
    pub fn for_call(tenant: Tenant, thread: Option<&ThreadId>, call: CallId) -> Self {
        Self { tenant, kind: thread.map_or(PartitionKind::Call(call), |thread| PartitionKind::Thread(thread.clone())) }
    }

    /// Where the records of a thread belong.
    #[must_use]
    pub fn for_thread(tenant: Tenant, thread: ThreadId) -> Self {
        Self { tenant, kind: PartitionKind::Thread(thread) }
    }

    /// The thread, if that is what holds the rows together.
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

/// `tenant/t/thread`, `tenant/c/call`, `tenant/k/tool/key`, `tenant/r/sort/key` for other requests, `tenant/a/artifact`, `tenant/s/tool`, `tenant/g/`, `tenant/h/state`,
/// `tenant/n/`, `tenant/e/`, `tenant/y/` for keys, `tenant/u/` for the audit. Only the last part may hold a `/`, so the text can be read back.
impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tenant.as_str())?;
        match &self.kind {
            // Plainly: every load and every write of a store says it.
            PartitionKind::Thread(thread) => f.write_str("/t/").and_then(|()| f.write_str(thread.as_str())),
            PartitionKind::Call(call) => write!(f, "/c/{call}"),
            PartitionKind::Key(tool, key) => write!(f, "/k/{tool}/{key}"),
            PartitionKind::Request(sort, key) => write!(f, "/r/{sort}/{key}"),
            PartitionKind::Artifact(id) => write!(f, "/a/{id}"),
            PartitionKind::Tool(tool) => write!(f, "/s/{tool}"),
            PartitionKind::Grants => write!(f, "/g/"),
            PartitionKind::State(name) => write!(f, "/h/{name}"),
            PartitionKind::Nodes => write!(f, "/n/"),
            PartitionKind::Events => write!(f, "/e/"),
            PartitionKind::Keys => write!(f, "/y/"),
            PartitionKind::Audit => write!(f, "/u/"),
            PartitionKind::Tools => write!(f, "/m/"),
        }
    }
}

impl FromStr for Partition {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError::new("partition", "it is `tenant/t/thread` or the like", text);
        let mut parts = text.splitn(3, '/');
        let (Some(tenant), Some(sort), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong());
        };
        let place = match sort {
            "t" => PartitionKind::Thread(ThreadId::new(rest)?),
            "c" => PartitionKind::Call(rest.parse()?),
            "s" => PartitionKind::Tool(ToolName::new(rest).map_err(|_| wrong())?),
            "g" if rest.is_empty() => PartitionKind::Grants,
            "n" if rest.is_empty() => PartitionKind::Nodes,
            "e" if rest.is_empty() => PartitionKind::Events,
            "y" if rest.is_empty() => PartitionKind::Keys,
            "u" if rest.is_empty() => PartitionKind::Audit,
            "m" if rest.is_empty() => PartitionKind::Tools,
            "h" if !rest.is_empty() => PartitionKind::State(rest.into()),
            "a" => PartitionKind::Artifact(ArtifactId::new(rest)?),
            "r" => {
                let (sort, key) = rest.split_once('/').filter(|(sort, _)| !sort.is_empty()).ok_or_else(wrong)?;
                PartitionKind::Request(sort.into(), IdempotencyKey::new(key)?)
            }
            "k" => {
                let (tool, key) = rest.split_once('/').ok_or_else(wrong)?;
                PartitionKind::Key(ToolName::new(tool).map_err(|_| wrong())?, IdempotencyKey::new(key)?)
            }
            _ => return Err(wrong()),
        };
        Ok(Self { tenant: Tenant::new(tenant)?, kind: place })
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
            Partition { tenant: tenant(), kind: PartitionKind::State("cart".into()) },
        ] {
            assert_eq!(partition.to_string().parse(), Ok(partition));
        }
        for wrong in [
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
            assert!(wrong.parse::<Partition>().is_err(), "{wrong}");
        }
    }
}
