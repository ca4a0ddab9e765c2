//! Loads rows on the spot, on connections that only read.
//!
//! In: keys. Out: their rows as of one moment. A connection that failed is closed, and opened anew by whoever comes next.

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

/// Connections for loads. Each is used by one load at a time, for microseconds.
pub(super) struct Readers {
    path: PathBuf,
    connections: Vec<Mutex<Option<Connection>>>,
    next: AtomicUsize,
    quarantine: Arc<Quarantine>,
}

impl Readers {
    pub(super) fn open(path: &Path, aside: Arc<Quarantine>) -> Result<Self> {
        let many = std::thread::available_parallelism().map_or(4, usize::from).clamp(2, 16);
        // The first is opened now, to see that it can be.
        let first = Mutex::new(Some(connection::open_reader(path)?));
        let places = std::iter::once(first).chain(std::iter::repeat_with(Mutex::default).take(many - 1)).collect();
        Ok(Self { path: path.to_owned(), connections: places, next: AtomicUsize::new(0), quarantine: aside })
    }

    /// The rows of these keys, in their order.
    pub(super) fn load(&self, keys: &[RowKey], now: Timestamp) -> Result<Vec<Option<Row>>, StoreError> {
        let mut place = self.lock_connection();
        let connection = match &mut *place {
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
            *place = None;
        }
        loaded
    }

    /// A connection nobody uses, or the next to become free.
    fn lock_connection(&self) -> MutexGuard<'_, Option<Connection>> {
        for place in &self.connections {
            if let Ok(free) = place.try_lock() {
                return free;
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

/// Reads several times without letting a commit come in between.
pub(super) fn in_read_transaction<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let run =
        |sql| connection.prepare_cached(sql).and_then(|mut sql| sql.execute(())).map_err(|e| error::unavailable(&e));
    run("BEGIN")?;
    let answer = read(connection);
    // Whether or not it could be read: a snapshot that is kept would keep the log from being reset.
    run("COMMIT")?;
    answer
}
