//! The audit log: which key did what, and which requests were denied.
//!
//! In: the end of a request at an audited route, and every denied request. Out: append-only rows, and pages of them.
//! They never contain bodies, headers or query strings. Any client can cause denials, so they are rate-limited (GCRA);
//! the next recorded denial carries the number of dropped ones.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};
use toolhub_core::{
    backend::{
        Backend, Batch, Change, Cursor, Durability, Expect, Partition, PartitionKind, RowKey, Scan, Scope as ScanScope,
        StoreError, Table, Write,
    },
    clock::{Clock, Timestamp},
    ids::{Caller, Tenant},
};

const SCHEMA_VERSION: u32 = 1;
/// Burst of denials that are recorded, and the interval in which one more is allowed.
const DENIAL_BURST: i64 = 60;
const DENIAL_INTERVAL: Duration = Duration::from_secs(5);
/// Longer paths are truncated.
const MAX_PATH_BYTES: usize = 256;

/// One action, or one denied request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AuditEntry")]
pub(crate) struct Entry {
    /// Its id; ids grow with time.
    #[schemars(with = "String")]
    pub(crate) id: SmolStr,
    /// When it happened.
    pub(crate) at: Timestamp,
    /// What was done, such as `key.create`; `denied` for a refused request.
    pub(crate) act: String,
    /// The name of the key; absent if the request had no valid key.
    #[schemars(with = "Option<String>")]
    pub(crate) who: Option<Caller>,
    /// The tenant of the key.
    #[schemars(with = "Option<String>")]
    pub(crate) tenant: Option<Tenant>,
    /// The client's IP address.
    #[schemars(with = "Option<String>")]
    pub(crate) from: Option<IpAddr>,
    /// The method of the request.
    pub(crate) method: String,
    /// The path of the request, without the query string.
    pub(crate) path: String,
    /// The status of the response.
    pub(crate) status: u16,
    /// The id of the request, as in the logs.
    #[schemars(with = "Option<String>")]
    pub(crate) request: Option<SmolStr>,
    /// How many denials before this one were dropped because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(with = "Option<u64>")]
    pub(crate) not_kept: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The audit log of a server.
pub(crate) struct Audit {
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    /// How long an entry is kept.
    retention: Duration,
    /// Theoretical arrival time (TAT) of the denial rate limit, in milliseconds since the Unix epoch.
    denial_tat: AtomicI64,
    dropped_denials: AtomicU64,
}

impl Audit {
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>, retention: Duration) -> Self {
        Self { store, clock, retention, denial_tat: AtomicI64::new(0), dropped_denials: AtomicU64::new(0) }
    }

    /// Writes an entry. If the store refuses it, the entry goes to the log instead, so that it is not lost.
    pub(crate) async fn record(&self, mut entry: Entry) {
        entry.path.truncate(entry.path.floor_char_boundary(MAX_PATH_BYTES));
        if let Err(error) = self.write(&entry).await {
            tracing::error!(%error, act = entry.act, who = ?entry.who, path = entry.path, "audit write failed; entry only logged");
        }
    }

    /// Whether one more denial may be recorded; returns how many were dropped since the last one.
    pub(crate) fn try_admit_denial(&self, now: Timestamp) -> Option<u64> {
        let interval = i64::try_from(DENIAL_INTERVAL.as_millis()).unwrap_or(i64::MAX);
        let next = |tat: i64| {
            let tat = tat.max(now.millis()) + interval;
            (tat - now.millis() <= interval * DENIAL_BURST).then_some(tat)
        };
        match self.denial_tat.fetch_update(Relaxed, Relaxed, next) {
            Ok(_) => Some(self.dropped_denials.swap(0, Relaxed)),
            Err(_) => {
                self.dropped_denials.fetch_add(1, Relaxed);
                None
            }
        }
    }

    /// A page of entries, newest first: before `until` or after the cursor `after`, and not before `since`.
    pub(crate) async fn page(
        &self,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Entry>, Option<SmolStr>), StoreError> {
        let key = |id: SmolStr| Cursor(RowKey { partition: partition(), table: Table::Audit, id });
        // Both bounds limit the page; in descending order the smaller id is the stricter one.
        let start = until.map(id_prefix).into_iter().chain(after.map(SmolStr::new)).min();
        let mut scan = Scan::new(Table::Audit, ScanScope::Partition(partition())).limit(limit);
        scan.descending = true;
        scan.after = start.map(key);
        let page = self.store.scan(scan, self.clock.now()).await?;
        let oldest = since.map(id_prefix);
        let mut entries = Vec::new();
        for (key, row) in &page.rows {
            if oldest.as_ref().is_some_and(|oldest| key.id < *oldest) {
                return Ok((entries, None));
            }
            match serde_json::from_slice(&row.value) {
                Ok(entry) if row.schema == SCHEMA_VERSION => entries.push(entry),
                _ => tracing::warn!(id = %key.id, "audit entry is unreadable; skipping it"),
            }
        }
        Ok((entries, page.next.map(|Cursor(key)| key.id)))
    }

    async fn write(&self, entry: &Entry) -> Result<(), StoreError> {
        let value = serde_json::to_vec(entry).map_err(|error| StoreError::Refused(error.to_string()))?;
        let change =
            Change::Put { value: value.into(), schema: SCHEMA_VERSION, expires: Some(entry.at + self.retention) };
        let (durability, expect) = (Durability::KillSafe, Expect::Absent);
        let write = Write { table: Table::Audit, id: entry.id.clone(), expect, change, durability };
        self.store.commit(Batch::new(partition()).with(write), self.clock.now()).await.map(drop)
    }
}

/// Mints the id of a new entry.
pub(crate) fn mint_id(now: Timestamp) -> SmolStr {
    format_smolstr!("{}{:012x}", id_prefix(now), fastrand::u64(..1 << 48))
}

/// The prefix of all ids of this millisecond.
fn id_prefix(time: Timestamp) -> SmolStr {
    format_smolstr!("{:015}-", time.millis().max(0))
}

/// One partition for all tenants, so that there is one order.
fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Audit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_core::{backend::Memory, clock::SystemClock};

    #[test]
    fn refusals_beyond_the_rate_are_counted_and_told_with_the_next_that_is_kept() {
        let audit = Audit::new(Arc::new(Memory::new()), Arc::new(SystemClock), DENIAL_INTERVAL);
        let now = Timestamp::from_millis(1_000_000_000);
        let admitted = (0..100).filter(|_| audit.try_admit_denial(now).is_some()).count();
        assert_eq!(admitted, 60);
        assert_eq!(audit.try_admit_denial(now + DENIAL_INTERVAL), Some(40));
        assert_eq!(audit.try_admit_denial(now + DENIAL_INTERVAL), None);
    }
}
