//! Connections to the file, set up for what they are for.
//!
//! The file itself, and the index of its log (`-shm`), are opened by SQLite only: when any descriptor of such a file is
//! closed, the system ends all locks this process has on it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, Result};

/// Nobody else writes, so a lock is busy only while a log is being reset.
const WRITER_BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Readers run on threads that should not wait.
const READER_BUSY_TIMEOUT: Duration = Duration::from_millis(200);

fn open(path: &Path, patience: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(patience)?;
    connection.set_prepared_statement_cache_capacity(32);
    // A damaged file must not make SQLite run what somebody wrote into it, and damage should be noticed early.
    connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
    Ok(connection)
}

/// The one connection that writes. Says in `log` how many pages the log has after each commit.
pub(super) fn open_writer(path: &Path, at_most: Option<u64>, log: Arc<AtomicU32>) -> Result<Connection> {
    let mut connection = open(path, WRITER_BUSY_TIMEOUT)?;
    if let Some(bytes) = at_most {
        let size: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        let pages = (bytes / u64::from(size)).clamp(1, u64::from(u32::MAX - 2));
        connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
    }
    connection.query_row("PRAGMA journal_size_limit = 67108864", [], |_| Ok(()))?;
    // What was taken away or replaced may have been secret, and backups are made of whole pages.
    connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
    // This takes the place of SQLite's own checkpoints, which keep their errors to themselves.
    connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
        log.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(connection)
}

/// A connection that only reads.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    let connection = open(path, READER_BUSY_TIMEOUT)?;
    connection.execute_batch("PRAGMA query_only = ON;")?;
    Ok(connection)
}
