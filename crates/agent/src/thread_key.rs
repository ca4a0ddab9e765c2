//! Names one conversation: a tenant and one of its threads.

use toolhub_core::ids::{Tenant, ThreadId};

/// Which conversation it is. A thread's name means something only together with its tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ThreadKey {
    pub(crate) tenant: Tenant,
    pub(crate) thread: ThreadId,
}

impl ThreadKey {
    pub(crate) fn new(tenant: &Tenant, thread: &ThreadId) -> Self {
        Self { tenant: tenant.clone(), thread: thread.clone() }
    }
}
