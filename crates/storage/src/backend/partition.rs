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
    pub place: Place,
}

/// What holds the rows of a partition together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
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
    pub fn of_call(tenant: Tenant, thread: Option<&ThreadId>, call: CallId) -> Self {
        Self { tenant, place: thread.map_or(Place::Call(call), |thread| Place::Thread(thread.clone())) }
    }

    /// Where the records of a thread belong.
    #[must_use]
    pub fn of_thread(tenant: Tenant, thread: ThreadId) -> Self {
        Self { tenant, place: Place::Thread(thread) }
    }

    /// The thread, if that is what holds the rows together.
    #[must_use]
    pub fn thread(&self) -> Option<&ThreadId> {
        if let Place::Thread(thread) = &self.place { Some(thread) } else { None }
    }
}

impl From<&ThreadKey> for Partition {
    fn from(key: &ThreadKey) -> Self {
        Self::of_thread(key.tenant.clone(), key.thread.clone())
    }
}

/// `tenant/t/thread`, `tenant/c/call`, `tenant/k/tool/key`, `tenant/r/sort/key` for other requests, `tenant/a/artifact`, `tenant/s/tool`, `tenant/g/`, `tenant/h/state`,
/// `tenant/n/`, `tenant/e/`, `tenant/y/` for keys, `tenant/u/` for the audit. Only the last part may hold a `/`, so the text can be read back.
impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tenant.as_str())?;
        match &self.place {
            // Plainly: every load and every write of a store says it.
            Place::Thread(thread) => f.write_str("/t/").and_then(|()| f.write_str(thread.as_str())),
            Place::Call(call) => write!(f, "/c/{call}"),
            Place::Key(tool, key) => write!(f, "/k/{tool}/{key}"),
            Place::Request(sort, key) => write!(f, "/r/{sort}/{key}"),
            Place::Artifact(id) => write!(f, "/a/{id}"),
            Place::Tool(tool) => write!(f, "/s/{tool}"),
            Place::Grants => write!(f, "/g/"),
            Place::State(name) => write!(f, "/h/{name}"),
            Place::Nodes => write!(f, "/n/"),
            Place::Events => write!(f, "/e/"),
            Place::Keys => write!(f, "/y/"),
            Place::Audit => write!(f, "/u/"),
            Place::Tools => write!(f, "/m/"),
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
            "t" => Place::Thread(ThreadId::new(rest)?),
            "c" => Place::Call(rest.parse()?),
            "s" => Place::Tool(ToolName::new(rest).map_err(|_| wrong())?),
            "g" if rest.is_empty() => Place::Grants,
            "n" if rest.is_empty() => Place::Nodes,
            "e" if rest.is_empty() => Place::Events,
            "y" if rest.is_empty() => Place::Keys,
            "u" if rest.is_empty() => Place::Audit,
            "m" if rest.is_empty() => Place::Tools,
            "h" if !rest.is_empty() => Place::State(rest.into()),
            "a" => Place::Artifact(ArtifactId::new(rest)?),
            "r" => {
                let (sort, key) = rest.split_once('/').filter(|(sort, _)| !sort.is_empty()).ok_or_else(wrong)?;
                Place::Request(sort.into(), IdempotencyKey::new(key)?)
            }
            "k" => {
                let (tool, key) = rest.split_once('/').ok_or_else(wrong)?;
                Place::Key(ToolName::new(tool).map_err(|_| wrong())?, IdempotencyKey::new(key)?)
            }
            _ => return Err(wrong()),
        };
        Ok(Self { tenant: Tenant::new(tenant)?, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_types::timestamp::Timestamp;

    #[test]
    fn a_partition_is_read_back_from_its_text() {
        let tenant = Tenant::default;
        let key = Place::Key(ToolName::new("pay").unwrap(), IdempotencyKey::new("a/b c").unwrap());
        for partition in [
            Partition::of_thread(tenant(), ThreadId::new("t:1").unwrap()),
            Partition::of_call(tenant(), None, CallId::mint(Timestamp::from_millis(5))),
            Partition { tenant: tenant(), place: key },
            Partition {
                tenant: tenant(),
                place: Place::Request("threads".into(), IdempotencyKey::new("a/b").unwrap()),
            },
            Partition { tenant: tenant(), place: Place::Tool(ToolName::new("pay").unwrap()) },
            Partition { tenant: tenant(), place: Place::Artifact(ArtifactId::mint()) },
            Partition { tenant: tenant(), place: Place::Grants },
            Partition { tenant: tenant(), place: Place::Nodes },
            Partition { tenant: tenant(), place: Place::Events },
            Partition { tenant: tenant(), place: Place::Keys },
            Partition { tenant: tenant(), place: Place::Audit },
            Partition { tenant: tenant(), place: Place::Tools },
            Partition { tenant: tenant(), place: Place::State("cart".into()) },
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
