//! Reads which rows of a bucket have expired, from its list of expiries.
//!
//! In: a bucket and the time. Out: pages of rows, the first to expire first. An entry that this version cannot read, such as that of a table
//! that a later version has added, is logged once and skipped.

use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, Value};
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Partition, StoreError, Table},
    clock::Timestamp,
};

use super::{
    Redis, answer,
    keys::{Bucket, Keys},
    requests::Request,
};

/// How many entries are read at a time, at most.
const PAGE: usize = 1000;

/// A row that has expired, as its entry names it.
pub(super) struct ExpiredRow {
    pub(super) partition: Partition,
    pub(super) table: Table,
    pub(super) id: SmolStr,
}

/// A walk through the entries of rows that have expired and were not swept.
pub(super) struct Expiries {
    key: String,
    now: Timestamp,
    page: usize,
    /// The time at which the next page begins, and how many entries of that time were read.
    from: Vec<u8>,
    skipped: usize,
    is_complete: bool,
}

impl Expiries {
    /// Pages have this many entries, and at most a thousand.
    pub(super) fn new(keys: &Keys, bucket: Bucket, now: Timestamp, page: usize) -> Self {
        let (key, page) = (keys.expiries(bucket), page.clamp(1, PAGE));
        Self { key, now, page, from: b"-inf".to_vec(), skipped: 0, is_complete: false }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The request for the next page.
    pub(super) fn request(&self) -> Request {
        let mut command = Cmd::new();
        command.arg("ZRANGE").arg(&self.key).arg(&self.from).arg(self.now.millis()).arg("BYSCORE");
        command.arg("LIMIT").arg(self.skipped).arg(self.page).arg("WITHSCORES");
        Request::Command(command)
    }

    /// The rows of a page.
    pub(super) fn read(&mut self, page: Value) -> Result<Vec<ExpiredRow>, StoreError> {
        let (mut rows, mut entries) = (Vec::new(), answer::into_array(page)?.into_iter());
        let mut count = 0;
        while let (Some(entry), Some(time)) = (entries.next(), entries.next()) {
            let (entry, time) = (answer::into_bytes(entry)?, answer::into_bytes(time)?);
            if time == self.from {
                self.skipped += 1;
            } else {
                (self.from, self.skipped) = (time, 1);
            }
            count += 1;
            match parse_entry(&entry) {
                Some(row) => rows.push(row),
                None => log_skipped(&entry),
            }
        }
        self.is_complete = count < self.page;
        Ok(rows)
    }
}

impl Redis {
    /// The rows that expired first, from all buckets, at most `limit`.
    pub(super) async fn expired_rows(&self, limit: usize, now: Timestamp) -> Result<Vec<ExpiredRow>, StoreError> {
        let mut walks: Vec<Expiries> =
            self.keys.buckets().map(|bucket| Expiries::new(&self.keys, bucket, now, limit)).collect();
        let mut rows = Vec::new();
        while rows.len() < limit && !walks.is_empty() {
            let requests: Vec<Request> = walks.iter().map(Expiries::request).collect();
            for (walk, page) in walks.iter_mut().zip(self.requests.read(&requests).await?) {
                rows.append(&mut walk.read(page)?);
            }
            walks.retain(|walk| !walk.is_complete());
        }
        rows.truncate(limit);
        Ok(rows)
    }
}

/// Reads `partition NUL table/id`.
fn parse_entry(entry: &[u8]) -> Option<ExpiredRow> {
    let (partition, field) = str::from_utf8(entry).ok()?.split_once('\0')?;
    let (table, id) = parse_field(field)?;
    Some(ExpiredRow { partition: partition.parse().ok()?, table, id })
}

/// Reads `table/id`.
pub(super) fn parse_field(field: &str) -> Option<(Table, SmolStr)> {
    let (name, id) = field.split_once('/')?;
    let table = Table::ALL.into_iter().find(|table| table.as_str() == name)?;
    Some((table, id.into()))
}

/// Logs the first entry of an index that cannot be read; there may be many.
pub(super) fn log_skipped(entry: &[u8]) {
    static IS_LOGGED: AtomicBool = AtomicBool::new(false);
    if !IS_LOGGED.swap(true, Ordering::Relaxed) {
        let entry = String::from_utf8_lossy(entry);
        tracing::warn!(
            ?entry,
            "an index of the store in Redis has entries that this version cannot read; they are skipped"
        );
    }
}
