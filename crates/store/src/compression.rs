//! A store that keeps what tools remember compressed.
//!
//! In: the requests of `Backend`. Out: the same, with the values of states, snapshots and history packed by zstd on the way
//! in and unpacked on the way out. A value says by its first bytes whether it is packed, and JSON never begins with those;
//! so what lies in a store unpacked is read as it is.

use std::{collections::BTreeMap, io::Read, sync::Arc};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Backend, Batch, Change, Page, Row, RowKey, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
};

/// How a packed value begins.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Shorter ones gain nothing.
const MIN_COMPRESS_BYTES: usize = 128;
/// A good deal smaller, and quick.
const LEVEL: i32 = 3;
/// No state is this large. What claims to be was not written by us.
const MAX_DECOMPRESSED_BYTES: usize = 1 << 30;

/// A backend before another one, which keeps the values of states packed.
///
/// It stays before that store for good: whoever reads it without this finds packed values.
#[derive(Debug)]
pub struct Compressed<B>(pub B);

/// Whether the values of a table are JSON, and many.
fn is_compressible(table: Table) -> bool {
    matches!(table, Table::State | Table::Versions | Table::History)
}

fn compress(table: Table, value: &mut Arc<[u8]>) {
    if is_compressible(table) && (MIN_COMPRESS_BYTES..MAX_DECOMPRESSED_BYTES).contains(&value.len()) {
        // What cannot be packed is kept as it is.
        match zstd::bulk::compress(value, LEVEL) {
            Ok(packed) if packed.len() < value.len() => *value = packed.into(),
            _ => {}
        }
    }
}

fn decompress(key: &RowKey, row: &mut Row) -> Result<(), StoreError> {
    if !is_compressible(key.table) || !row.value.starts_with(&MAGIC) {
        return Ok(());
    }
    let mut text = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(&*row.value);
    let read = decoder.and_then(|decoder| decoder.take(MAX_DECOMPRESSED_BYTES as u64).read_to_end(&mut text));
    let damaged =
        || StoreError::Damaged { table: key.table, id: key.id.clone(), reason: "it cannot be decompressed".into() };
    read.ok().filter(|read| *read < MAX_DECOMPRESSED_BYTES).ok_or_else(damaged)?;
    row.value = text.into();
    Ok(())
}

impl<B: Backend> Backend for Compressed<B> {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(async move {
            let mut rows = self.0.load(keys, now).await?;
            for (key, row) in keys.iter().zip(&mut rows) {
                row.as_mut().map_or(Ok(()), |row| decompress(key, row))?;
            }
            Ok(rows)
        })
    }

    fn commit(&self, mut batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        for write in &mut batch.writes {
            if let Change::Put { value, .. } | Change::Restore { value, .. } = &mut write.change {
                compress(write.table, value);
            }
        }
        self.0.commit(batch, now)
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            let mut page = self.0.scan(scan, now).await?;
            page.rows.retain_mut(|(key, row)| match decompress(key, row) {
                Ok(()) => true,
                Err(error) => {
                    tracing::warn!(%error, "a stored record is passed over");
                    false
                }
            });
            Ok(page)
        })
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.0.sweep(most, now)
    }

    fn count_by_id(&self, table: Table, now: Timestamp) -> BoxFuture<'_, Result<BTreeMap<SmolStr, u64>, StoreError>> {
        self.0.count_by_id(table, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        self.0.watch(table)
    }

    fn is_exclusive(&self) -> bool {
        self.0.is_exclusive()
    }

    fn is_write_behind(&self) -> bool {
        self.0.is_write_behind()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}
