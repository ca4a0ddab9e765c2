//! What an answer depends on, as one short key.
//!
//! In: the tenant, the tool as it is defined, the arguments, and for a tool with state the thread and what its states
//! were. Out: a key that changes with each of them.
//! Cannot see a tool whose code changed and whose definition did not; who replaces a tool forgets its answers.

use serde_json::Value;
use toolhub_storage::backend::RowVersion;
use toolhub_types::{
    digest,
    ids::{Tenant, ThreadId},
    tool::ToolName,
};

/// Everything an answer depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    /// Part of the hash already; kept to find the answers of a tool.
    tool: ToolName,
    hash: [u8; 32],
}

/// A tool as it is defined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToolIdentity<'a> {
    pub(crate) name: &'a ToolName,
    /// The fingerprint of its definition.
    pub(crate) definition: &'a str,
}

/// A state by its name and which writing of it was seen; `None` where the thread has none yet. The version alone would
/// not do: a state that is deleted and written again counts from the beginning.
pub(crate) type StateRowVersion<'a> = (&'a str, Option<RowVersion>);

impl Fingerprint {
    /// The fingerprint of a call whose answer depends on nothing but itself.
    pub(crate) fn of(tenant: &Tenant, tool: ToolIdentity<'_>, arguments: &Value) -> Self {
        Self::compute(tenant, tool, arguments, &[])
    }

    /// The fingerprint of a call whose answer depends on what its thread remembers, too. The order of states does not
    /// matter.
    pub(crate) fn in_thread(
        tenant: &Tenant,
        tool: ToolIdentity<'_>,
        arguments: &Value,
        thread: &ThreadId,
        states: &[StateRowVersion<'_>],
    ) -> Self {
        let mut states = states.to_vec();
        states.sort_unstable_by_key(|(name, _)| *name);
        let mut parts = vec![thread.as_str().as_bytes().to_vec()];
        for (name, seen) in states {
            let seen = seen.map(|seen| [seen.number.to_le_bytes(), seen.stamp.to_le_bytes()].concat());
            parts.extend([name.as_bytes().to_vec(), seen.unwrap_or_default()]);
        }
        Self::compute(tenant, tool, arguments, &parts)
    }

    /// Whose answer it is.
    pub(crate) fn tool(&self) -> &ToolName {
        &self.tool
    }

    fn compute(tenant: &Tenant, tool: ToolIdentity<'_>, arguments: &Value, more: &[Vec<u8>]) -> Self {
        let arguments = digest::canonical_json(arguments);
        let parts = [tenant.as_str().as_bytes(), tool.definition.as_bytes(), arguments.as_bytes()];
        let hash = digest::sha256(parts.into_iter().chain(more.iter().map(Vec::as_slice)));
        Self { tool: tool.name.clone(), hash }
    }
}
