//! The audit log: which key did what, and which requests were denied.
//!
//! In: the end of a request at an audited route, and every denied request. Out: append-only rows, and pages of them.
//! They never contain bodies, headers or query strings. Any client can cause denials, so they are rate-limited (GCRA);
//! the next recorded denial carries the number of dropped ones.

use std::{
    net::{IpAddr, SocketAddr},
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
    Glob,
    backend::{
        Backend, Batch, Change, Cursor, Durability, Expect, Partition, PartitionKind, RowKey, Scan, Scope as ScanScope,
        StoreError, Table, Write,
    },
    clock::{Clock, Timestamp},
    ids::{Caller, Tenant},
};

use crate::scope::Principal;

const SCHEMA_VERSION: u32 = 1;
/// Burst of denials that are recorded, and the interval in which one more is allowed.
const DENIAL_BURST: i64 = 60;
const DENIAL_INTERVAL: Duration = Duration::from_secs(5);
/// Number of entries that are read for a page with a filter.
const MAX_READ: usize = 1_000;
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
    /// What it was done to, such as `tools/weather`: the part of the path that names it.
    #[serde(default)]
    pub(crate) object: String,
    /// How the request was authenticated; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<Via>,
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

/// How a request was authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "AuditVia")]
pub(crate) enum Via {
    /// With an API key.
    Key,
    /// With a login of the dashboard.
    Login,
    /// Without a key, on a server for the users of its machine.
    Local,
    /// By a command that opened the store itself, without a server.
    Command,
}

impl Via {
    /// The way of a request with this principal. `peer` is the address of the client, which a command has not.
    pub(crate) fn of(principal: &Principal, has_keys: bool, peer: Option<SocketAddr>) -> Self {
        match (&principal.login, has_keys, peer) {
            (Some(_), ..) => Self::Login,
            (None, true, _) => Self::Key,
            (None, false, None) => Self::Command,
            (None, false, Some(_)) => Self::Local,
        }
    }
}

/// The object of a request: the path below the API up to its last variable part, such as `tools/weather`.
pub(crate) fn object_of(route: &str, path: &str) -> String {
    let is_variable = |part: &str| part.starts_with('{');
    let route: Vec<&str> = route.trim_start_matches('/').split('/').collect();
    let path: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let end = route.iter().rposition(|part| is_variable(part)).map_or(route.len(), |last| last + 1);
    let begin = if route.starts_with(&["api", "v1"]) { 2 } else { 0 };
    let parts = path.get(begin..end.min(path.len())).unwrap_or_default();
    let mut object = parts.join("/");
    object.truncate(object.floor_char_boundary(MAX_PATH_BYTES));
    object
}

/// Which entries of the audit log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// Only at or after this time.
    pub(crate) since: Option<Timestamp>,
    /// Only before this time.
    pub(crate) until: Option<Timestamp>,
    /// Only these actions: a glob over their names.
    pub(crate) action: Option<Glob>,
    /// Only those of this principal: the name of a key.
    pub(crate) principal: Option<String>,
    /// Only those on these objects: a glob.
    pub(crate) object: Option<Glob>,
}

impl Filter {
    fn matches(&self, entry: &Entry) -> bool {
        let by = |name: &String| entry.who.as_ref().is_some_and(|who| who.as_str() == name);
        self.action.as_ref().is_none_or(|glob| glob.matches(&entry.act))
            && self.principal.as_ref().is_none_or(by)
            && self.object.as_ref().is_none_or(|glob| glob.matches(&entry.object))
    }

    fn selects(&self) -> bool {
        self.action.is_some() || self.principal.is_some() || self.object.is_some()
    }
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

    /// A page of the entries that a filter selects, newest first, after the cursor `after`. It may have fewer entries than the limit, even
    /// none, and a cursor: a filter that matches few reads at most so many at a time.
    pub(crate) async fn page(
        &self,
        filter: &Filter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Entry>, Option<SmolStr>), StoreError> {
        let key = |id: SmolStr| Cursor(RowKey { partition: partition(), table: Table::Audit, id });
        // Both bounds limit the page; in descending order the smaller id is the stricter one.
        let start = filter.until.map(id_prefix).into_iter().chain(after.map(SmolStr::new)).min();
        let read = if filter.selects() { MAX_READ } else { limit };
        let mut scan = Scan::new(Table::Audit, ScanScope::Partition(partition())).limit(read);
        scan.descending = true;
        scan.after = start.map(key);
        let page = self.store.scan(scan, self.clock.now()).await?;
        let oldest = filter.since.map(id_prefix);
        let mut entries = Vec::new();
        for (key, row) in &page.rows {
            if oldest.as_ref().is_some_and(|oldest| key.id < *oldest) {
                return Ok((entries, None));
            }
            match serde_json::from_slice(&row.value) {
                Ok(entry) if row.schema == SCHEMA_VERSION => {
                    if filter.matches(&entry) {
                        entries.push(entry);
                    }
                    if entries.len() == limit && page.rows.last().is_some_and(|(last, _)| last.id != key.id) {
                        return Ok((entries, Some(key.id.clone())));
                    }
                }
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

    #[track_caller]
    fn check_object(route: &str, path: &str, expected: &str) {
        assert_eq!(object_of(route, path), expected);
    }

    #[test]
    fn the_object_of_a_request_is_what_its_path_names() {
        check_object("/api/v1/tools/{name}/status", "/api/v1/tools/weather/status", "tools/weather");
        check_object(
            "/api/v1/state/contexts/{id}/{kind}",
            "/api/v1/state/contexts/t%2Fcart/business",
            "state/contexts/t%2Fcart/business",
        );
        check_object("/api/v1/keys", "/api/v1/keys", "keys");
        check_object("/agents/{threadId}/tool-states/reset", "/agents/t1/tool-states/reset", "agents/t1");
    }

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
