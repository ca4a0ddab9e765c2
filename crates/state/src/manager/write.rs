//! Writes a state: set, merge patch, compare-and-set, rollback.
//!
//! In: the change. Out: the new version, unique among the writes of this state. Writes are optimistic: each expects the
//! row as read and is retried on the current row after a conflict, unless the configuration rejects conflicts.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{LAYOUT, MAX_ATTEMPTS, StateCondition, StateManager, data};
use crate::{
    ContextId, StateError, StateKind,
    entry::{self, state_id},
    history::Updates,
    patch, sessions, versions,
};
use toolhub_storage::backend::{Batch, Change, Durability, Expect, Row, RowKey, RowVersion, StoreError, Table, Write};
use toolhub_types::{ids::Tenant, state_config::ConflictResolution, timestamp::Timestamp};

/// The rows a write is based on.
struct WriteInput<'a> {
    row: Option<&'a Row>,
    /// The requested snapshot.
    snapshot: Option<&'a Row>,
    now: Timestamp,
}

/// The state a write produces.
pub(super) struct NewState<'a> {
    pub(super) text: Arc<[u8]>,
    pub(super) schema: u32,
    pub(super) expires: Option<Timestamp>,
    /// The applied patch, for the history; `None` when the whole state was replaced.
    pub(super) patch: Option<&'a Value>,
}

/// The result of a write.
pub(super) struct WrittenRow {
    pub(super) row: Row,
    /// Whether the state did not exist before.
    pub(super) is_new: bool,
}

/// What a write targets, and under which conditions.
struct Target<'a> {
    tenant: &'a Tenant,
    context: &'a ContextId,
    kind: StateKind,
    /// The version of a snapshot to load together with the state.
    snapshot: Option<u64>,
    /// The precondition.
    condition: StateCondition,
    /// Whether a conflict is returned as an error instead of being retried.
    reject: bool,
}

impl StateManager {
    /// Replaces the state, which expires after `ttl` or the manager's configured time to live. Returns the new version.
    ///
    /// # Errors
    /// When the data is not an object or too large, the session has reached its limit of contexts, a state of kind
    /// `cache` would never expire, a concurrent write occurred and the configuration rejects conflicts, or the store
    /// fails.
    pub async fn set_state(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        data: Value,
        ttl: Option<Duration>,
    ) -> Result<u64, StateError> {
        Ok(written_version(kind, &self.set(tenant, context, kind, (data, ttl), StateCondition::Any).await?))
    }

    pub(super) async fn set(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        (data, ttl): (Value, Option<Duration>),
        condition: StateCondition,
    ) -> Result<WrittenRow, StateError> {
        let data = Value::Object(data::into_object(data)?);
        if kind == StateKind::Cache && ttl.or(self.limits(context).ttl).is_none() {
            return Err(StateError::Refused("a state of kind `cache` must have a time to live".into()));
        }
        let target = Target { tenant, context, kind, snapshot: None, condition, reject: self.rejects_conflicts() };
        self.write(target, |input| {
            let expires = self.limits(context).expiry(ttl, input.now)?;
            self.replacement((context, kind), input.row, &data, expires)
        })
        .await
    }

    /// Applies a JSON merge patch: null deletes a member, objects are merged. The expiry does not change. Returns the
    /// new version.
    ///
    /// # Errors
    /// When the state does not exist or has expired, the patch is not an object, the result is too large, a concurrent
    /// write occurred and the configuration rejects conflicts, or the store fails.
    pub async fn update_state(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        patch: Value,
    ) -> Result<u64, StateError> {
        Ok(written_version(kind, &self.update(tenant, context, kind, patch, StateCondition::Any).await?))
    }

    pub(super) async fn update(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        patch: Value,
        condition: StateCondition,
    ) -> Result<WrittenRow, StateError> {
        let patch = data::into_object(patch)?;
        let recorded_patch = Value::Object(patch.clone());
        let target = Target { tenant, context, kind, snapshot: None, condition, reject: self.rejects_conflicts() };
        self.write(target, |input| {
            let row = input.row.ok_or_else(|| StateError::NotFound(state_id(context, kind)))?;
            // A typed tool may have written another JSON type, which a patch would destroy; refuse it.
            let mut members = data::into_object(entry::read_data(context, kind, row)?)?;
            patch::merge(&mut members, &patch);
            let text = data::encode_state(kind, &members, self.limits(context).max_state_size)?;
            Ok(NewState { text, schema: row.schema, expires: row.expires, patch: Some(&recorded_patch) })
        })
        .await
    }

