//! Commits batches with one script call each.
//!
//! In: a batch. Out: versions, or why nothing was written, or that the outcome is unknown.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use redis::Value;
use toolhub_storage::{
    backend::{Batch, Change, Expect, StoreError, Table, Write},
    clock::Timestamp,
};

use super::{
    Redis,
    acknowledged::{Changed, LostMeanwhile},
    answer,
    epoch::{BucketState, add_position},
    keys::{Bucket, PartitionText},
    row_codec::{self, RowName},
    script::{COMMIT, COMMIT_WITHOUT_PUTS, ScriptCall},
};

/// How long an answer is kept for a client that asks again; far longer than a client tries.
const ANSWER_RETENTION: Duration = Duration::from_secs(180);
/// Redis limits a value to 512 MiB by default; this leaves room for the other fields.
const MAX_VALUE_BYTES: usize = 500_000_000;
const MAX_TERMS_BYTES: usize = 1 << 20;

/// The index of the argument that says that a batch was sent before.
const REPEATED_AT: usize = 3;
/// The number of keys before those of the tables.
const COMMON_KEYS: usize = 6;

/// The keys of the tables that a script uses: two for each table, ids and terms.
pub(super) struct TableKeys {
    tables: Vec<Table>,
    common: usize,
}

impl TableKeys {
    pub(super) fn new(common: usize) -> Self {
        Self { tables: Vec::new(), common }
    }

    /// The index of the key of a table's ids, counted from 1 as scripts do.
    pub(super) fn index_of(&mut self, table: Table) -> usize {
        let at = self.tables.iter().position(|known| *known == table).unwrap_or_else(|| {
            self.tables.push(table);
            self.tables.len() - 1
        });
        self.common + 2 * at + 1
    }

    pub(super) fn tables(&self) -> &[Table] {
        &self.tables
    }
}

impl Redis {
    pub(super) async fn commit_batch(&self, batch: Batch, now: Timestamp) -> Result<Vec<u64>, StoreError> {
        check(&batch)?;
        let (text, stamp) = (PartitionText::new(&batch.partition), batch.stamp);
        let bucket = self.keys.bucket_of(&text.full);
        let call = self.commit_call(&batch, &text, bucket, now);
        let answer = self.requests.commit(call, REPEATED_AT, has_puts(&batch)).await?;
        // What cannot be read may be the answer to a commit that was written.
        let (state, result) = read_answer(answer, &batch).map_err(|error| StoreError::Unknown(error.to_string()))?;
        if let (Some(replication), Some(_)) = (&self.replication, state.number) {
            replication.wait(bucket, stamp).await;
        }
        self.acknowledged.add(bucket, state, Changed::of(&batch, text.full)).map_err(|LostMeanwhile| {
            StoreError::Unknown("a fail-over of Redis lost the commit before it was acknowledged".into())
        })?;
        result
    }

    fn commit_call(&self, batch: &Batch, text: &PartitionText, bucket: Bucket, now: Timestamp) -> ScriptCall {
        let keys = &self.keys;
        let mut tables = TableKeys::new(COMMON_KEYS);
        let indexes: Vec<usize> = batch.writes.iter().map(|write| tables.index_of(write.table)).collect();
        let mut names = vec![
            keys.rows(bucket, &text.full),
            keys.order(bucket, &text.full),
            keys.meta(bucket),
            keys.expiries(bucket),
            keys.answer(bucket, batch.stamp, digest(batch)),
            keys.tenants(bucket),
        ];
        for table in tables.tables() {
            names.push(keys.ids(bucket, *table, text.tenant()));
            names.push(keys.terms(bucket, *table, text.tenant()));
        }
        let mut call = ScriptCall::new(if has_puts(batch) { &COMMIT } else { &COMMIT_WITHOUT_PUTS }, names);
        call.arg(now.millis().to_string());
        call.arg(now.millis().to_be_bytes());
        call.arg(if batch.no_other_rows { "1" } else { "0" });
        call.arg("0");
        call.arg(ANSWER_RETENTION.as_millis().to_string());
        call.arg(text.full.as_str());
        call.arg(text.rest());
        call.arg(text.tenant());
        call.arg(keys.channel(bucket));
        call.arg(if self.is_cluster { "SPUBLISH" } else { "PUBLISH" });
        add_position(&mut call, self.acknowledged.last(bucket));
        for (write, index) in batch.writes.iter().zip(indexes) {
            add_write(&mut call, batch, write, text, index, now);
        }
        call
    }
}

