//! In-memory LRU cache of connection states, local to this node.
//!
//! In: the state of a connection. Out: the same row until it expires or is evicted. Nothing is stored, so that after a
//! restart no connection claims to be active. Bounded: the least recently written entries are evicted first.

use std::{
    hash::RandomState,
    sync::{Mutex, MutexGuard, PoisonError},
};

use hashlink::LruCache;

use super::{ContextId, StateKind, entry::KindInfo};
use toolhub_storage::backend::{Row, RowVersion};
use toolhub_types::{
    ids::{Tenant, ThreadKey},
    timestamp::Timestamp,
};

/// Maximum number of cached connection states.
const MAX_CONNECTIONS: usize = 65_536;

/// Connection states as rows like those of a store, so that the write path treats both alike.
pub(crate) struct ConnectionStates(Mutex<Rows>);

type Rows = LruCache<(Tenant, ContextId), Row, RandomState>;

impl Default for ConnectionStates {
    fn default() -> Self {
        Self(Mutex::new(LruCache::with_hasher(MAX_CONNECTIONS, RandomState::new())))
    }
}

impl ConnectionStates {
    pub(crate) fn get(&self, tenant: &Tenant, context: &ContextId, now: Timestamp) -> Option<Row> {
        let row = self.rows().peek(&(tenant.clone(), context.clone())).cloned();
        row.filter(|row| !row.is_expired(now))
    }

    /// Replaces the row with what `make` returns for the current one, and returns the new row. Writers are serialized.
    pub(crate) fn put<E>(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        now: Timestamp,
        make: impl FnOnce(Option<&Row>) -> Result<Row, E>,
    ) -> Result<Row, E> {
        let key = (tenant.clone(), context.clone());
        let mut rows = self.rows();
        let before = rows.peek(&key).filter(|row| !row.is_expired(now));
        let (version, created) = before.map_or((1, now), |row| (row.version.number + 1, row.created));
        let version = RowVersion { number: version, stamp: fastrand::u64(..) };
        let row = Row { version, created, updated: now, ..make(before)? };
        rows.insert(key, row.clone());
        Ok(row)
    }

    /// Removes one row, unless `check` refuses it.
    pub(crate) fn remove_if<E>(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        check: impl FnOnce(Option<&Row>) -> Result<(), E>,
    ) -> Result<(), E> {
        let key = (tenant.clone(), context.clone());
        let mut rows = self.rows();
        check(rows.peek(&key))?;
        rows.remove(&key);
        Ok(())
    }

    pub(crate) fn remove(&self, tenant: &Tenant, context: &ContextId) {
        self.rows().remove(&(tenant.clone(), context.clone()));
    }

    /// Removes all rows of a thread.
    pub(crate) fn remove_thread(&self, owner: &ThreadKey) {
        self.rows().retain(|(tenant, context), _| *tenant != owner.tenant || context.thread() != Some(&owner.thread));
    }

    /// All connections of a tenant that have not expired.
    pub(crate) fn of_tenant(&self, tenant: &Tenant, now: Timestamp) -> Vec<(ContextId, KindInfo)> {
        let rows = self.rows();
        let live = rows.iter().filter(|((owner, _), row)| owner == tenant && !row.is_expired(now));
        live.map(|((_, context), row)| (context.clone(), KindInfo::from_row(StateKind::Connection, row))).collect()
    }

    /// The number of connections of all tenants that have not expired.
    pub(crate) fn count(&self, now: Timestamp) -> u64 {
        self.rows().iter().map(|(_, row)| row).filter(|row| !row.is_expired(now)).count() as u64
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_longest_untouched_are_forgotten_first() {
        let states = ConnectionStates::default();
        let tenant = Tenant::default();
        let context = |n: usize| format!("t{n}/conn").parse::<ContextId>().unwrap();
        let at = |n: usize| Timestamp::from_millis(i64::try_from(n).unwrap());
        let empty = Row {
            version: RowVersion { number: 0, stamp: 0 },
            schema: 1,
            value: b"{}".as_slice().into(),
            expires: None,
            created: at(0),
            updated: at(0),
        };
        for n in 0..=MAX_CONNECTIONS {
            states.put(&tenant, &context(n), at(n), |_| Ok::<_, ()>(empty.clone())).unwrap();
        }
        let count = states.of_tenant(&tenant, at(MAX_CONNECTIONS)).len();
        assert_eq!(count, MAX_CONNECTIONS);
        assert!(states.get(&tenant, &context(0), at(MAX_CONNECTIONS)).is_none());
        assert!(states.get(&tenant, &context(MAX_CONNECTIONS), at(MAX_CONNECTIONS)).is_some());
    }
}
