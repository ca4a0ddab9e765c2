//! Rows of followed threads: which node follows which thread.

use smol_str::{SmolStr, format_smolstr};

use toolhub_types::ids::{Tenant, ThreadId, ThreadKey};

pub(super) const PREFIX: &str = "follow/";

/// The row of a thread that a node follows.
pub(super) struct FollowRow {
    pub(super) node: SmolStr,
    pub(super) thread: ThreadKey,
}

impl FollowRow {
    /// `follow/node/tenant/thread`: none of these contains a `/`.
    pub(super) fn id(&self) -> SmolStr {
        let Self { node, thread: ThreadKey { tenant, thread } } = self;
        format_smolstr!("{PREFIX}{node}/{tenant}/{thread}")
    }

    pub(super) fn parse(id: &str) -> Option<Self> {
        let mut parts = id.strip_prefix(PREFIX)?.splitn(3, '/');
        let (node, tenant, thread) = (parts.next()?, parts.next()?, parts.next()?);
        let thread = ThreadKey { tenant: Tenant::new(tenant).ok()?, thread: ThreadId::new(thread).ok()? };
        Some(Self { node: node.into(), thread })
    }
}
