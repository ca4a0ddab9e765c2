//! Human approvals: stores requests, their answers and grants, and makes sure that each approval is used once.
//!
//! In: a call that a rule wants approved. Out: an approval for exactly that call, or the reason why there is none.
//! Everything is a row in the store, so that a request survives the process and can be answered on any node; every
//! change is a compare-and-set, so that of two answers, or two uses of one answer, exactly one succeeds.

mod error;
mod grant;
mod grant_store;
mod lookup;
mod pending;
mod record;
mod reservations;
mod waiters;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use smol_str::SmolStr;

pub use error::ApprovalError;
pub use grant::{Grant, GrantScope};
use grant_store::grant_write;
use pending::PendingApprovals;
pub use record::{Answer, Approval};
pub(crate) use record::{ToolVersion, binding, current_binding, partition};
pub use reservations::ApprovalReservation;
use reservations::ReservedApprovals;
pub use toolhub_types::approval::{ApprovalOutcome, ApprovalState};
use waiters::ApprovalWaiters;

use crate::{
    alerts::{Alerts, Condition, Signal},
    events::Events,
    sealing::Sealer,
};
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, Row, RowKey, RowVersion, StoreError, Table, Write,
        decode, encode,
    },
    clock::Clock,
};
use toolhub_types::redact::Redactor;
use toolhub_types::{
    event_kind::EventKind,
    ids::{ApprovalId, CallId, Tenant, ThreadId},
    json::CompactJson,
    timestamp::Timestamp,
};

/// The layout version of these records.
const LAYOUT: u32 = 1;
/// The prefix of approval ids. The rows that list the approvals of one binding have another prefix.
const APPROVAL_ID_PREFIX: &str = "apr_";

pub(crate) struct Approvals {
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    events: Events,
    /// Receives the signals of approvals that expire.
    alerts: Arc<Alerts>,
    /// How long resolved approvals are retained.
    retention: Duration,
    redactor: Arc<Redactor>,
    sealer: Sealer,
    /// The calls of this node that wait for an answer.
    waiters: ApprovalWaiters,
    /// Those whose answer one caller is about to use.
    reserved: ReservedApprovals,
    pending: PendingApprovals,
    /// Where people read approvals, for the log.
    page_url: OnceLock<String>,
}

/// An approval with its row version. Approved, it permits one call, which uses it up when it starts.
#[derive(Clone)]
pub(crate) struct StoredApproval {
    pub(crate) approval: Approval<CompactJson>,
    pub(crate) partition: Partition,
    row_version: RowVersion,
}

/// How many identical calls may await approval: a bound against a model that repeats the same call in a loop.
const MAX_IDENTICAL: usize = 32;
/// The size of their arguments together, because each of them reads the others. Two are allowed, whatever their size.
const MAX_IDENTICAL_BYTES: usize = 4 << 20;

/// How many calls with these arguments may await approval.
pub(crate) fn max_identical(arguments: &CompactJson) -> usize {
    (MAX_IDENTICAL_BYTES / arguments.large_bytes().unwrap_or(1).max(1)).clamp(2, MAX_IDENTICAL)
}

impl Approvals {
    pub(crate) fn new(
        store: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        events: Events,
        retention: Duration,
        (redactor, sealer): (Arc<Redactor>, Sealer),
        alerts: Arc<Alerts>,
    ) -> Self {
        Self {
            store,
            clock,
            events,
            alerts,
            retention,
            redactor,
            sealer,
            waiters: ApprovalWaiters::default(),
            reserved: ReservedApprovals::default(),
            pending: PendingApprovals::default(),
            page_url: OnceLock::new(),
        }
    }

    /// Sets where people read approvals: `{url}/{id}`. Only the first call has an effect.
    pub(crate) fn set_page_url(&self, url: String) {
        let _ = self.page_url.set(url);
    }

    /// Stores an approval request and emits its event; `None` if too many identical calls await approval.
    pub(crate) async fn ask(
        &self,
        partition: Partition,
        approval: Approval<CompactJson>,
    ) -> Result<Option<StoredApproval>, StoreError> {
        let now = self.clock.now();
        // Not removed if this future is dropped: a store commits what it was sent, and the request then awaits an answer.
        self.pending.insert(&partition.tenant, &approval, now);
        let stored = self.store_request(&partition, &approval, now).await;
        let Ok(Some(row_version)) = stored else {
            self.pending.remove(approval.id);
            return stored.map(|_| None);
        };
        self.pending.set_stored(approval.id, row_version);
        self.log_requested(&approval);
        let event = EventKind::ApprovalRequested {
            approval_id: approval.id,
            call_id: approval.call_id,
            run_id: approval.run,
            tool_name: approval.tool.clone(),
            rule: approval.rule.clone(),
            reason: approval.reason.clone(),
            expires_at: approval.expires_at,
        };
        self.events.emit_for_tenant(now, &partition.tenant, approval.thread.as_ref(), event);
        Ok(Some(StoredApproval { approval, partition, row_version }))
    }

