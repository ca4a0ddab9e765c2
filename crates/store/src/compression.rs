//! Backend decorator that compresses tool state with zstd.
//!
//! In: the requests of `Backend`. Out: the same, with the values of states, snapshots and history compressed on write and
//! decompressed on read. The zstd magic number marks a compressed value; JSON never begins with it, so uncompressed values
//! of an existing store remain readable.

use std::{collections::BTreeMap, io::Read, sync::Arc};

use futures_core::future::BoxFuture;
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, LossReport, Page, Row, RowKey, Scan, ServersReport, SizeLimit, StoreError, Table,
        Watcher,
    },
    clock::{Clock, Timestamp},
    seal::SealKey,
};

/// The zstd magic number.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Compressing shorter values gains nothing.
const MIN_COMPRESS_BYTES: usize = 128;
/// zstd's default level: a good ratio at low cost.
const LEVEL: i32 = 3;
/// No state is this large; a larger value was not written by this code (decompression bomb).
const MAX_DECOMPRESSED_BYTES: usize = 1 << 30;

/// Wraps a backend and stores the values of states compressed.
///
/// The wrapper must stay in place for good: without it, readers get compressed values.
#[derive(Debug)]
pub struct Compressed<B>(pub B);

/// Whether the table has many JSON values.
fn is_compressible(table: Table) -> bool {
    matches!(table, Table::State | Table::Versions | Table::History)
}

fn compress(table: Table, value: &mut Arc<[u8]>) {
    if is_compressible(table) && (MIN_COMPRESS_BYTES..MAX_DECOMPRESSED_BYTES).contains(&value.len()) {
        // A value that zstd cannot compress is stored uncompressed.
        match zstd::bulk::compress(value, LEVEL) {
            Ok(compressed) if compressed.len() < value.len() => *value = compressed.into(),
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
                    tracing::warn!(%error, "skipping state that cannot be decompressed");
                    false
                }
            });
            Ok(page)
        })
    }

    fn sweep(&self, limit: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.0.sweep(limit, now)
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

    fn write_error(&self) -> Option<String> {
        self.0.write_error()
    }

    fn damage(&self) -> Option<String> {
        self.0.damage()
    }

    fn losses(&self, seen: usize) -> Vec<LossReport> {
        self.0.losses(seen)
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }

    fn memory_pressure(&self) -> Option<f64> {
        self.0.memory_pressure()
    }

    fn lacks_replicas(&self, stamp: u64) -> bool {
        self.0.lacks_replicas(stamp)
    }

    fn servers(&self) -> Option<ServersReport> {
        self.0.servers()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.0.clock()
    }

    fn is_write_behind(&self) -> bool {
        self.0.is_write_behind()
    }

    fn size_limit(&self) -> Option<&SizeLimit> {
        self.0.size_limit()
    }

    fn seal_key(&self) -> Option<SealKey> {
        self.0.seal_key()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }
}
