//! The writing connection: transactions at two durability levels, WAL checkpoints, and recovery after I/O errors.
//!
//! In: work to run in a transaction. Out: its result after the commit; or `Unavailable` if nothing was written; or `Unknown`.
//!
//! After a failed fsync the kernel may have dropped dirty pages, and the next fsync would report success without them. So the
//! WAL is then rewritten byte by byte, synced, and checkpointed before anything new is written. Until that has succeeded,
//! all writes fail.

use std::{
    fs::OpenOptions,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, Result, config::DbConfig};
use tokio::time::Instant;
use toolhub_storage::backend::{Durability, SizeLimit, StoreError};

use super::super::{connection, error, store_file::StoreFile};
use crate::failpoint;

/// WAL size in pages that triggers a checkpoint: 16 MB, four times SQLite's own default. A checkpoint writes a page once, however often it
/// is in the WAL, and under load the last pages of the indexes are in it many times. So much may be lost in a power failure of what
/// is only kill-safe.
const CHECKPOINT_PAGES: u32 = 4000;

pub(super) struct WriteConnection {
    file: Arc<StoreFile>,
    size_limit: Option<Arc<SizeLimit>>,
    /// `None` from an I/O error until recovery.
    connection: Option<Connection>,
    /// The current `synchronous` setting; `None` if unknown.
    level: Option<Durability>,
    /// The current number of WAL pages.
    wal_pages: Arc<AtomicU32>,
    /// How long the last commit with a sync took.
    last_sync_duration: Duration,
}

