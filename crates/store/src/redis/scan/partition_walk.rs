//! Walks the rows of one partition in order.
//!
//! Each step is a snapshot.

use std::collections::VecDeque;

use redis::Value;
use toolhub_storage::{
    backend::{Partition, RowKey, Scan, StoreError},
    clock::Timestamp,
};

use super::{
    super::{
        Redis, answer,
        expiries::{log_skipped, parse_field},
        keys::PartitionText,
        load::MAX_STEP_BYTES,
        requests::Request,
        row_codec::{self, RowName},
        script::{SCAN_PARTITION, ScriptCall},
    },
    WalkedRow,
    bounds::LexRange,
};

pub(super) struct PartitionWalk<'a> {
    store: &'a Redis,
    scan: &'a Scan,
    partition: &'a Partition,
    text: PartitionText,
    range: LexRange,
    /// Rows that were read and not returned yet, by their fields.
    rows: VecDeque<(String, Vec<u8>)>,
    is_complete: bool,
}

impl<'a> PartitionWalk<'a> {
    pub(super) fn new(store: &'a Redis, scan: &'a Scan, partition: &'a Partition) -> Self {
        let text = PartitionText::new(partition);
        let range = LexRange::of_partition(format!("{}/", scan.table).as_bytes(), scan, &text.full);
        Self { store, scan, partition, text, range, rows: VecDeque::new(), is_complete: false }
    }

    pub(super) async fn next(&mut self, count: usize, now: Timestamp) -> Result<Vec<WalkedRow>, StoreError> {
        while self.rows.is_empty() && !self.is_complete {
            self.read(count).await?;
        }
        let mut walked = Vec::new();
        while walked.len() < count
            && let Some((field, value)) = self.rows.pop_front()
        {
            // The script returns the fields of this table only.
            let Some((table, id)) = parse_field(&field) else { continue };
            let row = row_codec::decode(RowName { partition: &self.text.full, table, id: &id }, &value, now);
            walked.push((RowKey { partition: self.partition.clone(), table, id }, row));
        }
        Ok(walked)
    }

    async fn read(&mut self, count: usize) -> Result<(), StoreError> {
        let (keys, bucket) = (&self.store.keys, self.store.keys.bucket_of(&self.text.full));
        let names = vec![keys.rows(bucket, &self.text.full), keys.order(bucket, &self.text.full)];
        let mut call = ScriptCall::new(&SCAN_PARTITION, names);
        let [lower, upper] = self.range.bounds();
        call.arg(lower);
        call.arg(upper);
        call.arg(if self.scan.descending { "1" } else { "0" });
        call.arg(count.to_string());
        call.arg(format!("{}/", self.scan.table));
        call.arg(MAX_STEP_BYTES.to_string());
        let answers = self.store.requests.read(&[Request::Script(call)]).await?;
        let mut parts = answer::into_array(answers.into_iter().next().ok_or_else(answer::unexpected)?)?.into_iter();
        self.is_complete = answer::as_integer(&parts.next().ok_or_else(answer::unexpected)?)? == 1;
        while let (Some(field), Some(value)) = (parts.next(), parts.next()) {
            let field = answer::into_bytes(field)?;
            self.range.continue_after(field.clone());
            match (String::from_utf8(field), value) {
                (Err(error), _) => log_skipped(error.as_bytes()),
                // An entry of the order without a row.
                (Ok(_), Value::Nil) => {}
                (Ok(field), value) => self.rows.push_back((field, answer::into_bytes(value)?)),
            }
        }
        Ok(())
    }
}
