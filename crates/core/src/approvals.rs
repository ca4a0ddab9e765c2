//! Asks people, remembers their answers, and makes sure that each is used once.
//!
//! In: a call that a rule wants to have approved. Out: a permit for exactly that call, or why there is none. Everything
//! is a row in the store, so that a question outlives the process and can be answered on any node; every change is a
//! compare-and-set, so that of two answers, or two users of one answer, exactly one counts.

mod error;
mod grant;
mod pending;
mod record;
mod waiters;

use std::{sync::Arc, time::Duration};

use smol_str::SmolStr;

pub use error::ApprovalError;
pub use grant::{Grant, GrantScope};
use pending::PendingApprovals;
pub use record::{Answer, Approval};
pub(crate) use record::{ToolVersion, binding, current_binding, partition};
pub use toolhub_types::approval::{ApprovalOutcome, ApprovalState};
use waiters::ApprovalWaiters;

use crate::{events::Events, redact::Redactor};
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Cursor, Durability, Expect, Partition, PartitionKind, RowKey, RowVersion, Scan, Scope,
        StoreError, Table, Write, decode, encode, read_all,
    },
    clock::Clock,
};
use toolhub_types::{
    event_kind::EventKind,
    ids::{ApprovalId, CallId, Tenant, ThreadId},
};

/// The layout of these records.
const LAYOUT: u32 = 1;
/// How the ids of questions begin; the lists of questions about the same thing begin otherwise.
const APPROVAL_ID_PREFIX: &str = "apr_";
/// How many are read at once, where not all are wanted.
const MAX_SCAN_BATCH: usize = 500;

pub(crate) struct Approvals {
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    events: Events,
    /// How long answered questions are kept.
    retention: Duration,
    redactor: Arc<Redactor>,
    /// The calls of this node that wait for an answer.
    waiters: ApprovalWaiters,
    pending: PendingApprovals,
}

/// The right to make one call, to be used up when it starts.
#[derive(Clone)]
pub(crate) struct StoredApproval {
    pub(crate) approval: Approval,
    pub(crate) partition: Partition,
    row_version: RowVersion,
}

impl Approvals {
    pub(crate) fn new(
        store: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        events: Events,
        keep: Duration,
        redactor: Arc<Redactor>,
    ) -> Self {
        Self {
            store,
            clock,
            events,
            retention: keep,
            redactor,
            waiters: ApprovalWaiters::default(),
            pending: PendingApprovals::default(),
        }
    }

    /// The questions with this binding that still matter, the newest first.
    pub(crate) async fn find_by_binding(
        &self,
        partition: &Partition,
        binding: &str,
    ) -> Result<Vec<StoredApproval>, StoreError> {
        Ok(self.load_by_binding(partition, binding).await?.0)
    }

    /// The same, and the list of them as it was seen.
    async fn load_by_binding(
        &self,
        partition: &Partition,
        binding: &str,
    ) -> Result<(Vec<StoredApproval>, Option<RowVersion>), StoreError> {
        let now = self.clock.now();
        let list = [RowKey { partition: partition.clone(), table: Table::Approvals, id: list_row_id(binding) }];
        let Some(row) = self.store.load(&list, now).await?.pop().flatten() else { return Ok((Vec::new(), None)) };
        // A list that cannot be read approves nothing: its call asks again, and writes it anew.
        let asked: Vec<ApprovalId> =
            ok_or_log(decode(Table::Approvals, &list[0].id, LAYOUT, &row)).map(|it| it.0).unwrap_or_default();
        let key = |id: &ApprovalId| RowKey { partition: partition.clone(), table: Table::Approvals, id: (*id).into() };
        let keys: Vec<RowKey> = asked.iter().rev().map(key).collect();
        let rows = self.store.load(&keys, now).await?;
        let found = keys.into_iter().zip(rows).filter_map(|(key, row)| ok_or_log(decode_approval(key, &row?)));
        let matters = |permit: &StoredApproval| permit.approval.binding == binding && permit.approval.is_relevant(now);
        Ok((found.filter(matters).collect(), Some(row.version)))
    }

