//! Opens a store: the lock, the file, its schema, then everybody who works on it.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU32},
};

use rusqlite::Connection;

use super::{
    Sqlite,
    backup::SqliteBackupSource,
    connection, epoch,
    error::OpenError,
    quarantine::Quarantine,
    read::Readers,
    scan::Scanners,
    schema::{self, Migration},
    writer::{Setup, Writer},
};
use crate::{
    backup::{self, BackupOptions, BackupWorker, canonical_path},
    lock::Lock,
    watch::ChangeFeed,
};

/// The first version without the bug that damages a log while it is reset.
const MIN_SQLITE_VERSION: i32 = 3_051_003;

/// How a store is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    max_bytes: Option<u64>,
    backups: Option<BackupOptions>,
}

impl Options {
    /// The store makes backups of itself.
    #[must_use]
    pub fn backups(mut self, backups: BackupOptions) -> Self {
        self.backups = Some(backups);
        self
    }

    /// The file grows to about this many bytes at most. A store that is full refuses what makes it grow, and goes on
    /// reading; without this the disk is the limit.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }
}

impl Sqlite {
    /// Opens the store in this file, or makes it. Its folder must be there.
    ///
    /// A file of an earlier schema is brought to today's; before that a copy is laid beside it.
    ///
    /// # Errors
    /// When somebody has it open, when a later version wrote it, and when the file cannot be read or made.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_with(path.as_ref(), options, schema::MIGRATIONS)
    }

    /// The same with other steps than today's, for tests of what comes later.
    pub(super) fn open_with(path: &Path, options: Options, steps: &[Migration]) -> Result<Self, OpenError> {
        if rusqlite::version_number() < MIN_SQLITE_VERSION {
            return Err(OpenError::OldSqlite { found: rusqlite::version() });
        }
        let path = canonical_path(path).map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        let lock = Lock::acquire(&path).map_err(|why| OpenError::from_lock_error(&path, why))?;
        let failed = |error| OpenError::from_sqlite(&path, &error);
        let log = Arc::new(AtomicU32::new(0));
        let Options { max_bytes: at_most, backups } = options;
        let mut first = connection::open_writer(&path, at_most, log.clone()).map_err(failed)?;
        prepare(&path, &mut first, steps)?;
        let floor = crate::epoch::version_floor(epoch::resolve_on_open(&first).map_err(failed)?);
        let aside = Arc::new(Quarantine::load(&first).map_err(failed)?);
        let news = ChangeFeed::new();
        let readers = Readers::open(&path, aside.clone()).map_err(failed)?;
        let scanners = Scanners::new(&path);
        let broken = |error| OpenError::Io { path: path.clone(), error };
        let setup = Setup {
            path: path.clone(),
            max_bytes: at_most,
            wal_pages: log,
            change_feed: news.clone(),
            quarantine: aside,
            floor,
        };
        let writer = Writer::spawn(setup, first).map_err(broken)?;
        let clerk = BackupWorker::spawn(SqliteBackupSource(path.clone()), backups).map_err(broken)?;
        Ok(Self { path, backup_worker: clerk, readers, scanners, writer, change_feed: news, _lock: lock })
    }
}

/// Makes a new file durable and an old one today's.
fn prepare(path: &Path, connection: &mut Connection, steps: &[Migration]) -> Result<(), OpenError> {
    let failed = |error| OpenError::from_sqlite(path, &error);
    // Asked first: a file that is not ours is left as it is.
    let found = schema::check_version(path, connection, steps)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(OpenError::NoWal(path.to_owned()));
    }
    connection.execute_batch("PRAGMA synchronous = FULL").map_err(failed)?;
    schema::migrate(path, connection, found, steps)?;
    sync_parent_folder(path)
}

/// SQLite syncs what it writes into files, but not that a new file is in its folder.
pub(super) fn sync_parent_folder(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    backup::sync_folder(folder).map_err(|error| OpenError::Io { path: folder.to_owned(), error })
}
