//! The audit: who did what to the server, and who was not let.
//!
//! In: the end of a request at a route that is audited, and every refusal of a key. Out: rows that are only ever added,
//! and pages of them. Bodies, headers and what stands behind the `?` are never in them. Refusals can be made by anybody, so
//! only so many of them are kept in a while; the next one that is kept says how many were not.

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
        Backend, Batch, Change, Cursor, Durability, Expect, Partition, PartitionKind, RowKey, Scan, Scope as Whose,
        StoreError, Table, Write,
    },
    clock::{Clock, SystemClock, Timestamp},
    ids::{Caller, Tenant},
};

const SCHEMA_VERSION: u32 = 1;
/// How many refusals may be kept at once, and how long one takes to be forgotten.
const DENIAL_BURST: i64 = 60;
const DENIAL_INTERVAL: Duration = Duration::from_secs(5);
/// How much of a path is kept.
const MAX_PATH_BYTES: usize = 256;

/// One thing that was done, or refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AuditEntry")]
pub(crate) struct Entry {
    /// Its place in the audit; later ones are greater.
    #[schemars(with = "String")]
    pub(crate) id: SmolStr,
    /// When.
    pub(crate) at: Timestamp,
    /// What was done, such as `key.create`; `denied` where somebody was not let.
    pub(crate) act: String,
    /// The name of the key; nobody's where none was known.
    #[schemars(with = "Option<String>")]
    pub(crate) who: Option<Caller>,
    /// Whose key it is.
    #[schemars(with = "Option<String>")]
    pub(crate) tenant: Option<Tenant>,
    /// From which address.
    #[schemars(with = "Option<String>")]
    pub(crate) from: Option<IpAddr>,
    /// The method of the request.
    pub(crate) method: String,
    /// The path of the request, without what stands behind the `?`.
    pub(crate) path: String,
    /// The status of the answer.
    pub(crate) status: u16,
    /// The request, as logs call it.
    #[schemars(with = "Option<String>")]
    pub(crate) request: Option<SmolStr>,
    /// How many refusals before this one were too many to be kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(with = "Option<u64>")]
    pub(crate) not_kept: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The audit of a server.
pub(crate) struct Audit {
    store: Arc<dyn Backend>,
    /// How long a row is kept.
    retention: Duration,
    /// When the refusals that were kept will all be forgotten, in milliseconds since 1970.
    denial_tat: AtomicI64,
    dropped_denials: AtomicU64,
}

impl Audit {
    pub(crate) fn new(store: Arc<dyn Backend>, keep: Duration) -> Self {
        Self { store, retention: keep, denial_tat: AtomicI64::new(0), dropped_denials: AtomicU64::new(0) }
    }

    /// Keeps what was done. A store that does not take it is told of in the log, with the entry: it must be somewhere.
    pub(crate) async fn record(&self, mut entry: Entry) {
        entry.path.truncate(entry.path.floor_char_boundary(MAX_PATH_BYTES));
        if let Err(error) = self.write(&entry).await {
            tracing::error!(%error, act = entry.act, who = ?entry.who, path = entry.path, "the audit could not be written");
        }
    }

    /// Whether one more refusal may be kept, and how many before it were not.
    pub(crate) fn try_admit_denial(&self, now: Timestamp) -> Option<u64> {
        let each = i64::try_from(DENIAL_INTERVAL.as_millis()).unwrap_or(i64::MAX);
        let next = |until: i64| {
            let until = until.max(now.millis()) + each;
            (until - now.millis() <= each * DENIAL_BURST).then_some(until)
        };
        match self.denial_tat.fetch_update(Relaxed, Relaxed, next) {
            Ok(_) => Some(self.dropped_denials.swap(0, Relaxed)),
            Err(_) => {
                self.dropped_denials.fetch_add(1, Relaxed);
                None
            }
        }
    }

    /// A page, the latest first: what happened before `until` or behind the place `after`, and not before `since`.
    pub(crate) async fn page(
        &self,
        since: Option<Timestamp>,
        until: Option<Timestamp>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Entry>, Option<SmolStr>), StoreError> {
        let key = |id: SmolStr| Cursor(RowKey { partition: partition(), table: Table::Audit, id });
        // Behind the place, and before the first of that time: whichever comes later in the list.
        let begins = until.map(id_prefix).into_iter().chain(after.map(SmolStr::new)).min();
        let mut scan = Scan::new(Table::Audit, Whose::Partition(partition())).limit(limit);
        scan.descending = true;
        scan.after = begins.map(key);
        let page = self.store.scan(scan, SystemClock.now()).await?;
        let oldest = since.map(id_prefix);
        let mut entries = Vec::new();
        for (key, row) in &page.rows {
            if oldest.as_ref().is_some_and(|oldest| key.id < *oldest) {
                return Ok((entries, None));
            }
            match serde_json::from_slice(&row.value) {
                Ok(entry) if row.schema == SCHEMA_VERSION => entries.push(entry),
                _ => tracing::warn!(id = %key.id, "an entry of the audit cannot be read and is passed over"),
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
        self.store.commit(Batch::new(partition()).with(write), SystemClock.now()).await.map(drop)
    }
}

/// A new place in the audit.
pub(crate) fn mint_id(now: Timestamp) -> SmolStr {
    format_smolstr!("{}{:012x}", id_prefix(now), fastrand::u64(..1 << 48))
}

/// What the ids of this millisecond begin with.
fn id_prefix(time: Timestamp) -> SmolStr {
    format_smolstr!("{:015}-", time.millis().max(0))
}

/// One list for everybody, so that there is one order.
fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Audit }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_core::backend::Memory;

    #[test]
    fn refusals_beyond_the_rate_are_counted_and_told_with_the_next_that_is_kept() {
        let audit = Audit::new(Arc::new(Memory::new()), DENIAL_INTERVAL);
        let now = Timestamp::from_millis(1_000_000_000);
        let kept = (0..100).filter(|_| audit.try_admit_denial(now).is_some()).count();
        assert_eq!(kept, 60);
        assert_eq!(audit.try_admit_denial(now + DENIAL_INTERVAL), Some(40));
        assert_eq!(audit.try_admit_denial(now + DENIAL_INTERVAL), None);
    }
}