    /// Replaces the state if it has the expected version; 0 means that the state must not exist. The expiry does not
    /// change. Returns the new version.
    ///
    /// # Errors
    /// [`Conflict`](StateError::Conflict) when it has another version; when the kind is `cache`, which has no versions;
    /// when the data is not an object or too large, or the store fails.
    pub async fn compare_and_set(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        data: Value,
        expected: u64,
    ) -> Result<u64, StateError> {
        let data = Value::Object(data::into_object(data)?);
        let condition = if expected == 0 { StateCondition::Absent } else { StateCondition::Version(expected) };
        if kind == StateKind::Cache {
            return Err(StateError::Refused("a state of kind `cache` has no versions to compare".into()));
        }
        let target = Target { tenant, context, kind, snapshot: None, condition, reject: false };
        let write = self.write(target, |input| {
            let expires = match input.row {
                Some(row) => row.expires,
                None => self.limits(context).expiry(None, input.now)?,
            };
            self.replacement((context, kind), input.row, &data, expires)
        });
        write.await.map(|written| written.row.version.number)
    }

    /// Writes the data of an old version as a new version of the business state. The expiry does not change. Returns
    /// the new version.
    ///
    /// # Errors
    /// When the state or the snapshot does not exist, versioning is off, or the store fails.
    pub async fn rollback(&self, tenant: &Tenant, context: &ContextId, version: u64) -> Result<u64, StateError> {
        self.restore_snapshot(tenant, context, version, StateCondition::Any)
            .await
            .map(|written| written.row.version.number)
    }

    pub(super) async fn restore_snapshot(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        version: u64,
        condition: StateCondition,
    ) -> Result<WrittenRow, StateError> {
        if !self.0.business.versioning {
            return Err(StateError::Refused("versioning is off: there are no snapshots to restore".into()));
        }
        let kind = StateKind::Business;
        let target =
            Target { tenant, context, kind, snapshot: Some(version), condition, reject: self.rejects_conflicts() };
        self.write(target, |input| {
            let row = input.row.ok_or_else(|| StateError::NotFound(state_id(context, kind)))?;
            let is_retained = versions::is_retained(version, row.version.number, self.limits(context).max_snapshots);
            let snapshot = input.snapshot.filter(|_| is_retained);
            let no_version = || StateError::NoVersion { state: state_id(context, kind), version };
            let snapshot = snapshot.ok_or_else(no_version)?;
            let (text, schema) = (snapshot.value.clone(), snapshot.schema);
            Ok(NewState { text, schema, expires: row.expires, patch: None })
        })
        .await
    }