    async fn store_request(
        &self,
        partition: &Partition,
        approval: &Approval<CompactJson>,
        now: Timestamp,
    ) -> Result<Option<RowVersion>, StoreError> {
        // An approval may be granted at the last moment, and can then be used for the same time again.
        let last_use = approval.expires_at + approval.expires_at.since(approval.asked_at);
        loop {
            let (mut ids, list) = self.load_list(partition, &approval.binding).await?;
            let max_identical = max_identical(&approval.arguments);
            if ids.len() >= max_identical {
                let found = self.load_listed(partition, &approval.binding, &ids).await?;
                ids = found.iter().rev().map(|stored| stored.approval.id).collect();
            }
            if ids.len() >= max_identical {
                return Ok(None);
            }
            ids.push(approval.id);
            let id = list_row_id(&approval.binding);
            let value = encode(Table::Approvals, &id, &ids)?;
            let list_write = Write {
                table: Table::Approvals,
                id,
                expect: list.map_or(Expect::Absent, Expect::Same),
                change: Change::Put { value, schema: LAYOUT, expires: Some(last_use + self.retention) },
                durability: Durability::PowerSafe,
            };
            let batch = Batch::new(partition.clone()).with(self.write(approval, Expect::Absent)?).with(list_write);
            let stamp = batch.stamp;
            match self.store.commit(batch, now).await {
                // Take the version from the store: in a restored store it need not be 1.
                Ok(versions) => {
                    return Ok(Some(RowVersion { number: versions.first().copied().unwrap_or_default(), stamp }));
                }
                // An identical call asked concurrently; retry, so that the list has both.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Closes an unanswered approval, because it timed out or its caller gave up. A concurrent answer takes precedence.
    pub(crate) async fn close(
        &self,
        stored: StoredApproval,
        state: ApprovalState,
    ) -> Result<StoredApproval, StoreError> {
        let now = self.clock.now();
        let approval = Approval { state, ..stored.approval.clone() };
        let mut batch =
            Batch::new(stored.partition.clone()).with(self.write(&approval, Expect::Same(stored.row_version))?);
        if state == ApprovalState::TimedOut && self.alerts.is_enabled() {
            let reason =
                format!("a call of `{}` was denied, because the approval was not answered in time", approval.tool);
            let signal = Signal::happened(Condition::ApprovalExpired, SmolStr::from(approval.id), now, reason);
            let signal = signal.tenant(&stored.partition.tenant).tool(&approval.tool);
            batch.writes.push(signal.write(Durability::KillSafe)?);
        }
        match self.store.commit(batch, now).await {
            Ok(_) => {
                self.emit_resolved(&stored.partition.tenant, &approval);
                Ok(StoredApproval { approval, ..stored })
            }
            Err(StoreError::Conflict { .. }) => {
                let keys = [row_key(&stored)];
                let row = self.store.load(&keys, now).await?.pop().flatten();
                let [key] = keys;
                row.map_or_else(|| Ok(timed_out(stored)), |row| self.decode(key, &row))
            }
            Err(error) => Err(error),
        }
    }

    /// Stores an answer, together with the grant it gives.
    pub(crate) async fn answer(
        &self,
        stored: StoredApproval,
        approval: Approval<CompactJson>,
        grant: Option<(RowKey, Grant)>,
    ) -> Result<Approval<CompactJson>, ApprovalError> {
        let now = self.clock.now();
        let mut batch =
            Batch::new(stored.partition.clone()).with(self.write(&approval, Expect::Same(stored.row_version))?);
        let mut grant_batch = None;
        if let Some((key, grant)) = grant {
            let write = grant_write(&key, &grant)?;
            if key.partition == batch.partition {
                batch.writes.push(write);
            } else {
                grant_batch = Some(Batch::new(key.partition).with(write));
            }
        }
        match self.store.commit(batch, now).await {
            Ok(_) => {}
            Err(StoreError::Conflict { table: Table::Approvals, .. }) => {
                let state = self.find(&stored.partition.tenant, approval.id).await?.map(|found| found.approval.state);
                return Err(ApprovalError::Resolved(state.unwrap_or(ApprovalState::TimedOut)));
            }
            Err(error) => return Err(error.into()),
        }
        // The answer is committed; the rest cannot revoke it.
        self.emit_resolved(&stored.partition.tenant, &approval);
        self.wake_waiters(approval.id);
        // Commit the grant after the answer: of two concurrent answers only the first may grant "always".
        if let Some(batch) = grant_batch {
            self.store.commit(batch, now).await?;
        }
        Ok(approval)
    }

    /// The write that marks an approval as used by a call.
    pub(crate) fn mark_used(&self, stored: &StoredApproval, call: CallId) -> Result<Write, StoreError> {
        let used = Approval { state: ApprovalState::Used, used_by: Some(call), ..stored.approval.clone() };
        self.write(&used, Expect::Same(stored.row_version))
    }

    /// Records that a caller received the denial. The next identical call asks again.
    pub(crate) async fn mark_denial_delivered(&self, stored: &StoredApproval, call: CallId) -> Result<(), StoreError> {
        let delivered = Approval { used_by: Some(call), ..stored.approval.clone() };
        let batch =
            Batch::new(stored.partition.clone()).with(self.write(&delivered, Expect::Same(stored.row_version))?);
        self.store.commit(batch, self.clock.now()).await.map(|_| ())
    }

    /// An approval as it is stored: the secrets in its arguments are redacted, because the call has them and they are
    /// never shown. Arguments that an approver edited are kept, sealed, until a call uses the answer.
    fn redacted_for_storage(&self, approval: &Approval<CompactJson>) -> Approval {
        let edited = approval.answer.as_ref().and_then(|answer| answer.arguments.clone());
        let mut redacted = approval.clone().into_parsed().without_secrets(&self.redactor);
        if let (Some(answer), ApprovalState::Approved) = (&mut redacted.answer, approval.state) {
            answer.arguments = edited.map(|mut edited| {
                self.sealer.seal(&mut edited, &sealed_for(approval.id));
                edited
            });
        }
        redacted
    }

    /// The approval in a row. An answer whose secrets cannot be unsealed approves nothing: its call would run with other arguments.
    fn decode(&self, key: RowKey, row: &Row) -> Result<StoredApproval, StoreError> {
        let (mut approval, row_version): (Approval<CompactJson>, _) = decode(Table::Approvals, &key.id, LAYOUT, row)?;
        let edited = approval.answer.as_mut().and_then(|answer| answer.arguments.as_mut());
        if let (Some(edited), ApprovalState::Approved) = (edited, approval.state)
            && self.sealer.unseal(edited, &sealed_for(approval.id)).is_err()
        {
            tracing::warn!(approval = %approval.id, "answer cannot be used: the key that sealed its secrets is gone");
            approval.state = ApprovalState::TimedOut;
        }
        Ok(StoredApproval { approval, partition: key.partition, row_version })
    }

    /// Logs a request with the link to its page: the log is read by people, not by models.
    fn log_requested<A>(&self, approval: &Approval<A>) {
        let Approval { id, tool, thread, rule, expires_at, .. } = approval;
        let page = self.page_url.get().map(|url| format!("{url}/{id}"));
        let thread = thread.as_ref().map(ThreadId::as_str);
        tracing::info!(approval = %id, %tool, thread, rule, %expires_at, page, "approval requested");
    }

    /// Removes an approval from the pending ones, logs and emits its resolution.
    fn emit_resolved(&self, tenant: &Tenant, approval: &Approval<CompactJson>) {
        let by = approval.answer.as_ref().map(|answer| answer.by.as_str());
        let state = approval.state.display_name();
        tracing::info!(approval = %approval.id, tool = %approval.tool, state, by, "approval resolved");
        self.pending.remove(approval.id);
        if let Some(answer) = &approval.answer {
            self.pending.wait.record(answer.at.since(approval.asked_at));
        }
        let event = EventKind::ApprovalResolved {
            approval_id: approval.id,
            call_id: approval.call_id,
            run_id: approval.run,
            tool_name: approval.tool.clone(),
            state: approval.state,
            outcome: approval.answer.as_ref().map(|answer| answer.outcome),
            by: approval.answer.as_ref().map(|answer| answer.by.clone()),
        };
        self.events.emit_for_tenant(self.clock.now(), tenant, approval.thread.as_ref(), event);
    }

    fn write(&self, approval: &Approval<CompactJson>, expect: Expect) -> Result<Write, StoreError> {
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

/// The row that lists the approvals of one binding, so that a repeated call finds its own.
fn list_row_id(binding: &str) -> SmolStr {
    smol_str::format_smolstr!("about_{binding}")
}

/// Logs an unreadable record and skips it: it approves nothing, and its call asks again.
fn ok_or_log<T>(read: Result<T, StoreError>) -> Option<T> {
    read.inspect_err(StoreError::log_skipped).ok()
}

fn row_key(stored: &StoredApproval) -> RowKey {
    RowKey { partition: stored.partition.clone(), table: Table::Approvals, id: stored.approval.id.into() }
}

/// The record that sealed arguments belong to.
fn sealed_for(approval: ApprovalId) -> String {
    approval.to_string()
}

fn timed_out(stored: StoredApproval) -> StoredApproval {
    StoredApproval { approval: Approval { state: ApprovalState::TimedOut, ..stored.approval }, ..stored }
}
