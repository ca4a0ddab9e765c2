//! Opens and configures connections for writing and reading.
//!
//! Only SQLite may open the file and its WAL index (`-shm`): POSIX releases all locks of a process on a file when the process
//! closes any descriptor of it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, Result};
use toolhub_storage::backend::SizeLimit;

/// There is no other writer, so a lock is busy only while the WAL is being reset.
const WRITER_BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Readers run on async worker threads, which must not block for long.
const READER_BUSY_TIMEOUT: Duration = Duration::from_millis(200);

fn open(path: &Path, busy_timeout: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(busy_timeout)?;
    connection.set_prepared_statement_cache_capacity(32);
    // A manipulated file must not make SQLite execute code from its schema, and damage should be detected early.
    connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")?;
    Ok(connection)
}

/// The only writing connection. Stores the number of WAL pages in `wal_pages` after each commit.
pub(super) fn open_writer(
    path: &Path,
    size_limit: Option<&SizeLimit>,
    wal_pages: Arc<AtomicU32>,
) -> Result<Connection> {
    let mut connection = open(path, WRITER_BUSY_TIMEOUT)?;
    if let Some(bytes) = size_limit.map(SizeLimit::limit) {
        let size: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        let pages = (bytes / u64::from(size)).clamp(1, u64::from(u32::MAX - 2));
        connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
    }
    connection.query_row("PRAGMA journal_size_limit = 67108864", [], |_| Ok(()))?;
    // Deleted or replaced values may be secret, and backups copy whole pages.
    connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
    // This hook replaces SQLite's automatic checkpoints, which hide their errors.
    connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
        wal_pages.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))?;
    Ok(connection)
}

/// A read-only connection.
pub(super) fn open_reader(path: &Path) -> Result<Connection> {
    let connection = open(path, READER_BUSY_TIMEOUT)?;
    connection.execute_batch("PRAGMA query_only = ON;")?;
    Ok(connection)
}
