//! Removes expired rows (`expiries.rs` finds them), with one script call for each partition.

use std::collections::BTreeMap;

use toolhub_storage::{backend::StoreError, clock::Timestamp};

use super::{
    Redis, answer,
    commit::TableKeys,
    expiries::ExpiredRow,
    keys::PartitionText,
    requests::Request,
    script::{SWEEP, ScriptCall},
};

/// The number of keys before those of the tables.
const COMMON_KEYS: usize = 3;

impl Redis {
    pub(super) async fn sweep_rows(&self, limit: usize, now: Timestamp) -> Result<usize, StoreError> {
        let mut swept = 0;
        while swept < limit {
            let expired = self.expired_rows(limit - swept, now).await?;
            if expired.is_empty() {
                break;
            }
            let mut partitions = BTreeMap::<String, Vec<ExpiredRow>>::new();
            for row in expired {
                partitions.entry(row.partition.to_string()).or_default().push(row);
            }
            let calls: Vec<Request> =
                partitions.values().map(|rows| Request::Script(self.sweep_call(rows, now))).collect();
            let mut removed = 0;
            for answer in self.requests.write_all(&calls).await? {
                removed += usize::try_from(answer::as_integer(&answer)?).map_err(|_| answer::unexpected())?;
            }
            swept += removed;
            if removed == 0 {
                // A commit or another sweep was faster.
                break;
            }
        }
        Ok(swept)
    }

    fn sweep_call(&self, rows: &[ExpiredRow], now: Timestamp) -> ScriptCall {
        let text = PartitionText::new(&rows[0].partition);
        let (keys, bucket) = (&self.keys, self.keys.bucket_of(&text.full));
        let mut tables = TableKeys::new(COMMON_KEYS);
        let indexes: Vec<usize> = rows.iter().map(|row| tables.index_of(row.table)).collect();
        let mut names = vec![keys.rows(bucket, &text.full), keys.order(bucket, &text.full), keys.expiries(bucket)];
        for table in tables.tables() {
            names.push(keys.ids(bucket, *table, text.tenant()));
            names.push(keys.terms(bucket, *table, text.tenant()));
        }
        let mut call = ScriptCall::new(&SWEEP, names);
        call.arg(now.millis().to_string());
        call.arg(text.full.as_str());
        call.arg(text.rest());
        for (row, index) in rows.iter().zip(indexes) {
            call.arg(row.table.as_str());
            call.arg(row.id.as_str());
            call.arg(index.to_string());
        }
        call
    }
}
