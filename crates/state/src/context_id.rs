//! The id of a context: one state in one thread, or one that all threads of a tenant share.
//!
//! In: a thread and a state, or the text `{thread}/{state}`; `~/{state}` for a shared one. Out: a deterministic id and
//! the keys of its rows. The tenant is not part of the id; each request names it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use super::StateKind;
use toolhub_storage::backend::{Partition, PartitionKind, RowKey, Table};
use toolhub_types::ids::{IdError, StateName, Tenant, ThreadId};

/// Replaces the thread in the id of a shared context. No thread id may contain it.
const SHARED_MARKER: &str = "~";

/// One state in one thread, or shared by all threads of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "SmolStr", into = "SmolStr")]
pub struct ContextId {
    thread: Option<ThreadId>,
    state: StateName,
}

toolhub_types::text_schema! { ContextId "`{thread}/{state}`, or `~/{state}` for a state that all threads share" { "pattern": "^[^/]+/[^/]+$" } }

/// The names of states that hold session cookies begin with this.
pub const COOKIE_STATE_PREFIX: &str = "cookies:";

impl ContextId {
    /// Whether the state holds the session cookies of a service: credentials, which no interface shows.
    #[must_use]
    pub fn holds_cookies(&self) -> bool {
        self.state.as_str().starts_with(COOKIE_STATE_PREFIX)
    }

    /// The context of a state in a thread.
    #[must_use]
    pub fn of(thread: ThreadId, state: StateName) -> Self {
        Self { thread: Some(thread), state }
    }

    /// The context of a state that all threads of a tenant share.
    #[must_use]
    pub fn shared(state: StateName) -> Self {
        Self { thread: None, state }
    }

    /// The thread; `None` when all threads share it.
    #[must_use]
    pub fn thread(&self) -> Option<&ThreadId> {
        self.thread.as_ref()
    }

    /// The name of the state.
    #[must_use]
    pub fn state(&self) -> &StateName {
        &self.state
    }

    /// The partition of the context's rows, which is the unit of a commit.
    #[doc(hidden)]
    pub fn partition(&self, tenant: &Tenant) -> Partition {
        let kind = match &self.thread {
            Some(thread) => PartitionKind::Thread(thread.clone()),
            None => PartitionKind::State(self.state.as_str().into()),
        };
        Partition { tenant: tenant.clone(), kind }
    }

    /// The row key of one kind of its state.
    #[doc(hidden)]
    pub fn key(&self, tenant: &Tenant, kind: StateKind) -> RowKey {
        RowKey { partition: self.partition(tenant), table: Table::State, id: self.row_id(kind) }
    }

    /// The row id of one kind of its state.
    pub(crate) fn row_id(&self, kind: StateKind) -> SmolStr {
        format_smolstr!("{}/{kind}", self.state)
    }

    /// The prefix of the ids of all its rows, in every table.
    #[doc(hidden)]
    pub fn prefix(&self) -> String {
        format!("{}/", self.state)
    }

    /// The context a row belongs to, and the rest of the row's id. `None` for a row that belongs to no context.
    pub(crate) fn from_row_key(key: &RowKey) -> Option<(Self, &str)> {
        let (state, rest) = key.id.split_once('/')?;
        let state = StateName::new(state).ok()?;
        match &key.partition.kind {
            PartitionKind::Thread(thread) => Some((Self::of(thread.clone(), state), rest)),
            PartitionKind::State(name) if name == state.as_str() => Some((Self::shared(state), rest)),
            _ => None,
        }
    }
}

impl fmt::Display for ContextId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.thread.as_ref().map_or(SHARED_MARKER, ThreadId::as_str), self.state)
    }
}

impl FromStr for ContextId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let invalid =
            || IdError::new("context id", "it is `thread/state`, or `~/state` for one that all threads share", text);
        let (thread, state) = text.split_once('/').ok_or_else(invalid)?;
        let state = StateName::new(state)?;
        Ok(if thread == SHARED_MARKER { Self::shared(state) } else { Self::of(ThreadId::new(thread)?, state) })
    }
}

impl TryFrom<SmolStr> for ContextId {
    type Error = IdError;
    fn try_from(text: SmolStr) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<ContextId> for SmolStr {
    fn from(id: ContextId) -> Self {
        format_smolstr!("{id}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_id_is_read_back_from_its_text_and_from_its_rows() {
        for text in ["t1/cart", "~/cart", "a.b:c/x-y_z"] {
            let id: ContextId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
            let key = id.key(&Tenant::default(), StateKind::Business);
            assert_eq!(ContextId::from_row_key(&key), Some((id, "business")));
        }
    }

    #[test]
    fn what_is_no_context_id_is_refused() {
        for text in ["", "cart", "/cart", "t1/", "t1/a/b", "~~/cart", "t 1/cart", "t1/~", "t1/ü"] {
            assert!(text.parse::<ContextId>().is_err(), "{text}");
        }
    }
}
