//! The tables, and how an older file is brought to today's.
//!
//! In: a connection that writes. Out: a file of today's schema, or why not. Steps go forward only. Each is one
//! transaction, and before each the file is copied; a step that was released is never changed, only followed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection, Result, TransactionBehavior,
    backup::{Backup, StepResult},
};
use toolhub_storage::clock::{Clock, SystemClock};

use super::{error::OpenError, open::sync_parent_folder};
use crate::failpoint;

/// What makes a file of one version out of one of the version before; the first out of an empty file.
pub(super) type Migration = &'static str;

/// All steps. A file's version is how many of them it has seen.
///
/// A row has a number of its own, because records may be long and a table ordered by name would lie scattered.
/// `damaged` keeps what rows were like that are not what was written, whatever it is; `facts` is about the whole file.
/// `by_name` serves loads, writes and scans of one partition, `by_id` scans over several, `by_end` sweeps.
pub(super) const MIGRATIONS: &[Migration] = &[
    "
    CREATE TABLE rows (
        partition TEXT NOT NULL,
        tab TEXT NOT NULL,
        id TEXT NOT NULL,
        version INTEGER NOT NULL,
        stamp INTEGER NOT NULL,
        layout INTEGER NOT NULL,
        expires INTEGER,
        created INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        body INTEGER NOT NULL,
        head INTEGER NOT NULL,
        value BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX by_name ON rows (partition, tab, id);
    CREATE INDEX by_id ON rows (tab, id, partition);
    CREATE INDEX by_end ON rows (expires) WHERE expires IS NOT NULL;
    CREATE TABLE fences (partition TEXT PRIMARY KEY, fence INTEGER NOT NULL) STRICT, WITHOUT ROWID;
",
    "
    CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE damaged (
        partition TEXT NOT NULL,
        tab TEXT NOT NULL,
        id TEXT NOT NULL,
        found INTEGER NOT NULL,
        reason TEXT NOT NULL,
        free INTEGER NOT NULL,
        version ANY,
        stamp ANY,
        layout ANY,
        expires ANY,
        created ANY,
        updated ANY,
        body ANY,
        head ANY,
        value ANY
    ) STRICT;
    CREATE INDEX taken ON damaged (partition, tab, id) WHERE free = 0;
",
];

/// Marks a file as ours: the letters `Tlhb`.
const APPLICATION_ID: i32 = 0x546c_6862;

/// The version the file has, 0 for an empty one. Changes nothing.
pub(super) fn check_version(path: &Path, connection: &Connection, steps: &[Migration]) -> Result<u32, OpenError> {
    let failed = |error| OpenError::from_sqlite(path, &error);
    let known = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    match schema_version(connection).map_err(failed)? {
        Some(found) if found > known => Err(OpenError::Newer { found, known }),
        Some(found) => Ok(found),
        None if is_empty(connection).map_err(failed)? => Ok(0),
        None => Err(OpenError::Foreign(path.to_owned())),
    }
}

/// Makes a file of the version that was found one of today's.
pub(super) fn migrate(
    path: &Path,
    connection: &mut Connection,
    found: u32,
    steps: &[Migration],
) -> Result<(), OpenError> {
    for (step, version) in steps.iter().zip(1..).skip(found as usize) {
        // An empty file is nothing to go back to.
        if found > 0 {
            failpoint::reach("migration: before the copy");
            copy_before_migration(path, connection, version - 1)?;
            failpoint::reach("migration: after the copy");
            tracing::info!(store = %path.display(), version, "the store is brought to a new schema");
        }
        apply_migration(connection, step, version).map_err(|error| OpenError::from_sqlite(path, &error))?;
        failpoint::reach("migration: after the step");
    }
    Ok(())
}

/// The same for a file that is a copy itself, and needs no other.
pub(super) fn migrate_copy(connection: &mut Connection, found: u32) -> Result<()> {
    let mut left = MIGRATIONS.iter().zip(1..).skip(found as usize);
    left.try_for_each(|(step, version)| apply_migration(connection, step, version))
}

/// The version of a file of ours. One whose first step was cut short is empty.
fn schema_version(connection: &Connection) -> Result<Option<u32>> {
    let mark: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if mark != APPLICATION_ID {
        return Ok(None);
    }
    connection.query_row("SELECT coalesce(max(version), 0) FROM steps", [], |row| row.get(0)).map(Some)
}

fn is_empty(connection: &Connection) -> Result<bool> {
    let (mark, tables): (i32, i64) = connection.query_row(
        "SELECT (SELECT * FROM pragma_application_id), count(*) FROM sqlite_schema",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(mark == 0 && tables == 0)
}

/// One step and the note that it was made, together.
fn apply_migration(connection: &mut Connection, step: Migration, version: u32) -> Result<()> {
    let step_made = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version == 1 {
        step_made.execute_batch("CREATE TABLE steps (version INTEGER PRIMARY KEY, made INTEGER NOT NULL) STRICT")?;
        step_made.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    step_made.execute_batch(step)?;
    failpoint::reach("migration: inside the step");
    step_made.execute("INSERT INTO steps VALUES (?1, ?2)", (version, SystemClock.now().millis()))?;
    step_made.commit()
}

/// Lays a copy of the file beside it. It gets its name when it is whole.
fn copy_before_migration(path: &Path, connection: &Connection, version: u32) -> Result<(), OpenError> {
    let beside = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".before-{}{ending}", version + 1));
        PathBuf::from(name)
    };
    let (copy, half) = (beside(""), beside(".half"));
    let broken = |error| OpenError::Io { path: copy.clone(), error };
    if half.exists() {
        fs::remove_file(&half).map_err(broken)?;
    }
    let mut to = Connection::open(&half).map_err(|error| OpenError::from_sqlite(&copy, &error))?;
    // Nobody else may read it than may read the store. Asking for this opens no descriptor of the store.
    fs::metadata(path).and_then(|store| fs::set_permissions(&half, store.permissions())).map_err(broken)?;
    let made = || -> Result<bool> {
        to.execute_batch("PRAGMA synchronous = FULL")?;
        let copied = Backup::new(connection, &mut to)?.step(-1)?;
        to.close().map_err(|(_, error)| error)?;
        Ok(copied == StepResult::Done)
    };
    if !made().map_err(|error| OpenError::from_sqlite(&copy, &error))? {
        return Err(broken(io::ErrorKind::ResourceBusy.into()));
    }
    fs::rename(&half, &copy).map_err(broken)?;
    sync_parent_folder(path)
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
