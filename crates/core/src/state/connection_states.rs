//! The states of live connections: known to this node only, and only until it stops.
//!
//! In: what somebody found out about a connection. Out: the same, until its time is over. Nothing of it is ever stored, so
//! that after a restart no connection claims to be active. Bounded: the ones longest untouched are forgotten first.

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

/// How many connections are remembered.
const MAX_CONNECTIONS: usize = 65_536;

/// Rows like those of a store, so that whoever writes states need not know the difference.
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

    /// Puts what `make` makes of what is there, and answers with it. One writer at a time.
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
        let row = Row { version: RowVersion { number: version, stamp: 0 }, created, updated: now, ..make(before)? };
        rows.insert(key, row.clone());
        Ok(row)
    }

    /// Forgets one, unless `check` objects to it.
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

    /// Forgets one.
    pub(crate) fn remove(&self, tenant: &Tenant, context: &ContextId) {
        self.rows().remove(&(tenant.clone(), context.clone()));
    }

    /// Forgets all of a thread.
    pub(crate) fn remove_thread(&self, owner: &ThreadKey) {
        self.rows().retain(|(tenant, context), _| *tenant != owner.tenant || context.thread() != Some(&owner.thread));
    }

    /// All of a tenant's.
    pub(crate) fn of_tenant(&self, tenant: &Tenant, now: Timestamp) -> Vec<(ContextId, KindInfo)> {
        let rows = self.rows();
        let wanted = rows.iter().filter(|((owner, _), row)| owner == tenant && !row.is_expired(now));
        wanted.map(|((_, context), row)| (context.clone(), KindInfo::from_row(StateKind::Connection, row))).collect()
    }

    /// How many there are, of all tenants.
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
        let live = ConnectionStates::default();
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
            live.put(&tenant, &context(n), at(n), |_| Ok::<_, ()>(empty.clone())).unwrap();
        }
        let left = live.of_tenant(&tenant, at(MAX_CONNECTIONS)).len();
        assert_eq!(left, MAX_CONNECTIONS);
        assert!(live.get(&tenant, &context(0), at(MAX_CONNECTIONS)).is_none());
        assert!(live.get(&tenant, &context(MAX_CONNECTIONS), at(MAX_CONNECTIONS)).is_some());
    }
}
