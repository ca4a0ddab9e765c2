//! The connection that writes: transactions at two levels of safety, checkpoints, and the way back after trouble.
//!
//! In: what to do in a transaction. Out: that it is committed; or `Unavailable`, nothing was written; or `Unknown`.
//!
//! After a sync that failed the system may have dropped what it was to write, and the next sync would report success
//! without it. So the log is then written once more, byte for byte, synced, and emptied into the file, before anything
//! new is written. Until that has worked, nothing is.

use std::{
    fs::OpenOptions,
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, Result, config::DbConfig};
use tokio::time::Instant;
use toolhub_storage::backend::{Durability, StoreError};

use super::super::{connection, error};
use crate::failpoint;

/// A log of so many pages is emptied into the file, as SQLite itself would do.
const CHECKPOINT_PAGES: u32 = 1000;

pub(super) struct WriteConnection {
    path: PathBuf,
    max_bytes: Option<u64>,
    /// None from trouble until it is mended.
    connection: Option<Connection>,
    /// What `synchronous` is set to; none when nobody knows.
    level: Option<Durability>,
    /// How many pages the log has.
    wal_pages: Arc<AtomicU32>,
    /// How long the last commit with a sync took.
    last_sync_duration: Duration,
}

impl WriteConnection {
    pub(super) fn new(path: &Path, at_most: Option<u64>, open: Connection, log: Arc<AtomicU32>) -> Self {
        Self {
            path: path.to_owned(),
            max_bytes: at_most,
            connection: Some(open),
            level: None,
            wal_pages: log,
            last_sync_duration: Duration::ZERO,
        }
    }

    /// Runs `work` in one transaction that survives what `level` says.
    pub(super) fn transact<T>(
        &mut self,
        level: Durability,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let nothing = |error| error::unavailable(&error);
        self.recover()?;
        self.set_durability(level).map_err(nothing)?;
        let Some(connection) = &self.connection else {
            return Err(StoreError::Unavailable("the store is closed".into()));
        };
        execute(connection, "BEGIN IMMEDIATE").map_err(nothing)?;
        let (answer, undone) = match work(connection) {
            Ok(answer) => match commit(connection, level) {
                Ok(took) => {
                    self.last_sync_duration = took.unwrap_or(self.last_sync_duration);
                    return Ok(answer);
                }
                // The last page, which alone makes the others count, did not fit.
                Err(full) if error::is_disk_full(&full) => (Err(error::unavailable(&full)), roll_back(connection)),
                Err(error) => {
                    tracing::error!(store = %self.path.display(), %error, "a commit failed");
                    self.discard_connection();
                    return Err(StoreError::Unknown(error.to_string()));
                }
            },
            Err(error) => (Err(error), roll_back(connection)),
        };
        if !undone {
            // Nothing of it was committed; closing the connection undoes the rest.
            self.discard_connection();
        }
        answer
    }

    /// Empties the log when it has grown long. Nobody waits for this.
    pub(super) fn checkpoint_if_needed(&mut self) {
        if self.wal_pages.load(Ordering::Relaxed) < CHECKPOINT_PAGES {
            return;
        }
        let Some(connection) = &self.connection else { return };
        failpoint::reach("checkpoint: before");
        let emptied = checkpoint(connection, "PASSIVE");
        failpoint::reach("checkpoint: after");
        if let Err(error) = emptied {
            tracing::warn!(store = %self.path.display(), %error, "the log of the store cannot be emptied");
            // A full disk leaves the log as it is. Anything else may have been a sync.
            if !error::is_disk_full(&error) {
                self.discard_connection();
            }
        }
    }

    /// Begins anew before anything else is written.
    pub(super) fn discard_connection(&mut self) {
        if let Some(open) = self.connection.take() {
            set_keep_wal_on_close(&open, true);
        }
        self.level = None;
    }

    /// How long a sync takes, about.
    pub(super) fn last_sync_duration(&self) -> Duration {
        self.last_sync_duration
    }

    /// Whether there is no trouble.
    pub(super) fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Opens the file again after trouble.
    fn recover(&mut self) -> Result<(), StoreError> {
        if self.connection.is_some() {
            return Ok(());
        }
        let wait =
            |error: &dyn std::fmt::Display| StoreError::Unavailable(format!("the store is not mended yet: {error}"));
        self.rewrite_wal().map_err(|error| wait(&error))?;
        let mended = || -> Result<(Connection, bool)> {
            let connection = connection::open_writer(&self.path, self.max_bytes, self.wal_pages.clone())?;
            set_keep_wal_on_close(&connection, true);
            connection.execute_batch("PRAGMA synchronous = FULL")?;
            let emptied = checkpoint(&connection, "TRUNCATE")?;
            set_keep_wal_on_close(&connection, !emptied);
            Ok((connection, emptied))
        };
        match mended().map_err(|error| wait(&error))? {
            (connection, true) => {
                tracing::info!(store = %self.path.display(), "the store is mended");
                self.level = Some(Durability::PowerSafe);
                self.wal_pages.store(0, Ordering::Relaxed);
                self.connection = Some(connection);
                Ok(())
            }
            (_, false) => Err(wait(&"somebody still reads")),
        }
    }

    /// Makes the system write every page of the log, whatever it believes to have written.
    fn rewrite_wal(&self) -> io::Result<()> {
        let mut path = self.path.as_os_str().to_owned();
        path.push("-wal");
        let mut log = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let (mut piece, mut at) = (vec![0; 1 << 20], 0);
        loop {
            log.seek(SeekFrom::Start(at))?;
            let read = log.read(&mut piece)?;
            if read == 0 {
                return log.sync_all();
            }
            log.seek(SeekFrom::Start(at))?;
            log.write_all(&piece[..read])?;
            at += read as u64;
        }
    }

    /// NORMAL syncs the log only when it is emptied, FULL with each commit, and with it everything before.
    fn set_durability(&mut self, level: Durability) -> Result<()> {
        let Some(connection) = self.connection.as_ref().filter(|_| self.level != Some(level)) else { return Ok(()) };
        let word = match level {
            Durability::KillSafe => "PRAGMA synchronous = NORMAL",
            Durability::PowerSafe => "PRAGMA synchronous = FULL",
        };
        self.level = None;
        connection.execute_batch(word)?;
        self.level = Some(level);
        Ok(())
    }
}

fn execute(connection: &Connection, sql: &str) -> Result<()> {
    connection.prepare_cached(sql)?.execute(()).map(|_| ())
}

/// Commits; how long that took, if there was a sync.
fn commit(connection: &Connection, level: Durability) -> Result<Option<Duration>> {
    let began = (level == Durability::PowerSafe).then(Instant::now);
    execute(connection, "COMMIT")?;
    Ok(began.map(|began| began.elapsed()))
}

/// Whether the transaction is over. Some errors have ended it already.
fn roll_back(connection: &Connection) -> bool {
    connection.is_autocommit() || execute(connection, "ROLLBACK").is_ok()
}

/// Whether the log stays when the last connection is closed. After trouble it must: SQLite would empty it with a sync that
/// may only seem to work, and remove it.
fn set_keep_wal_on_close(connection: &Connection, leave: bool) {
    if let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, leave) {
        tracing::warn!(%error, "a connection cannot be told what to do with its log");
    }
}

/// Moves pages from the log to the file; whether all that was asked for could be done.
fn checkpoint(connection: &Connection, how: &str) -> Result<bool> {
    let done = connection.query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| row.get::<_, bool>(0));
    match done {
        Ok(busy) => Ok(!busy),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
        Err(error) => Err(error),
    }
}
