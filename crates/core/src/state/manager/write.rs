//! Writing a state: replaced, patched, compared and set, rolled back.
//!
//! In: what shall be. Out: the version it has got, which no other write of this state gets. Every write expects what was
//! read; when somebody else was quicker it is made again from what is there now, unless it was to be rejected then.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{LAYOUT, MAX_ATTEMPTS, StateCondition, StateManager, data};
use crate::state::{
    ContextId, StateError, StateKind,
    entry::{self, state_id},
    history::Updates,
    patch, sessions, versions,
};
use toolhub_storage::backend::{Batch, Change, Durability, Expect, Row, RowKey, RowVersion, StoreError, Table, Write};
use toolhub_types::{ids::Tenant, state_config::ConflictResolution, timestamp::Timestamp};

/// What a write finds.
struct WriteInput<'a> {
    row: Option<&'a Row>,
    /// The snapshot that was asked for.
    snapshot: Option<&'a Row>,
    now: Timestamp,
}

/// What a write makes of it.
pub(super) struct NewState<'a> {
    pub(super) text: Arc<[u8]>,
    pub(super) schema: u32,
    pub(super) expires: Option<Timestamp>,
    /// What was laid over what was there, for the history; `None` where all of it is new.
    pub(super) patch: Option<&'a Value>,
}

/// What a write has written.
pub(super) struct WrittenRow {
    pub(super) row: Row,
    /// There was nothing before.
    pub(super) is_new: bool,
}

/// What is to be written where.
struct Target<'a> {
    tenant: &'a Tenant,
    context: &'a ContextId,
    kind: StateKind,
    /// A snapshot to be read together with the state.
    snapshot: Option<u64>,
    /// What must be there.
    condition: StateCondition,
    /// Whether a conflict is told instead of being overcome.
    reject: bool,
}

