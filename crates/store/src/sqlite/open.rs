//! Opens a SQLite store: lock, file, schema migration, then readers, scanners, writer and backup worker.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU32},
};

use rusqlite::Connection;
use toolhub_storage::backend::SizeLimit;
use toolhub_types::store_role::StoreRole;

use super::{
    Sqlite,
    backup::SqliteBackupSource,
    connection, epoch,
    error::OpenError,
    integrity::IntegrityCheck,
    key_file,
    quarantine::Quarantine,
    read::Readers,
    scan::Scanners,
    schema::{self, Migration},
    store_file::StoreFile,
    writer::{Setup, Writer},
};
use crate::{
    backup::{self, BackupOptions, BackupWorker, canonical_path},
    change_feed::ChangeFeed,
    lock::Lock,
};

/// The first version without the bug that damages a WAL while it is reset.
const MIN_SQLITE_VERSION: i32 = 3_051_003;

/// Options for opening a store.
#[derive(Debug, Clone, Default)]
pub struct Options {
    max_bytes: Option<u64>,
    backups: Option<BackupOptions>,
    role: StoreRole,
}

impl Options {
    /// Enables scheduled backups.
    #[must_use]
    pub fn backups(mut self, backups: BackupOptions) -> Self {
        self.backups = Some(backups);
        self
    }

    /// What the store holds; its backups name it. Default: the records of a hub.
    #[must_use]
    pub fn role(mut self, role: StoreRole) -> Self {
        self.role = role;
        self
    }

    /// Approximate maximum size of the file. Near it, a hub removes the oldest ended calls. A store that is full all the same
    /// refuses writes that make it grow, and continues to serve reads. Default: limited by the disk.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }
}

impl Sqlite {
    /// Opens the store in this file, or creates it. Its folder must exist.
    ///
    /// A file of an earlier schema is migrated to the current one; a copy of the old file is kept next to it.
    ///
    /// # Errors
    /// When the store is open already, when a later version wrote it, and when the file cannot be read or created.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::open_with(path.as_ref(), options, schema::MIGRATIONS)
    }

    /// The same with another list of migrations, for tests of future schemas.
    pub(super) fn open_with(path: &Path, options: Options, migrations: &[Migration]) -> Result<Self, OpenError> {
        if rusqlite::version_number() < MIN_SQLITE_VERSION {
            return Err(OpenError::OldSqlite { found: rusqlite::version() });
        }
        let path = canonical_path(path).map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        let lock = Lock::acquire(&path).map_err(|error| OpenError::from_lock_error(&path, error))?;
        let failed = |error| OpenError::from_sqlite(&path, &error);
        let wal_pages = Arc::new(AtomicU32::new(0));
        let Options { max_bytes, backups, role } = options;
        let size_limit = max_bytes.map(|bytes| Arc::new(SizeLimit::new(bytes)));
        let mut write_connection =
            connection::open_writer(&path, size_limit.as_deref(), wal_pages.clone()).map_err(failed)?;
        prepare(&path, &mut write_connection, migrations)?;
        let seal_key = (role == StoreRole::Hub).then(|| key_file::load_or_create(&path)).transpose()?;
        let floor = crate::epoch::version_floor(epoch::resolve_on_open(&write_connection).map_err(failed)?);
        let quarantine = Arc::new(Quarantine::load(&write_connection).map_err(failed)?);
        let change_feed = ChangeFeed::new();
        let io_error = |error| OpenError::Io { path: path.clone(), error };
        let file = Arc::new(StoreFile::new(&path));
        let integrity_check = IntegrityCheck::start(&file, &write_connection).map_err(io_error)?;
        let readers = Readers::open(file.clone(), quarantine.clone()).map_err(failed)?;
        let scanners = Scanners::new(&path);
        let setup = Setup {
            file: file.clone(),
            size_limit: size_limit.clone(),
            wal_pages,
            change_feed: change_feed.clone(),
            quarantine: quarantine.clone(),
            floor,
        };
        let writer = Writer::spawn(setup, write_connection).map_err(io_error)?;
        let backup_worker =
            BackupWorker::spawn(SqliteBackupSource { path: path.clone(), role }, backups).map_err(io_error)?;
        Ok(Self {
            integrity_check,
            file,
            quarantine,
            backup_worker,
            readers,
            scanners,
            writer,
            size_limit,
            seal_key,
            change_feed,
            _lock: lock,
        })
    }
}

/// Enables WAL mode and migrates the file to the current schema.
fn prepare(path: &Path, connection: &mut Connection, migrations: &[Migration]) -> Result<(), OpenError> {
    let failed = |error| OpenError::from_sqlite(path, &error);
    // Checked first: a file that is not a Toolhub store must not be changed.
    let found = schema::check_version(path, connection, migrations)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(OpenError::NoWal(path.to_owned()));
    }
    connection.execute_batch("PRAGMA synchronous = FULL").map_err(failed)?;
    schema::migrate(path, connection, found, migrations)?;
    sync_parent_folder(path)
}

/// SQLite syncs the contents of files, but not the folder entry of a new file.
pub(super) fn sync_parent_folder(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    backup::sync_folder(folder).map_err(|error| OpenError::Io { path: folder.to_owned(), error })
}
