//! Loads rows inline on a pool of read-only connections.
//!
//! In: keys. Out: their rows from one snapshot. A failed connection is closed; the next load reopens it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use rusqlite::{Connection, OptionalExtension, Result};
use toolhub_storage::{
    backend::{Row, RowKey, StoreError, Table},
    clock::Timestamp,
};

use super::{
    connection, error,
    quarantine::{self, Quarantine},
    row,
    store_file::StoreFile,
};

const LOAD: &str = "SELECT version, stamp, layout, expires, created, updated, body, head, value FROM rows \
                    WHERE partition = ?1 AND tab = ?2 AND id = ?3";

/// Whether the other index has the row. Only `LOAD` hides one that has expired.
const IS_INDEXED: &str = "SELECT 1 FROM rows INDEXED BY by_id WHERE tab = ?1 AND id = ?2 AND partition = ?3 \
                          AND (expires IS NULL OR expires > ?4)";

/// Connection pool for loads. A load holds a connection for microseconds.
pub(super) struct Readers {
    file: Arc<StoreFile>,
    connections: Vec<Mutex<Option<Connection>>>,
    next: AtomicUsize,
    quarantine: Arc<Quarantine>,
}

impl Readers {
    pub(super) fn open(file: Arc<StoreFile>, quarantine: Arc<Quarantine>) -> Result<Self> {
        let count = std::thread::available_parallelism().map_or(4, usize::from).clamp(2, 16);
        // One connection is opened now, so that errors surface immediately.
        let first = Mutex::new(Some(connection::open_reader(file.path())?));
        let connections =
            std::iter::once(first).chain(std::iter::repeat_with(Mutex::default).take(count - 1)).collect();
        Ok(Self { file, connections, next: AtomicUsize::new(0), quarantine })
    }

    /// The rows of these keys, in the same order.
    pub(super) fn load(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        let mut slot = self.lock_connection();
        let connection = match &mut *slot {
            Some(connection) => connection,
            closed => {
                closed.insert(connection::open_reader(self.file.path()).map_err(|error| error::unavailable(&error))?)
            }
        };
        let is_checked = keys.iter().all(|key| matches!(key.table, Table::Claims | Table::Calls | Table::OpenCalls));
        let loaded = if keys.len() == 1 && !is_checked {
            self.load_row(connection, &keys[0], now).map(|row| vec![row])
        } else {
            in_read_transaction(connection, |connection| {
                let load = |key| self.load_row(connection, key, now);
                let rows = keys.iter().map(load).collect::<Result<Vec<_>, StoreError>>()?;
                if is_checked && rows.iter().all(Option::is_none) {
                    keys.iter().try_for_each(|key| self.check_absent(connection, key, now))?;
                }
                Ok(rows)
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

    /// Fails unless a record is certainly absent: damage must not make a used idempotency key look free, and a key is used if
    /// its claim and the record of its call are found.
    fn check_absent(&self, connection: &Connection, key: &RowKey, now: Timestamp) -> Result<(), StoreError> {
        let partition = row::partition_key(&key.partition);
        let name = row::RowName { partition: &partition, table: key.table, id: &key.id };
        if let Some(problem) = self.file.damage() {
            let reason = format!("the file is damaged ({problem}), so that it may be hidden; restore a backup");
            return Err(name.damaged_error(reason));
        }
        let find = || {
            let mut find = connection.prepare_cached(IS_INDEXED)?;
            find.exists((name.table.as_str(), name.id, name.partition, now.millis()))
        };
        match find() {
            Ok(false) => Ok(()),
            Ok(true) => Err(name.damaged_error("one index of the file has it and another one has not")),
            Err(error) => Err(error::row_error(name.table, &key.id, &error)),
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
