//! Cache key: a hash of everything a result depends on.
//!
//! In: the tenant, the tool's definition, the arguments, and for a tool with state the thread and the row versions of
//! its states. Out: a key that changes with each of them. A change of the tool's code without a change of its
//! definition does not change the key, so replacing a tool must also remove its cached results.

use serde_json::Value;
use toolhub_storage::backend::RowVersion;
use toolhub_types::{
    digest,
    ids::{Tenant, ThreadId},
    tool::ToolName,
};

/// The cache key of a result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    /// Also part of the hash; stored to find all results of a tool.
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

/// The name and row version of a state; `None` if the thread has no such state yet. The version number alone does not
/// suffice: a state that is deleted and written again starts at 1.
pub(crate) type StateRowVersion<'a> = (&'a str, Option<RowVersion>);

impl Fingerprint {
    /// The fingerprint of a call of a stateless tool.
    pub(crate) fn of(tenant: &Tenant, tool: ToolIdentity<'_>, arguments: &Value) -> Self {
        Self::compute(tenant, tool, arguments, &[])
    }

    /// The fingerprint of a call whose result also depends on the states of its thread, in any order.
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
        for (name, version) in states {
            let version = version.map(|version| [version.number.to_le_bytes(), version.stamp.to_le_bytes()].concat());
            parts.extend([name.as_bytes().to_vec(), version.unwrap_or_default()]);
        }
        Self::compute(tenant, tool, arguments, &parts)
    }

    /// The tool of the cached result.
    pub(crate) fn tool(&self) -> &ToolName {
        &self.tool
    }

    fn compute(tenant: &Tenant, tool: ToolIdentity<'_>, arguments: &Value, extra: &[Vec<u8>]) -> Self {
        let arguments = digest::canonical_json(arguments);
        let parts = [tenant.as_str().as_bytes(), tool.definition.as_bytes(), arguments.as_bytes()];
        let hash = digest::sha256(parts.into_iter().chain(extra.iter().map(Vec::as_slice)));
        Self { tool: tool.name.clone(), hash }
    }
}