    fn replacement<'a>(
        &self,
        (context, kind): (&ContextId, StateKind),
        row: Option<&Row>,
        data: &'a Value,
        expires: Option<Timestamp>,
    ) -> Result<NewState<'a>, StateError> {
        let Value::Object(members) = data else { return Err(StateError::Refused("a state is a JSON object".into())) };
        let text = data::encode_state(kind, members, self.limits(context).max_state_size)?;
        // A replaced typed state keeps the layout version of its tool.
        let schema = row.map_or(LAYOUT, |row| row.schema);
        Ok(NewState { text, schema, expires, patch: None })
    }

    fn rejects_conflicts(&self) -> bool {
        self.0.business.conflict_resolution == Some(ConflictResolution::Reject)
    }

    async fn write<'a>(
        &self,
        target: Target<'_>,
        make: impl Fn(WriteInput<'_>) -> Result<NewState<'a>, StateError>,
    ) -> Result<WrittenRow, StateError> {
        let Target { tenant, context, kind, snapshot, condition, reject } = target;
        let make = |input: WriteInput<'_>| {
            condition.check(context, kind, input.row)?;
            make(input)
        };
        if kind == StateKind::Connection {
            return self.write_connection(tenant, context, make).await;
        }
        let partition = context.partition(tenant);
        let mut keys = vec![context.key(tenant, kind)];
        if let Some(version) = snapshot {
            let id = versions::row_id(context, version);
            keys.push(RowKey { partition: partition.clone(), table: Table::Versions, id });
        }
        let mut found = 0;
        for _ in 0..MAX_ATTEMPTS {
            let now = self.now();
            let (session, rows) = self.load_in_session(&partition, &keys, now).await?;
            let mut rows = rows.into_iter();
            let (row, snapshot) = (rows.next().flatten(), rows.next().flatten());
            let next = make(WriteInput { row: row.as_ref(), snapshot: snapshot.as_ref(), now })?;
            let unseen = if row.is_none() { &[context.state().as_str()][..] } else { &[] };
            let session_writes = self.session_writes(&partition, session, unseen, now).await?;
            let (value, schema, expires) = (next.text.clone(), next.schema, next.expires);
            let mut batch =
                self.build_batch(tenant, context, kind, row.as_ref().map(|row| row.version), next, now).await?;
            batch.writes.extend(session_writes);
            let stamp = batch.stamp;
            match self.0.store.commit(batch, now).await {
                Ok(row_versions) => {
                    if kind == StateKind::Business {
                        self.maybe_trim_history(tenant, context).await;
                    }
                    let version = RowVersion { number: row_versions.first().copied().unwrap_or(0), stamp };
                    let (is_new, created) = row.map_or((true, now), |row| (false, row.created));
                    let row = Row { version, schema, value, expires, created, updated: now };
                    return Ok(WrittenRow { row, is_new });
                }
                // The session changed, not the state.
                Err(error) if sessions::is_conflict(&error) => {}
                Err(StoreError::Conflict { found: version, .. }) => {
                    found = version.unwrap_or(0);
                    if reject {
                        break;
                    }
                }
                Err(error) => return Err(error.into()),
            }
            // An in-memory store never suspends; yield so that the other writers can finish.
            tokio::task::yield_now().await;
        }
        Err(StateError::Conflict { state: state_id(context, kind), found, expected: condition.expected_version() })
    }

    /// All writes that are committed together with a state. The state comes first.
    pub(super) async fn build_batch(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        row_version: Option<RowVersion>,
        next: NewState<'_>,
        now: Timestamp,
    ) -> Result<Batch, StateError> {
        let put = Change::Put { value: next.text.clone(), schema: next.schema, expires: next.expires };
        let mut batch = Batch::new(context.partition(tenant)).with(Write {
            table: Table::State,
            id: context.row_id(kind),
            expect: row_version.map_or(Expect::Absent, Expect::Same),
            change: put.clone(),
            durability: if kind == StateKind::Cache { Durability::KillSafe } else { Durability::PowerSafe },
        });
        if kind != StateKind::Business {
            return Ok(batch);
        }
        let version = row_version.map_or(1, |current| current.number + 1);
        batch.writes.extend(versions::writes(context, version, &put, self.limits(context).max_snapshots));
        if row_version.is_none() {
            // An expired state leaves its snapshots behind; they do not belong to the new state.
            let leftovers = self.snapshot_ids(tenant, context, now).await?;
            let new_snapshot = versions::row_id(context, version);
            let has_snapshots = self.limits(context).max_snapshots > 0;
            let leftovers = leftovers.into_iter().filter(|id| !has_snapshots || *id != new_snapshot);
            batch.writes.extend(leftovers.map(|id| versions::write(id, Change::Remove)));
        }
        if self.limits(context).max_history_size > 0 {
            let updates = next.patch.map_or(Updates::Whole(&next.text), Updates::Patch);
            batch.writes.push(self.0.history.note_update(context, (&updates, version), now, next.expires)?);
        }
        Ok(batch)
    }

    async fn write_connection<'a>(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        make: impl Fn(WriteInput<'_>) -> Result<NewState<'a>, StateError>,
    ) -> Result<WrittenRow, StateError> {
        let kind = StateKind::Connection;
        let partition = context.partition(tenant);
        for _ in 0..MAX_ATTEMPTS {
            let now = self.now();
            let (session, _) = self.load_in_session(&partition, &[], now).await?;
            let row = self.connection_row(tenant, context, session, now);
            // An invalid write must not start a session.
            make(WriteInput { row: row.as_ref(), snapshot: None, now })?;
            if row.is_none() {
                self.0.connections.remove(tenant, context);
            }
            let mut batch = Batch::new(partition.clone());
            batch.writes = self.session_writes(&partition, session, &[], now).await?;
            if !batch.writes.is_empty() {
                match self.0.store.commit(batch, now).await {
                    Err(error) if sessions::is_conflict(&error) => {
                        tokio::task::yield_now().await;
                        continue;
                    }
                    result => result?,
                };
            }
            let row = self.0.connections.put(tenant, context, now, |row| {
                let NewState { text, schema, expires, .. } = make(WriteInput { row, snapshot: None, now })?;
                let version = RowVersion { number: 0, stamp: 0 };
                Ok::<_, StateError>(Row { version, schema, value: text, expires, created: now, updated: now })
            })?;
            let is_new = row.version.number == 1;
            return Ok(WrittenRow { row, is_new });
        }
        Err(StateError::Conflict { state: state_id(context, kind), found: 0, expected: None })
    }
}

/// The version of a written state as reported by the API.
fn written_version(kind: StateKind, written: &WrittenRow) -> u64 {
    entry::reported_version(kind, written.row.version.number)
}
