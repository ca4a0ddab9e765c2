//! In-memory LRU cache of connection states, local to this node.
//!
//! In: what a writer sets, and the executions and instances that hold a connection. Out: one row per context until it expires
//! or is evicted. Nothing is stored, so that after a restart no connection claims to be active. Bounded: the least recently
//! used entries of a shard are evicted first. All connections of a thread are in one shard.

use std::{hash::RandomState, sync::MutexGuard};

use hashlink::LruCache;
use serde_json::{Map, Value, json};

use super::{ContextId, StateKind, entry::KindInfo};
use toolhub_storage::{
    backend::{Row, RowVersion},
    sharded::{SHARDS, Sharded},
};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// Maximum number of cached connection states.
const MAX_CONNECTIONS: usize = 65_536;
/// The layout version of their rows.
const LAYOUT: u32 = 1;

/// Connection states as rows like those of a store, so that the write path treats both alike.
pub(crate) struct ConnectionStates(Sharded<Connections>);

type Connections = LruCache<(Tenant, ContextId), Connection, RandomState>;

/// Identifies an entry of the cache. One that was removed and made again is another entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId(u64);

/// One connection. Executions only change counters; its row is brought up to date when it is read.
struct Connection {
    id: EntryId,
    row: Row,
    /// Number of executions and instances that hold it.
    holds: u32,
    /// Number of instances among them.
    instances: u32,
    /// What a writer set; it applies while nothing holds the connection.
    written_active: bool,
    changes: Changes,
}

/// What executions changed since the row was last brought up to date.
#[derive(Default)]
struct Changes {
    /// Whether the row is out of date.
    any: bool,
    last_used: Option<Timestamp>,
    errors: u64,
    last_error: Option<String>,
    session_active: Option<bool>,
}

impl Default for ConnectionStates {
    fn default() -> Self {
        Self(Sharded::new(|| LruCache::with_hasher(MAX_CONNECTIONS / SHARDS, RandomState::new())))
    }
}

impl Connection {
    fn new(row: Row) -> Self {
        let (id, changes) = (EntryId(fastrand::u64(..)), Changes::default());
        let mut connection = Self { id, row, holds: 0, instances: 0, written_active: false, changes };
        connection.written_active = connection.members().get("active").and_then(Value::as_bool).unwrap_or(false);
        connection
    }

    fn empty(now: Timestamp) -> Self {
        let version = RowVersion { number: 0, stamp: 0 };
        let value = b"{}".as_slice().into();
        Self::new(Row { version, schema: LAYOUT, value, expires: None, created: now, updated: now })
    }

    fn members(&self) -> Map<String, Value> {
        serde_json::from_slice(&self.row.value).unwrap_or_default()
    }

    /// Records a change by an execution.
    fn change(&mut self, now: Timestamp, change: impl FnOnce(&mut Changes)) {
        change(&mut self.changes);
        (self.changes.any, self.row.updated) = (true, now);
        self.row.version = RowVersion { number: self.row.version.number + 1, stamp: fastrand::u64(..) };
    }

    /// The row as its writers know it: without the executions that hold the connection.
    fn written_row(&mut self) -> Row {
        let row = self.row().clone();
        if self.holds == 0 {
            return row;
        }
        let mut members = self.members();
        members.insert("active".into(), json!(self.written_active));
        Row { value: Value::Object(members).to_string().into_bytes().into(), ..row }
    }

    /// The row, up to date.
    fn row(&mut self) -> &Row {
        if self.changes.any {
            let mut members = self.members();
            let Changes { last_used, errors, last_error, session_active, .. } = std::mem::take(&mut self.changes);
            members.insert("active".into(), json!(self.holds > 0 || self.written_active));
            if let Some(at) = last_used {
                members.insert("lastUsed".into(), json!(at));
            }
            let before = members.get("errorCount").and_then(Value::as_u64).unwrap_or(0);
            members.insert("errorCount".into(), json!(before.saturating_add(errors)));
            if let Some(error) = last_error {
                members.insert("lastError".into(), json!(error));
            }
            if let Some(active) = session_active {
                members.insert("sessionActive".into(), json!(active));
            }
            self.row.value = Value::Object(members).to_string().into_bytes().into();
        }
        &self.row
    }
}

impl ConnectionStates {
    pub(crate) fn get(&self, tenant: &Tenant, context: &ContextId, now: Timestamp) -> Option<Row> {
        let mut rows = self.shard(tenant, context.thread());
        let row = rows.peek_mut(&(tenant.clone(), context.clone()))?.row();
        Some(row).filter(|row| !row.is_expired(now)).cloned()
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
        let mut rows = self.shard(tenant, context.thread());
        let replaced = rows.peek_mut(&key);
        let held = replaced.as_ref().map(|old| (old.id, old.holds, old.instances));
        let before = replaced.map(Connection::written_row).filter(|row| !row.is_expired(now));
        let (version, created) = before.as_ref().map_or((1, now), |row| (row.version.number + 1, row.created));
        let version = RowVersion { number: version, stamp: fastrand::u64(..) };
        let row = Row { version, created, updated: now, ..make(before.as_ref())? };
        let mut connection = Connection::new(row);
        if let Some((id, holds, instances)) = held {
            (connection.id, connection.holds, connection.instances) = (id, holds, instances);
            connection.changes.any = holds > 0;
        }
        let row = connection.row().clone();
        rows.insert(key, connection);
        Ok(row)
    }

