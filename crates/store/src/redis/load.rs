//! Loads rows by their keys: one request for each partition, all sent together.

use std::collections::HashMap;

use redis::Cmd;
use toolhub_storage::{
    backend::{Row, RowKey, StoreError},
    clock::Timestamp,
};

use super::{
    Redis, answer,
    keys::PartitionText,
    requests::Request,
    row_codec::{self, RowName, StoredRow},
};

/// How many bytes of rows a scan reads in one request, or a little more: a slow network needs time for them, and an answer must not take
/// longer than two seconds.
pub(super) const MAX_STEP_BYTES: usize = 4 << 20;
/// A scan does not ask for the sizes of so few rows before it reads them.
const MAX_UNSIZED_ROWS: usize = 16;

impl Redis {
    pub(super) async fn load_rows(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        let rows = self.load_stored(keys, now).await?.into_iter();
        rows.map(|row| row.map(|row| row.map(|row| row.row))).collect()
    }

    /// Like `load_stored`, in as many requests as the size of the rows needs.
    pub(super) async fn load_in_steps(
        &self,
        keys: &[RowKey],
        now: Timestamp,
    ) -> Result<Vec<Result<Option<StoredRow>, StoreError>>, StoreError> {
        if keys.len() <= MAX_UNSIZED_ROWS {
            return self.load_stored(keys, now).await;
        }
        let size_of = |key: &RowKey| {
            let partition = key.partition.to_string();
            let mut command = Cmd::new();
            command.arg("HSTRLEN").arg(self.keys.rows(self.keys.bucket_of(&partition), &partition)).arg(field(key));
            Request::Command(command)
        };
        let sizes = self.requests.read(&keys.iter().map(size_of).collect::<Vec<_>>()).await?;
        let (mut rows, mut sizes) = (Vec::with_capacity(keys.len()), sizes.iter());
        while rows.len() < keys.len() {
            let (first, mut last, mut bytes) = (rows.len(), rows.len(), 0);
            while bytes < MAX_STEP_BYTES
                && let Some(size) = sizes.next()
            {
                bytes += usize::try_from(answer::as_integer(size)?).unwrap_or(0);
                last += 1;
            }
            if last == first {
                return Err(answer::unexpected());
            }
            rows.extend(self.load_stored(&keys[first..last], now).await?);
        }
        Ok(rows)
    }

    /// Each row with its terms. The inner error is damage of that row.
    pub(super) async fn load_stored(
        &self,
        keys: &[RowKey],
        now: Timestamp,
    ) -> Result<Vec<Result<Option<StoredRow>, StoreError>>, StoreError> {
        // All keys of a partition go into one command, so their rows come from one snapshot.
        let (mut groups, mut group_of) = (Vec::<(PartitionText, Vec<usize>)>::new(), HashMap::new());
        for (at, key) in keys.iter().enumerate() {
            let group = *group_of.entry(&key.partition).or_insert_with(|| {
                groups.push((PartitionText::new(&key.partition), Vec::new()));
                groups.len() - 1
            });
            groups[group].1.push(at);
        }
        let requests: Vec<Request> = groups
            .iter()
            .map(|(text, members)| {
                let mut command = Cmd::new();
                command.arg("HMGET").arg(self.keys.rows(self.keys.bucket_of(&text.full), &text.full));
                for at in members {
                    command.arg(field(&keys[*at]));
                }
                Request::Command(command)
            })
            .collect();
        let answers = self.requests.read(&requests).await?;
        let mut rows: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        for ((text, members), answer) in groups.iter().zip(answers) {
            let values = answer::into_array(answer)?;
            if values.len() != members.len() {
                return Err(answer::unexpected());
            }
            for (at, value) in members.iter().zip(values) {
                let name = RowName { partition: &text.full, table: keys[*at].table, id: &keys[*at].id };
                rows[*at] = match value {
                    redis::Value::Nil => Ok(None),
                    value => row_codec::decode(name, &answer::into_bytes(value)?, now),
                };
            }
        }
        Ok(rows)
    }
}

/// The field of a row in the hash of its partition.
fn field(key: &RowKey) -> String {
    format!("{}/{}", key.table, key.id)
}
