//! Opens a store: the lock, the file, its schema, then everybody who works on it.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU32},
};

use rusqlite::Connection;

use super::{
    Sqlite,
    aside::Aside,
    backup::Copier,
    connection, epoch,
    error::OpenError,
    read::Readers,
    scan::Scanners,
    schema::{self, Step},
    writer::{Setup, Writer},
};
use crate::{
    backup::{self, Backups, Clerk, whole},
    lock::Lock,
    watch::News,
};

/// The first version without the bug that damages a log while it is reset.
const OLDEST_SQLITE: i32 = 3_051_003;

/// How a store is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    at_most: Option<u64>,
    backups: Option<Backups>,
}

impl Options {
    /// The store makes backups of itself.
    #[must_use]
    pub fn backups(mut self, backups: Backups) -> Self {
        self.backups = Some(backups);
        self
    }

    /// The file grows to about this many bytes at most. A store that is full refuses what makes it grow, and goes on
    /// reading; without this the disk is the limit.
    #[must_use]
    pub fn at_most(mut self, bytes: u64) -> Self {
        self.at_most = Some(bytes);
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
        Self::open_with(path.as_ref(), options, schema::STEPS)
    }

    /// The same with other steps than today's, for tests of what comes later.
    pub(super) fn open_with(path: &Path, options: Options, steps: &[Step]) -> Result<Self, OpenError> {
        if rusqlite::version_number() < OLDEST_SQLITE {
            return Err(OpenError::OldSqlite { found: rusqlite::version() });
        }
        let path = whole(path).map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        let lock = Lock::take(&path).map_err(|why| OpenError::of_lock(&path, why))?;
        let failed = |error| OpenError::of(&path, &error);
        let log = Arc::new(AtomicU32::new(0));
        let Options { at_most, backups } = options;
        let mut first = connection::writing(&path, at_most, log.clone()).map_err(failed)?;
        prepare(&path, &mut first, steps)?;
        let floor = crate::epoch::floor(epoch::settle(&first).map_err(failed)?);
        let aside = Arc::new(Aside::read(&first).map_err(failed)?);
        let news = News::new();
        let readers = Readers::open(&path, aside.clone()).map_err(failed)?;
        let scanners = Scanners::new(&path);
        let broken = |error| OpenError::Io { path: path.clone(), error };
        let setup = Setup { path: path.clone(), at_most, log, news: news.clone(), aside, floor };
        let writer = Writer::begin(setup, first).map_err(broken)?;
        let clerk = Clerk::begin(Copier(path.clone()), backups).map_err(broken)?;
        Ok(Self { path, clerk, readers, scanners, writer, news, _lock: lock })
    }
}

/// Makes a new file durable and an old one today's.
fn prepare(path: &Path, connection: &mut Connection, steps: &[Step]) -> Result<(), OpenError> {
    let failed = |error| OpenError::of(path, &error);
    // Asked first: a file that is not ours is left as it is.
    let found = schema::found(path, connection, steps)?;
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(OpenError::NoLog(path.to_owned()));
    }
    connection.execute_batch("PRAGMA synchronous = FULL").map_err(failed)?;
    schema::bring_up(path, connection, found, steps)?;
    sync_folder(path)
}

/// SQLite syncs what it writes into files, but not that a new file is in its folder.
pub(super) fn sync_folder(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    backup::sync_folder(folder).map_err(|error| OpenError::Io { path: folder.to_owned(), error })
}