impl StateManager {
    /// Replaces what is remembered; it lives for `ttl`, or as long as the manager's config says. Answers the new version.
    ///
    /// # Errors
    /// When the data is no object or too large, the session has no room for one more context, a state of kind `cache` would
    /// live for ever, somebody else wrote at the same time and the config says to reject that, or the store does not answer.
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
        if kind == StateKind::Cache && ttl.or(self.0.config.ttl).is_none() {
            return Err(StateError::Refused("a state of kind `cache` must have a time to live".into()));
        }
        let target = Target { tenant, context, kind, snapshot: None, condition, reject: self.rejects_conflicts() };
        self.write(target, |found| self.replacement(kind, found.row, &data, self.expiry(ttl, found.now)?)).await
    }

    /// Lays a JSON merge patch over what is remembered: null deletes a member, objects are merged. How long it lives stays
    /// as it is. Answers the new version.
    ///
    /// # Errors
    /// When there is nothing or it has expired, the patch is no object, the result is too large, somebody else wrote at
    /// the same time and the config says to reject that, or the store does not answer.
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
        let told = Value::Object(patch.clone());
        let target = Target { tenant, context, kind, snapshot: None, condition, reject: self.rejects_conflicts() };
        self.write(target, |found| {
            let row = found.row.ok_or_else(|| StateError::NotFound(state_id(context, kind)))?;
            // What is no object was written by a typed tool: laying members over it would destroy it.
            let mut members = data::into_object(entry::read_data(context, kind, row)?)?;
            patch::merge(&mut members, &patch);
            let text = data::encode_state(kind, &members, self.0.business.max_state_size)?;
            Ok(NewState { text, schema: row.schema, expires: row.expires, patch: Some(&told) })
        })
        .await
    }

    /// Replaces what is remembered if it has the expected version; 0 means that there must be nothing. How long it lives
    /// stays as it is. Answers the new version.
    ///
    /// # Errors
    /// [`Conflict`](StateError::Conflict) when it has another version; when the kind is `cache`, which counts no versions;
    /// when the data is no object or too large, or the store does not answer.
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
        let write = self.write(target, |found| {
            let expires = match found.row {
                Some(row) => row.expires,
                None => self.expiry(None, found.now)?,
            };
            self.replacement(kind, found.row, &data, expires)
        });
        write.await.map(|wrote| wrote.row.version.number)
    }

    /// Makes a new version of the business state with the data of an old one. How long it lives stays as it is. Answers
    /// the new version.
    ///
    /// # Errors
    /// When there is no state, or no such snapshot of it any more; when versioning is off, or the store does not answer.
    pub async fn rollback(&self, tenant: &Tenant, context: &ContextId, version: u64) -> Result<u64, StateError> {
        self.restore_snapshot(tenant, context, version, StateCondition::Any).await.map(|wrote| wrote.row.version.number)
    }

    pub(super) async fn restore_snapshot(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        version: u64,
        condition: StateCondition,
    ) -> Result<WrittenRow, StateError> {
        if !self.0.business.versioning {
            return Err(StateError::Refused("versioning is off: there are no snapshots to go back to".into()));
        }
        let kind = StateKind::Business;
        let target =
            Target { tenant, context, kind, snapshot: Some(version), condition, reject: self.rejects_conflicts() };
        self.write(target, |found| {
            let row = found.row.ok_or_else(|| StateError::NotFound(state_id(context, kind)))?;
            let is_kept = versions::is_retained(version, row.version.number, self.max_snapshots());
            let snapshot = found.snapshot.filter(|_| is_kept);
            let none = || StateError::NoVersion { state: state_id(context, kind), version };
            let snapshot = snapshot.ok_or_else(none)?;
            let (text, schema) = (snapshot.value.clone(), snapshot.schema);
            Ok(NewState { text, schema, expires: row.expires, patch: None })
        })
        .await
    }

    fn replacement<'a>(
        &self,
        kind: StateKind,
        row: Option<&Row>,
        data: &'a Value,
        expires: Option<Timestamp>,
    ) -> Result<NewState<'a>, StateError> {
        let Value::Object(members) = data else { return Err(StateError::Refused("a state is a JSON object".into())) };
        let text = data::encode_state(kind, members, self.0.business.max_state_size)?;
        // Whoever replaces a typed state writes it as its tool has it now.
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
        let make = |found: WriteInput<'_>| {
            condition.check(context, kind, found.row)?;
            make(found)
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
            let (row, old) = (rows.next().flatten(), rows.next().flatten());
            let next = make(WriteInput { row: row.as_ref(), snapshot: old.as_ref(), now })?;
            let unseen = if row.is_none() { &[context.state().as_str()][..] } else { &[] };
            let joined = self.session_writes(&partition, session, unseen, now).await?;
            let (value, schema, expires) = (next.text.clone(), next.schema, next.expires);
            let mut batch =
                self.build_batch(tenant, context, kind, row.as_ref().map(|row| row.version), next, now).await?;
            batch.writes.extend(joined);
            match self.0.store.commit(batch, now).await {
                Ok(done) => {
                    if kind == StateKind::Business {
                        self.maybe_trim_history(tenant, context).await;
                    }
                    let seen = RowVersion { number: done.first().copied().unwrap_or(0), stamp: 0 };
                    let (new, created) = row.map_or((true, now), |row| (false, row.created));
                    return Ok(WrittenRow {
                        row: Row { version: seen, schema, value, expires, created, updated: now },
                        is_new: new,
                    });
                }
                // The session has changed, not the state.
                Err(error) if sessions::is_conflict(&error) => {}
                Err(StoreError::Conflict { found: version, .. }) => {
                    found = version.unwrap_or(0);
                    if reject {
                        break;
                    }
                }
                Err(error) => return Err(error.into()),
            }
            // A store in memory answers without a pause; let the others finish.
            tokio::task::yield_now().await;
        }
        Err(StateError::Conflict { state: state_id(context, kind), found })
    }

    /// Everything that becomes true together with a write. The state comes first.
    pub(super) async fn build_batch(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        seen: Option<RowVersion>,
        next: NewState<'_>,
        now: Timestamp,
    ) -> Result<Batch, StateError> {
        let put = Change::Put { value: next.text.clone(), schema: next.schema, expires: next.expires };
        let mut batch = Batch::new(context.partition(tenant)).with(Write {
            table: Table::State,
            id: context.row_id(kind),
            expect: seen.map_or(Expect::Absent, Expect::Same),
            change: put.clone(),
            durability: if kind == StateKind::Cache { Durability::KillSafe } else { Durability::PowerSafe },
        });
        if kind != StateKind::Business {
            return Ok(batch);
        }
        let version = seen.map_or(1, |seen| seen.number + 1);
        batch.writes.extend(versions::writes(context, version, &put, self.max_snapshots()));
        if seen.is_none() {
            // A state that expired has left its snapshots behind. They are not those of the new one.
            let left = self.snapshot_ids(tenant, context, now).await?;
            let kept = versions::row_id(context, version);
            let keeps = self.max_snapshots() > 0;
            let left = left.into_iter().filter(|id| !keeps || *id != kept);
            batch.writes.extend(left.map(|id| versions::write(id, Change::Remove)));
        }
        if self.0.business.max_history_size > 0 {
            let updates = next.patch.map_or(Updates::Whole(&next.text), Updates::Patch);
            batch.writes.push(self.0.sequence.note_update(context, (&updates, version), now, next.expires)?);
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
            // What cannot be written does not let a session begin either.
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
                    done => done?,
                };
            }
            let row = self.0.connections.put(tenant, context, now, |row| {
                let NewState { text, schema, expires, .. } = make(WriteInput { row, snapshot: None, now })?;
                let seen = RowVersion { number: 0, stamp: 0 };
                Ok::<_, StateError>(Row { version: seen, schema, value: text, expires, created: now, updated: now })
            })?;
            let new = row.version.number == 1;
            return Ok(WrittenRow { row, is_new: new });
        }
        Err(StateError::Conflict { state: state_id(context, kind), found: 0 })
    }
}

/// The version of what was written, as it is told.
fn written_version(kind: StateKind, wrote: &WrittenRow) -> u64 {
    entry::reported_version(kind, wrote.row.version.number)
}
