//! The row of one shared limit and key: its theoretical arrival time (TAT), in microseconds of the store's clock.
//!
//! In: a limit and the time. Out: how many permits may be borrowed, and the row afterwards. `shared_rates.rs` commits it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};
use toolhub_storage::backend::{
    Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, RowKey, RowVersion, StoreError, Table, Write,
    decode,
};
use toolhub_types::{
    ids::Tenant,
    policy::{RateLimit, RateScope},
    timestamp::Timestamp,
    tool::ToolName,
};

use super::{BORROWED_TIME, Subject};

const LAYOUT: u32 = 1;
/// How long a row is kept after its last usage is paid back.
const ROW_SLACK: Duration = Duration::from_secs(60);

/// Names a row: a tool, and a limit with its key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RowName {
    tool: ToolName,
    id: SmolStr,
}

/// When all usage so far is paid back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct RateRow {
    tat: u64,
}

impl RowName {
    /// The row of each limit. A limit with another number of requests in the same period continues with the usage so far.
    pub(super) fn of_limits(tool: &ToolName, limits: &[RateLimit], subject: Subject<'_>) -> Vec<Self> {
        let name = |(index, limit): (usize, &RateLimit)| {
            let earlier = &limits[..index];
            let ordinal = earlier.iter().filter(|other| other.scope == limit.scope && other.per == limit.per).count();
            let key = match limit.scope {
                RateScope::Tool => String::new(),
                RateScope::Thread => {
                    format!("{}/{}", subject.tenant, subject.thread.map_or("", |thread| thread.as_str()))
                }
                RateScope::Caller => format!("{}/{}", subject.tenant, subject.caller),
            };
            let id = format_smolstr!("{:?}-{}-{ordinal}:{key}", limit.scope, limit.per.as_millis());
            Self { tool: tool.clone(), id }
        };
        limits.iter().enumerate().map(name).collect()
    }

    pub(super) fn tool(&self) -> &ToolName {
        &self.tool
    }

    fn key(&self) -> RowKey {
        let partition = Partition { tenant: Tenant::default(), kind: PartitionKind::Tool(self.tool.clone()) };
        RowKey { partition, table: Table::Rates, id: self.id.clone() }
    }

    /// The write of a row that was read with this version.
    pub(super) fn write(&self, row: &RateRow, limit: &RateLimit, seen: Option<RowVersion>, now: Timestamp) -> Batch {
        let RowKey { partition, table, id } = self.key();
        let expires = now + row.debt(now) + limit.interval() + ROW_SLACK;
        let value = format!("{{\"tat\":{}}}", row.tat).into_bytes().into();
        let change = Change::Put { value, schema: LAYOUT, expires: Some(expires) };
        let expect = seen.map_or(Expect::Absent, Expect::Same);
        Batch::new(partition).with(Write { table, id, expect, change, durability: Durability::KillSafe })
    }

    pub(super) async fn load(
        &self,
        store: &dyn Backend,
        now: Timestamp,
    ) -> Result<Option<(RateRow, RowVersion)>, StoreError> {
        let key = [self.key()];
        let row = store.load(&key, now).await?.pop().flatten();
        row.map(|row| decode(Table::Rates, &self.id, LAYOUT, &row)).transpose()
    }
}

impl RateRow {
    /// How far the TAT is ahead of now.
    pub(super) fn debt(&self, now: Timestamp) -> Duration {
        Duration::from_micros(self.tat.saturating_sub(micros(now)))
    }

    /// How many calls would pass now.
    pub(super) fn remaining(&self, limit: &RateLimit, now: Timestamp) -> u32 {
        let unused = tolerance(limit).checked_sub(self.capped(limit, now).debt(now));
        let permits = unused.map_or(0, |unused| unused.as_nanos() / limit.interval().as_nanos().max(1) + 1);
        u32::try_from(permits).unwrap_or(u32::MAX)
    }