    /// Every question of a tenant, the oldest first.
    pub(crate) async fn of_tenant(&self, tenant: &Tenant) -> Result<Vec<StoredApproval>, StoreError> {
        let scan = Scan::new(Table::Approvals, Scope::Tenant(tenant.clone())).prefix(APPROVAL_ID_PREFIX);
        let rows = read_all(&*self.store, scan, self.clock.now()).await?;
        // One row that cannot be read hides no other.
        let mut found: Vec<StoredApproval> =
            rows.into_iter().filter_map(|(key, row)| ok_or_log(decode_approval(key, &row))).collect();
        found.sort_by_key(|permit| permit.approval.id);
        Ok(found)
    }

    /// The newest questions of a tenant that are wanted, at most so many; only older ones than `before`. No more is read than that
    /// takes: of all that were asked, where few are wanted.
    pub(crate) async fn newest(
        &self,
        tenant: &Tenant,
        before: Option<ApprovalId>,
        limit: usize,
        is_wanted: impl Fn(&Approval) -> bool,
    ) -> Result<Vec<StoredApproval>, StoreError> {
        // Ids grow with time, and no two are alike; so the partition plays no part, and any will do.
        let place = |id: ApprovalId| {
            let partition = Partition { tenant: tenant.clone(), kind: PartitionKind::Grants };
            RowKey { partition, table: Table::Approvals, id: id.into() }
        };
        let scan = Scan::new(Table::Approvals, Scope::Tenant(tenant.clone())).prefix(APPROVAL_ID_PREFIX);
        let mut scan = Scan {
            descending: true,
            after: before.map(place).map(Cursor),
            ..scan.limit(limit.clamp(1, MAX_SCAN_BATCH))
        };
        let mut found = Vec::new();
        loop {
            let page = self.store.scan(scan.clone(), self.clock.now()).await?;
            let permits = page.rows.into_iter().filter_map(|(key, row)| ok_or_log(decode_approval(key, &row)));
            let is_older = |permit: &StoredApproval| before.is_none_or(|before| permit.approval.id < before);
            found.extend(permits.filter(|permit| is_older(permit) && is_wanted(&permit.approval)));
            match page.next.filter(|_| found.len() < limit) {
                // The fewer are wanted of those that are looked at, the more are looked at together.
                Some(next) => (scan.after, scan.limit) = (Some(next), (2 * scan.limit).min(MAX_SCAN_BATCH)),
                None => break,
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    /// One question of a tenant.
    pub(crate) async fn find(&self, tenant: &Tenant, id: ApprovalId) -> Result<Option<StoredApproval>, StoreError> {
        // A question is found by its id alone, as people know it.
        let scan = Scan::new(Table::Approvals, Scope::Tenant(tenant.clone())).prefix(id.to_string()).limit(1);
        let page = self.store.scan(scan, self.clock.now()).await?;
        page.rows.into_iter().next().map(|(key, row)| decode_approval(key, &row)).transpose()
    }

    /// Asks.
    pub(crate) async fn ask(&self, partition: Partition, approval: Approval) -> Result<StoredApproval, StoreError> {
        let now = self.clock.now();
        // A yes may come at the last moment, and can be used for as long again.
        let last_use = approval.expires_at + approval.expires_at.since(approval.asked_at);
        let seen = loop {
            let (found, list) = self.load_by_binding(&partition, &approval.binding).await?;
            let mut asked: Vec<ApprovalId> = found.iter().rev().map(|permit| permit.approval.id).collect();
            asked.push(approval.id);
            let id = list_row_id(&approval.binding);
            let value = encode(Table::Approvals, &id, &asked)?;
            let listed = Write {
                table: Table::Approvals,
                id,
                expect: list.map_or(Expect::Absent, Expect::Same),
                change: Change::Put { value, schema: LAYOUT, expires: Some(last_use + self.retention) },
                durability: Durability::PowerSafe,
            };
            let batch = Batch::new(partition.clone()).with(self.write(&approval, Expect::Absent)?).with(listed);
            let stamp = batch.stamp;
            match self.store.commit(batch, now).await {
                // A store that was restored does not count from one.
                Ok(versions) => break RowVersion { number: versions.first().copied().unwrap_or_default(), stamp },
                // An identical call asks at the same moment; both questions are listed.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        };
        self.pending.insert(&approval, seen, now);
        let news = EventKind::ApprovalRequested {
            approval_id: approval.id,
            call_id: approval.call_id,
            run_id: approval.run,
            tool_name: approval.tool.clone(),
            rule: approval.rule.clone(),
            reason: approval.reason.clone(),
            expires_at: approval.expires_at,
        };
        self.events.emit_for_tenant(now, &partition.tenant, approval.thread.as_ref(), news);
        Ok(StoredApproval { approval, partition, row_version: seen })
    }

    /// Ends a question that nobody answered: its time is over, or its caller gave up. If somebody answered at that very
    /// moment, the answer stands.
    pub(crate) async fn close(
        &self,
        asked: StoredApproval,
        state: ApprovalState,
    ) -> Result<StoredApproval, StoreError> {
        let now = self.clock.now();
        let approval = Approval { state, ..asked.approval.clone() };
        let batch = Batch::new(asked.partition.clone()).with(self.write(&approval, Expect::Same(asked.row_version))?);
        match self.store.commit(batch, now).await {
            Ok(_) => {
                self.emit_resolved(&asked.partition.tenant, &approval);
                Ok(StoredApproval { approval, ..asked })
            }
            Err(StoreError::Conflict { .. }) => {
                let keys = [row_key(&asked)];
                let row = self.store.load(&keys, now).await?.pop().flatten();
                let [key] = keys;
                row.map_or_else(|| Ok(timed_out(asked)), |row| decode_approval(key, &row))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes an answer down, together with the standing yes it gives.
    pub(crate) async fn answer(
        &self,
        asked: StoredApproval,
        approval: Approval,
        grant: Option<(RowKey, Grant)>,
    ) -> Result<Approval, ApprovalError> {
        let now = self.clock.now();
        let mut batch =
            Batch::new(asked.partition.clone()).with(self.write(&approval, Expect::Same(asked.row_version))?);
        let mut apart = None;
        if let Some((key, grant)) = grant {
            let write = grant_write(&key, &grant)?;
            if key.partition == batch.partition {
                batch.writes.push(write);
            } else {
                apart = Some(Batch::new(key.partition).with(write));
            }
        }
        match self.store.commit(batch, now).await {
            Ok(_) => {}
            Err(StoreError::Conflict { table: Table::Approvals, .. }) => {
                let now = self.find(&asked.partition.tenant, approval.id).await?.map(|found| found.approval.state);
                return Err(ApprovalError::Resolved(now.unwrap_or(ApprovalState::TimedOut)));
            }
            Err(error) => return Err(error.into()),
        }
        // The answer stands from here on, whatever becomes of the rest.
        self.emit_resolved(&asked.partition.tenant, &approval);
        self.wake_waiters(approval.id);
        // After the answer: of two people only the one who was first has said "always".
        if let Some(batch) = apart {
            self.store.commit(batch, now).await?;
        }
        Ok(approval)
    }

    /// The write that uses a permit up.
    pub(crate) fn mark_used(&self, permit: &StoredApproval, call: CallId) -> Result<Write, StoreError> {
        let used = Approval { state: ApprovalState::Used, used_by: Some(call), ..permit.approval.clone() };
        self.write(&used, Expect::Same(permit.row_version))
    }

    /// Notes that a caller has heard the no. The next identical call asks anew.
    pub(crate) async fn mark_denial_delivered(&self, permit: &StoredApproval, call: CallId) -> Result<(), StoreError> {
        let heard = Approval { used_by: Some(call), ..permit.approval.clone() };
        let batch = Batch::new(permit.partition.clone()).with(self.write(&heard, Expect::Same(permit.row_version))?);
        self.store.commit(batch, self.clock.now()).await.map(|_| ())
    }

    /// Whether a standing yes answers this rule for this tool.
    pub(crate) async fn is_granted(
        &self,
        tool: ToolVersion<'_>,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        rule: &str,
    ) -> Result<bool, StoreError> {
        let keys: Vec<RowKey> =
            GrantScope::candidates(tool.definition, thread).map(|covers| covers.key(tenant, rule)).collect();
        let rows = self.store.load(&keys, self.clock.now()).await?;
        let grants = keys.iter().zip(rows).filter_map(|(key, row)| {
            let grant: Grant = ok_or_log(decode(Table::Grants, &key.id, LAYOUT, &row?))?.0;
            Some(grant)
        });
        Ok(grants.into_iter().any(|grant| grant.holds_for(tool)))
    }

    /// The standing yeses of a tenant.
    pub(crate) async fn grants(&self, tenant: &Tenant) -> Result<Vec<(RowKey, Grant)>, StoreError> {
        let scan = Scan::new(Table::Grants, Scope::Tenant(tenant.clone()));
        let rows = read_all(&*self.store, scan, self.clock.now()).await?;
        let grants = rows.into_iter().filter_map(|(key, row)| {
            let grant: Grant = ok_or_log(decode(Table::Grants, &key.id, LAYOUT, &row))?.0;
            Some((key, grant))
        });
        Ok(grants.collect())
    }

    /// Takes a standing yes back.
    pub(crate) async fn revoke(&self, key: RowKey) -> Result<(), StoreError> {
        let write = Write {
            table: key.table,
            id: key.id,
            expect: Expect::Any,
            change: Change::Remove,
            durability: Durability::PowerSafe,
        };
        self.store.commit(Batch::new(key.partition).with(write), self.clock.now()).await.map(|_| ())
    }

    /// A question as it is kept. Nobody needs the secrets among its arguments: the call has them, and people are not shown them.
    /// Those that a person put in are needed until a call is made on the answer.
    fn redacted_for_storage(&self, approval: &Approval) -> Approval {
        let edited = approval.answer.as_ref().and_then(|answer| answer.arguments.clone());
        let mut kept = approval.clone().without_secrets(&self.redactor);
        if let (Some(answer), ApprovalState::Approved) = (&mut kept.answer, approval.state) {
            answer.arguments = edited;
        }
        kept
    }

    /// A question is over: it does not wait any more, and listeners are told.
    fn emit_resolved(&self, tenant: &Tenant, approval: &Approval) {
        self.pending.remove(approval.id);
        if let Some(answer) = &approval.answer {
            self.pending.wait.record(answer.at.since(approval.asked_at));
        }
        let news = EventKind::ApprovalResolved {
            approval_id: approval.id,
            call_id: approval.call_id,
            run_id: approval.run,
            tool_name: approval.tool.clone(),
            state: approval.state,
            outcome: approval.answer.as_ref().map(|answer| answer.outcome),
            by: approval.answer.as_ref().map(|answer| answer.by.clone()),
        };
        self.events.emit_for_tenant(self.clock.now(), tenant, approval.thread.as_ref(), news);
    }

    fn write(&self, approval: &Approval, expect: Expect) -> Result<Write, StoreError> {
        let id = approval.id.into();
        let approval = &self.redacted_for_storage(approval);
        Ok(Write {
            table: Table::Approvals,
            expect,
            change: Change::Put {
                value: encode(Table::Approvals, &id, approval)?,
                schema: LAYOUT,
                expires: Some(approval.expires_at + self.retention),
            },
            durability: Durability::PowerSafe,
            id,
        })
    }
}

/// Where the questions about one thing are listed, so that a call made again finds its own.
fn list_row_id(binding: &str) -> SmolStr {
    smol_str::format_smolstr!("about_{binding}")
}

/// A record that cannot be read approves nothing, and is said aloud: its call asks again.
fn ok_or_log<T>(read: Result<T, StoreError>) -> Option<T> {
    read.inspect_err(StoreError::log_skipped).ok()
}

fn grant_write(key: &RowKey, grant: &Grant) -> Result<Write, StoreError> {
    Ok(Write {
        table: Table::Grants,
        id: key.id.clone(),
        expect: Expect::Any,
        change: Change::Put { value: encode(Table::Grants, &key.id, grant)?, schema: LAYOUT, expires: None },
        durability: Durability::PowerSafe,
    })
}

fn row_key(permit: &StoredApproval) -> RowKey {
    RowKey { partition: permit.partition.clone(), table: Table::Approvals, id: permit.approval.id.into() }
}

fn decode_approval(key: RowKey, row: &toolhub_storage::backend::Row) -> Result<StoredApproval, StoreError> {
    let (approval, seen) = decode(Table::Approvals, &key.id, LAYOUT, row)?;
    Ok(StoredApproval { approval, partition: key.partition, row_version: seen })
}

fn timed_out(asked: StoredApproval) -> StoredApproval {
    StoredApproval { approval: Approval { state: ApprovalState::TimedOut, ..asked.approval }, ..asked }
}
