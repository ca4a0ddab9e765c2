//! Loads rows inline on a pool of read-only connections.
//!
//! In: keys. Out: their rows from one snapshot. A failed connection is closed; the next load reopens it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rusqlite::{Connection, OptionalExtension, Result};
use toolhub_storage::{
    backend::{Row, RowKey, StoreError},
    clock::Timestamp,
};

use super::{
    connection, error,
    quarantine::{self, Quarantine},
    row,
};

const LOAD: &str = "SELECT version, stamp, layout, expires, created, updated, body, head, value FROM rows \
                    WHERE partition = ?1 AND tab = ?2 AND id = ?3";

/// Connection pool for loads. A load holds a connection for microseconds.
pub(super) struct Readers {
    path: PathBuf,
    connections: Vec<Mutex<Option<Connection>>>,
    next: AtomicUsize,
    quarantine: Arc<Quarantine>,
}

impl Readers {
    pub(super) fn open(path: &Path, quarantine: Arc<Quarantine>) -> Result<Self> {
        let count = std::thread::available_parallelism().map_or(4, usize::from).clamp(2, 16);
        // One connection is opened now, so that errors surface immediately.
        let first = Mutex::new(Some(connection::open_reader(path)?));
        let connections =
            std::iter::once(first).chain(std::iter::repeat_with(Mutex::default).take(count - 1)).collect();
        Ok(Self { path: path.to_owned(), connections, next: AtomicUsize::new(0), quarantine })
    }

    /// The rows of these keys, in the same order.
    pub(super) fn load(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        let mut slot = self.lock_connection();
        let connection = match &mut *slot {
            Some(connection) => connection,
            closed => closed.insert(connection::open_reader(&self.path).map_err(|error| error::unavailable(&error))?),
        };
        let loaded = if keys.len() == 1 {
            self.load_row(connection, &keys[0], now).map(|row| vec![row])
        } else {
            in_read_transaction(connection, |connection| {
                keys.iter().map(|key| self.load_row(connection, key, now)).collect()
            })
        };
        if let Err(StoreError::Unavailable(_)) = loaded {
            *slot = None;
        }
        loaded
    }

    /// An unused connection, or a wait for one of them in round-robin order.
    fn lock_connection(&self) -> MutexGuard<'_, Option<Connection>> {
        for slot in &self.connections {
            if let Ok(guard) = slot.try_lock() {
                return guard;
            }
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        self.connections[next].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load_row(&self, connection: &Connection, key: &RowKey, now: Timestamp) -> Result<Option<Row>, StoreError> {
        let partition = row::partition_key(&key.partition);
        let name = row::RowName { partition: &partition, table: key.table, id: &key.id };
        let load = || -> Result<_> {
            let mut load = connection.prepare_cached(LOAD)?;
            load.query_row((name.partition, name.table.as_str(), name.id), |found| row::read(found, 0, name, now))
                .optional()
        };
        match load().map_err(|error| error::row_error(key.table, &key.id, &error))? {
            None if self.quarantine.version(name).is_some() => Err(quarantine::quarantined_error(name)),
            found => found.transpose().map(Option::flatten),
        }
    }
}

/// Runs several reads on one snapshot.
pub(super) fn in_read_transaction<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let run =
        |sql| connection.prepare_cached(sql).and_then(|mut sql| sql.execute(())).map_err(|e| error::unavailable(&e));
    run("BEGIN")?;
    let result = read(connection);
    // Also after an error: an open snapshot would prevent the WAL from being reset.
    run("COMMIT")?;
    result
}