/// Tells batches with one stamp apart: only the same batch gets the answer to an earlier attempt.
fn digest(batch: &Batch) -> u64 {
    let mut hasher = DefaultHasher::new();
    batch.hash(&mut hasher);
    hasher.finish()
}

fn has_puts(batch: &Batch) -> bool {
    batch.writes.iter().any(|write| matches!(write.change, Change::Put { .. } | Change::Restore { .. }))
}

fn add_write(call: &mut ScriptCall, batch: &Batch, write: &Write, text: &PartitionText, index: usize, now: Timestamp) {
    call.arg(write.table.as_str());
    call.arg(write.id.as_str());
    call.arg(index.to_string());
    match write.expect {
        Expect::Any => call.arg(""),
        Expect::Absent => call.arg("-"),
        Expect::Same(version) => call.arg([version.number.to_be_bytes(), version.stamp.to_be_bytes()].concat()),
    }
    let rest = |value: &[u8], schema| {
        let name = RowName { partition: &text.full, table: write.table, id: &write.id };
        row_codec::encode_rest(name, batch.stamp, schema, batch.terms_of(write), value, now)
    };
    let (change, expires, restored, rest) = match &write.change {
        Change::Put { value, schema, expires } => ("put", *expires, 0, rest(value, *schema)),
        Change::Restore { value, schema, expires, version } => ("restore", *expires, *version, rest(value, *schema)),
        Change::Touch { expires } => ("touch", *expires, 0, Vec::new()),
        Change::Keep => ("keep", None, 0, Vec::new()),
        Change::Remove => ("remove", None, 0, Vec::new()),
    };
    call.arg(change);
    call.arg(row_codec::encode_expiry(expires));
    call.arg(restored.to_string());
    call.arg(rest);
}

/// Refuses what the layout of the keys cannot represent.
fn check(batch: &Batch) -> Result<(), StoreError> {
    batch.check_duplicate_writes()?;
    for write in &batch.writes {
        let Write { table, id, change, .. } = write;
        if id.contains('\0') {
            return Err(StoreError::Refused(format!("the id of a {table} row contains a NUL character")));
        }
        let (Change::Put { value, .. } | Change::Restore { value, .. }) = change else { continue };
        if value.len() > MAX_VALUE_BYTES {
            return Err(StoreError::Refused(format!(
                "the {table} record `{id}` exceeds the maximum record size of Redis"
            )));
        }
        if batch.terms_of(write).as_str().len() > MAX_TERMS_BYTES {
            return Err(StoreError::Refused(format!("the index terms of the {table} record `{id}` are too long")));
        }
    }
    Ok(())
}

/// The state of the bucket, and the versions that a commit assigned or why it was refused.
fn read_answer(value: Value, batch: &Batch) -> Result<(BucketState, Result<Vec<u64>, StoreError>), StoreError> {
    let mut parts = answer::into_array(value)?.into_iter();
    let status = answer::into_text(parts.next().ok_or_else(answer::unexpected)?)?;
    let state = BucketState::parse(parts.next().ok_or_else(answer::unexpected)?)?;
    let write = |at: Option<Value>| {
        let at = usize::try_from(answer::as_integer(&at.ok_or_else(answer::unexpected)?)?).unwrap_or(0);
        batch.writes.get(at.wrapping_sub(1)).ok_or_else(answer::unexpected)
    };
    let result = match status.as_str() {
        "ok" => {
            let version = |value: Value| Ok(answer::as_integer(&value)?.cast_unsigned());
            let versions = answer::into_array(parts.next().ok_or_else(answer::unexpected)?)?.into_iter();
            let versions = versions.map(version).collect::<Result<Vec<u64>, StoreError>>()?;
            if versions.len() != batch.writes.len() {
                return Err(answer::unexpected());
            }
            Ok(versions)
        }
        "conflict" => {
            let write = write(parts.next())?;
            let found = u64::try_from(answer::as_integer(&parts.next().ok_or_else(answer::unexpected)?)?).ok();
            Err(StoreError::Conflict { table: write.table, id: write.id.clone(), found })
        }
        "damaged" => {
            let write = write(parts.next())?;
            Err(StoreError::Damaged { table: write.table, id: write.id.clone(), reason: "it is too short".into() })
        }
        "others" => Err(StoreError::OtherRows),
        _ => return Err(answer::unexpected()),
    };
    Ok((state, result))
}