impl WriteConnection {
    /// The store's file.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn new(
        file: Arc<StoreFile>,
        size_limit: Option<Arc<SizeLimit>>,
        connection: Connection,
        wal_pages: Arc<AtomicU32>,
    ) -> Self {
        Self {
            file,
            size_limit,
            connection: Some(connection),
            level: None,
            wal_pages,
            last_sync_duration: Duration::ZERO,
        }
    }

    /// Runs `work` in one transaction with this durability.
    pub(super) fn transact<T>(
        &mut self,
        level: Durability,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let unavailable = |error| error::unavailable(&error);
        self.file.check_identity()?;
        self.recover()?;
        self.set_durability(level).map_err(unavailable)?;
        let Some(connection) = &self.connection else {
            return Err(StoreError::Unavailable("the store is closed".into()));
        };
        execute(connection, "BEGIN IMMEDIATE").map_err(unavailable)?;
        let (result, rolled_back) = match work(connection) {
            Ok(output) => match commit(connection, level) {
                Ok(duration) => {
                    self.last_sync_duration = duration.unwrap_or(self.last_sync_duration);
                    return Ok(output);
                }
                // The last page, which contains the commit record, did not fit: nothing is committed.
                Err(full) if error::is_disk_full(&full) => (Err(error::unavailable(&full)), roll_back(connection)),
                Err(error) => {
                    tracing::error!(store = %self.path().display(), %error, "commit failed; recovering the connection");
                    self.discard_connection();
                    return Err(StoreError::Unknown(error.to_string()));
                }
            },
            Err(error) => (Err(error), roll_back(connection)),
        };
        if !rolled_back {
            // Nothing was committed; closing the connection rolls back.
            self.discard_connection();
        }
        result
    }

    /// Checkpoints the WAL once it has grown to the threshold. Runs after the replies were sent.
    pub(super) fn checkpoint_if_needed(&mut self) {
        if self.wal_pages.load(Ordering::Relaxed) < CHECKPOINT_PAGES {
            return;
        }
        let Some(connection) = &self.connection else { return };
        failpoint::reach("checkpoint: before");
        let checkpointed = checkpoint(connection, "PASSIVE");
        failpoint::reach("checkpoint: after");
        if let Err(error) = checkpointed {
            tracing::warn!(
                store = %self.path().display(),
                %error,
                "WAL checkpoint failed; the WAL keeps growing until one succeeds; check free disk space"
            );
            // A full disk leaves the WAL intact. Any other error may have been a failed fsync.
            if !error::is_disk_full(&error) {
                self.discard_connection();
            }
        }
    }

    /// Measures the used part of the file, if its size is limited, and whether the last transaction failed because of the limit or
    /// because the disk is full. Free pages do not count: they are used again.
    pub(super) fn measure(&mut self, failed: Option<&StoreError>) {
        self.measure_size(failed);
        let is_at_limit = self.size_limit.as_ref().is_some_and(|limit| limit.is_full());
        self.file.set_disk_full(failed.is_some_and(error::is_full) && !is_at_limit);
    }

    fn measure_size(&self, failed: Option<&StoreError>) {
        let (Some(limit), Some(connection)) = (&self.size_limit, &self.connection) else { return };
        let pragma = |name: &str| -> Result<u64> {
            connection
                .prepare_cached(&format!("PRAGMA {name}"))?
                .query_row((), |row| row.get(0).map(i64::cast_unsigned))
        };
        let used_bytes = || -> Result<u64> {
            let used_pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
            Ok(used_pages.saturating_mul(pragma("page_size")?))
        };
        let before = limit.bytes();
        // After an error the last size holds; the next write reports it.
        if let Ok(bytes) = used_bytes() {
            limit.set(bytes);
        }
        let has_grown = failed.is_none() && limit.bytes() > before;
        if has_grown || limit.bytes() < limit.limit() / 100 * 95 {
            limit.set_full(false);
        } else if let Some(StoreError::Unavailable(_)) = failed {
            limit.set_full(true);
        }
    }

    /// Closes the connection; it is recovered before the next write.
    pub(super) fn discard_connection(&mut self) {
        if let Some(connection) = self.connection.take() {
            set_keep_wal_on_close(&connection, true);
        }
        self.level = None;
    }

    /// The approximate duration of a sync.
    pub(super) fn last_sync_duration(&self) -> Duration {
        self.last_sync_duration
    }

    /// Whether the connection is usable, i.e. no recovery is pending.
    pub(super) fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Recovers after an I/O error: rewrites the WAL, reopens the file and checkpoints.
    fn recover(&mut self) -> Result<(), StoreError> {
        if self.connection.is_some() {
            return Ok(());
        }
        let failed = |error: &dyn std::fmt::Display| {
            StoreError::Unavailable(format!("recovery after an I/O error failed: {error}"))
        };
        self.rewrite_wal().map_err(|error| failed(&error))?;
        let reopen = || -> Result<(Connection, bool)> {
            let connection = connection::open_writer(self.path(), self.size_limit.as_deref(), self.wal_pages.clone())?;
            set_keep_wal_on_close(&connection, true);
            connection.execute_batch("PRAGMA synchronous = FULL")?;
            let complete = checkpoint(&connection, "TRUNCATE")?;
            set_keep_wal_on_close(&connection, !complete);
            Ok((connection, complete))
        };
        match reopen().map_err(|error| failed(&error))? {
            (connection, true) => {
                tracing::info!(store = %self.path().display(), "store connection recovered");
                self.level = Some(Durability::PowerSafe);
                self.wal_pages.store(0, Ordering::Relaxed);
                self.connection = Some(connection);
                Ok(())
            }
            (_, false) => Err(failed(&"a reader still uses the WAL")),
        }
    }

    /// Forces the kernel to write every page of the WAL again, also those it considers clean.
    fn rewrite_wal(&self) -> io::Result<()> {
        let mut path = self.path().as_os_str().to_owned();
        path.push("-wal");
        let mut wal = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let (mut buffer, mut at) = (vec![0; 1 << 20], 0);
        loop {
            wal.seek(SeekFrom::Start(at))?;
            let read = wal.read(&mut buffer)?;
            if read == 0 {
                return wal.sync_all();
            }
            wal.seek(SeekFrom::Start(at))?;
            wal.write_all(&buffer[..read])?;
            at += read as u64;
        }
    }

    /// NORMAL syncs the WAL only at a checkpoint, FULL at every commit, which also covers all earlier commits.
    fn set_durability(&mut self, level: Durability) -> Result<()> {
        let Some(connection) = self.connection.as_ref().filter(|_| self.level != Some(level)) else { return Ok(()) };
        let pragma = match level {
            Durability::KillSafe => "PRAGMA synchronous = NORMAL",
            Durability::PowerSafe => "PRAGMA synchronous = FULL",
        };
        self.level = None;
        connection.execute_batch(pragma)?;
        self.level = Some(level);
        Ok(())
    }
}

fn execute(connection: &Connection, sql: &str) -> Result<()> {
    connection.prepare_cached(sql)?.execute(()).map(|_| ())
}

/// Commits; returns the duration if the commit included a sync.
fn commit(connection: &Connection, level: Durability) -> Result<Option<Duration>> {
    let started = (level == Durability::PowerSafe).then(Instant::now);
    execute(connection, "COMMIT")?;
    Ok(started.map(|started| started.elapsed()))
}

/// Rolls back; returns whether the transaction has ended. Some errors end it by themselves.
fn roll_back(connection: &Connection) -> bool {
    connection.is_autocommit() || execute(connection, "ROLLBACK").is_ok()
}

/// Whether the WAL stays when the last connection closes. After an I/O error it must stay: SQLite would checkpoint it with an
/// fsync that may only seem to succeed, and delete it.
fn set_keep_wal_on_close(connection: &Connection, keep: bool) {
    if let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep) {
        let effect =
            if keep { "closing the store will checkpoint the WAL" } else { "closing the store will keep the WAL" };
        tracing::warn!(%error, "cannot set SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE; {effect}");
    }
}

/// Runs a WAL checkpoint; returns whether it completed.
fn checkpoint(connection: &Connection, mode: &str) -> Result<bool> {
    let busy = connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get::<_, bool>(0));
    match busy {
        Ok(busy) => Ok(!busy),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(false),
        Err(error) => Err(error),
    }
}
