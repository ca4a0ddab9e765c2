//! Bounds the memory that large arguments of one tenant's calls take.
//!
//! In: a tenant and the size of the parsed arguments of a call. Out: a permit, held while the call waits and runs; or a
//! refusal. Calls with small arguments are bounded by the queues and need no permit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolhub_types::{count_by_key::CountByKey, ids::Tenant};

/// The memory that arguments of one tenant's calls may take, by default.
pub(crate) const DEFAULT_LIMIT: usize = 256 << 20;

/// The memory of all large arguments.
pub(crate) struct ArgumentMemory {
    /// Maximum of one tenant, in bytes.
    limit: usize,
    by_tenant: Arc<Mutex<CountByKey<Tenant>>>,
}

/// The arguments of a tenant's calls take too much memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ArgumentMemoryExceeded {
    pub(crate) limit: usize,
}

impl ArgumentMemory {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, by_tenant: Arc::default() }
    }

    /// Reserves the memory of one call's arguments, until the permit is dropped.
    pub(crate) fn reserve(
        &self,
        tenant: &Tenant,
        bytes: usize,
    ) -> Result<Arc<ArgumentMemoryPermit>, ArgumentMemoryExceeded> {
        let mut by_tenant = lock(&self.by_tenant);
        if by_tenant.of(tenant).saturating_add(bytes) > self.limit {
            return Err(ArgumentMemoryExceeded { limit: self.limit });
        }
        by_tenant.add(tenant, bytes);
        Ok(self.permit(tenant, bytes))
    }

    /// The same for a call that was accepted before: it is counted, but not refused.
    pub(crate) fn reserve_always(&self, tenant: &Tenant, bytes: usize) -> Arc<ArgumentMemoryPermit> {
        lock(&self.by_tenant).add(tenant, bytes);
        self.permit(tenant, bytes)
    }

    fn permit(&self, tenant: &Tenant, bytes: usize) -> Arc<ArgumentMemoryPermit> {
        Arc::new(ArgumentMemoryPermit { tenant: tenant.clone(), bytes, by_tenant: self.by_tenant.clone() })
    }
}

/// The reserved memory of one call's arguments.
pub(crate) struct ArgumentMemoryPermit {
    tenant: Tenant,
    bytes: usize,
    by_tenant: Arc<Mutex<CountByKey<Tenant>>>,
}

impl Drop for ArgumentMemoryPermit {
    fn drop(&mut self) {
        lock(&self.by_tenant).subtract(&self.tenant, self.bytes);
    }
}

fn lock(by_tenant: &Mutex<CountByKey<Tenant>>) -> MutexGuard<'_, CountByKey<Tenant>> {
    by_tenant.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_gets_its_memory_back_and_never_that_of_another() {
        let memory = ArgumentMemory::new(100);
        let (one, other) = (Tenant::default(), Tenant::new("other").unwrap());
        let first = memory.reserve(&one, 60).unwrap();
        assert!(memory.reserve(&one, 41).is_err());
        assert!(memory.reserve(&other, 100).is_ok());
        let resumed = memory.reserve_always(&one, 60);
        drop(first);
        assert!(memory.reserve(&one, 41).is_err());
        drop(resumed);
        assert!(memory.reserve(&one, 100).is_ok());
        assert!(lock(&memory.by_tenant).is_empty());
    }
}