    /// Records that an execution or an instance holds the connection from now on. Returns what it holds.
    pub(crate) fn hold(&self, tenant: &Tenant, context: &ContextId, by_instance: bool, now: Timestamp) -> EntryId {
        self.with_connection((tenant, context), now, |connection| {
            connection.holds += 1;
            connection.instances += u32::from(by_instance);
            connection.change(now, |changes| {
                changes.last_used = Some(now);
                changes.session_active = if by_instance { Some(true) } else { changes.session_active };
            });
            connection.id
        })
    }

    /// Records that it does not hold the connection any more, and the error with which it ended.
    pub(crate) fn release(
        &self,
        (tenant, context, id): (&Tenant, &ContextId, EntryId),
        by_instance: bool,
        error: Option<String>,
        now: Timestamp,
    ) {
        let mut rows = self.shard(tenant, context.thread());
        // It may have been removed meanwhile, with its thread for example, and made again.
        let connection = rows.get_mut(&(tenant.clone(), context.clone())).filter(|connection| connection.id == id);
        let Some(connection) = connection else { return };
        connection.holds = connection.holds.saturating_sub(1);
        connection.instances = connection.instances.saturating_sub(u32::from(by_instance));
        let ended = by_instance && connection.instances == 0;
        connection.change(now, |changes| {
            changes.last_used = Some(now);
            changes.session_active = if ended { Some(false) } else { changes.session_active };
            changes.errors += u64::from(error.is_some());
            changes.last_error = error.or(changes.last_error.take());
        });
    }

    /// Records whether a session is open on the connection.
    pub(crate) fn set_session_active(&self, tenant: &Tenant, context: &ContextId, active: bool, now: Timestamp) {
        self.with_connection((tenant, context), now, |connection| {
            connection.change(now, |changes| changes.session_active = Some(active));
        });
    }

    /// Changes a connection; one that has expired is replaced by an empty one first.
    fn with_connection<T>(
        &self,
        (tenant, context): (&Tenant, &ContextId),
        now: Timestamp,
        change: impl FnOnce(&mut Connection) -> T,
    ) -> T {
        let mut rows = self.shard(tenant, context.thread());
        let key = (tenant.clone(), context.clone());
        match rows.get_mut(&key) {
            Some(connection) if !connection.row.is_expired(now) => change(connection),
            expired => {
                let mut connection = Connection::empty(now);
                if let Some(old) = expired {
                    (connection.id, connection.holds, connection.instances) = (old.id, old.holds, old.instances);
                }
                let changed = change(&mut connection);
                rows.insert(key, connection);
                changed
            }
        }
    }

    /// Removes one row, unless `check` refuses it.
    pub(crate) fn remove_if<E>(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        check: impl FnOnce(Option<&Row>) -> Result<(), E>,
    ) -> Result<(), E> {
        let key = (tenant.clone(), context.clone());
        let mut rows = self.shard(tenant, context.thread());
        check(rows.peek_mut(&key).map(Connection::row))?;
        rows.remove(&key);
        Ok(())
    }

    pub(crate) fn remove(&self, tenant: &Tenant, context: &ContextId) {
        self.shard(tenant, context.thread()).remove(&(tenant.clone(), context.clone()));
    }

    /// Removes all rows of a thread.
    pub(crate) fn remove_thread(&self, owner: &ThreadKey) {
        let mut rows = self.shard(&owner.tenant, Some(&owner.thread));
        rows.retain(|(tenant, context), _| *tenant != owner.tenant || context.thread() != Some(&owner.thread));
    }

    /// All connections of a tenant that have not expired.
    pub(crate) fn of_tenant(&self, tenant: &Tenant, now: Timestamp) -> Vec<(ContextId, KindInfo)> {
        let mut found = Vec::new();
        for mut rows in self.0.shards() {
            for ((_, context), connection) in rows.iter_mut().filter(|((owner, _), _)| owner == tenant) {
                let row = connection.row();
                if !row.is_expired(now) {
                    found.push((context.clone(), KindInfo::from_row(StateKind::Connection, row)));
                }
            }
        }
        found
    }

    /// The number of connections of all tenants that have not expired.
    pub(crate) fn count(&self, now: Timestamp) -> u64 {
        let live = |rows: MutexGuard<'_, Connections>| {
            rows.iter().filter(|(_, connection)| !connection.row.is_expired(now)).count() as u64
        };
        self.0.shards().map(live).sum()
    }

    /// The shard with the connections of a thread, or of those of a tenant that belong to none.
    fn shard(&self, tenant: &Tenant, thread: Option<&ThreadId>) -> MutexGuard<'_, Connections> {
        self.0.shard(&(tenant, thread))
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
        let last = 2 * MAX_CONNECTIONS;
        for n in 0..=last {
            states.put(&tenant, &context(n), at(n), |_| Ok::<_, ()>(empty.clone())).unwrap();
        }
        assert_eq!(states.of_tenant(&tenant, at(last)).len(), MAX_CONNECTIONS);
        assert!(states.get(&tenant, &context(0), at(last)).is_none());
        assert!(states.get(&tenant, &context(last), at(last)).is_some());
    }

    #[test]
    fn who_held_a_removed_connection_releases_no_later_one() {
        let (states, tenant, at) = (ConnectionStates::default(), Tenant::default(), Timestamp::default());
        let context: ContextId = "t/conn".parse().unwrap();
        let is_active =
            || states.get(&tenant, &context, at).unwrap().value.windows(13).any(|w| w == b"\"active\":true");
        let first = states.hold(&tenant, &context, false, at);
        states.remove(&tenant, &context);
        let second = states.hold(&tenant, &context, false, at);
        states.release((&tenant, &context, first), false, Some("late".into()), at);
        assert!(is_active());
        states.release((&tenant, &context, second), false, None, at);
        assert!(!is_active());
    }
}