    /// How many permits to borrow, and how long to wait for the first; or the time after which to retry.
    pub(super) fn available(&self, limit: &RateLimit, now: Timestamp) -> Result<(u32, Duration), Duration> {
        let left = self.remaining(limit, now);
        if left == 0 {
            let wait = self.capped(limit, now).debt(now).saturating_sub(tolerance(limit));
            let retry_after = wait.saturating_sub(limit.max_wait());
            return if retry_after.is_zero() { Ok((1, wait)) } else { Err(retry_after) };
        }
        let of_time = BORROWED_TIME.as_nanos() / limit.interval().as_nanos().max(1);
        Ok((u32::try_from(of_time).unwrap_or(u32::MAX).min(left / 4).max(1), Duration::ZERO))
    }

    /// The row after so many permits.
    pub(super) fn charged(&self, limit: &RateLimit, permits: u32, now: Timestamp) -> Self {
        self.capped(limit, now).advanced(limit.interval().saturating_mul(permits), now)
    }

    /// The row after usage that is this long in paying back.
    pub(super) fn advanced(&self, by: Duration, now: Timestamp) -> Self {
        let by = u64::try_from(by.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        if by == 0 { *self } else { Self { tat: self.tat.max(micros(now)).saturating_add(by) } }
    }

    /// The row without the usage of a call that did not run.
    pub(super) fn refunded(&self, interval: Duration) -> Self {
        Self { tat: self.tat.saturating_sub(u64::try_from(interval.as_micros()).unwrap_or(u64::MAX)) }
    }

    /// The row under this limit: usage of a wider one before it blocks no call for longer than this one allows.
    pub(super) fn capped(&self, limit: &RateLimit, now: Timestamp) -> Self {
        let max_ahead = tolerance(limit).saturating_add(limit.interval()).saturating_add(limit.max_wait());
        let furthest = micros(now).saturating_add(u64::try_from(max_ahead.as_micros()).unwrap_or(u64::MAX));
        Self { tat: self.tat.min(furthest) }
    }
}

/// How far ahead the TAT may be for one more call to pass.
fn tolerance(limit: &RateLimit) -> Duration {
    limit.interval().saturating_mul(limit.burst_size() - 1)
}

fn micros(time: Timestamp) -> u64 {
    u64::try_from(time.millis()).unwrap_or(0).saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn few_are_borrowed_at_once_and_one_by_one_near_the_end() {
        let limit = RateLimit::per_second(100);
        let (mut row, mut taken, mut largest) = (RateRow::default(), 0, 0);
        while let Ok((permits, wait)) = row.available(&limit, at(1_000)) {
            assert!(wait.is_zero() && (permits == 1 || permits <= row.remaining(&limit, at(1_000)) / 4));
            (taken, largest) = (taken + permits, largest.max(permits));
            row = row.charged(&limit, permits, at(1_000));
        }
        assert_eq!((taken, largest), (100, 10));
        assert_eq!(row.available(&limit, at(1_000)), Err(Duration::from_millis(10)));
        assert_eq!(row.available(&limit, at(1_010)), Ok((1, Duration::ZERO)));
        let waiting = limit.wait(Duration::from_secs(1));
        assert_eq!(row.available(&waiting, at(1_000)), Ok((1, Duration::from_millis(10))));
    }

    #[test]
    fn limits_with_the_same_scope_and_period_have_rows_of_their_own() {
        let (tool, tenant) = (ToolName::new("pay").unwrap(), Tenant::default());
        let limits = [RateLimit::per_second(5), RateLimit::per_second(9), RateLimit::per_minute(5).each_caller()];
        let caller = toolhub_types::ids::Caller::default();
        let subject = Subject { tenant: &tenant, thread: None, caller: &caller };
        let names = RowName::of_limits(&tool, &limits, subject);
        let ids: std::collections::HashSet<_> = names.iter().map(|name| name.id.clone()).collect();
        assert_eq!(ids.len(), 3);
    }
}
