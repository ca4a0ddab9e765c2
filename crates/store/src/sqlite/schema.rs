//! Database schema and its migrations.
//!
//! In: a writing connection. Out: a file of the current schema, or an error. Migrations go forward only. Each is one
//! transaction, and the file is copied before each; a released migration is never changed, only followed by another.

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

/// SQL that migrates a file from the previous version; the first starts from an empty file.
pub(super) type Migration = &'static str;

/// All migrations. The version of a file is the number of migrations applied to it.
///
/// `rows` has a rowid, because records may be long and a table clustered by name would be scattered. `damaged` is the
/// quarantine: raw columns of damaged rows, of any type; `facts` is metadata of the whole file. `by_name` serves loads, writes
/// and scans of one partition, `by_id` scans over several, `by_end` sweeps. `terms` is the text of a row's index terms; `by_id`
/// has it too, because in `rows` it is behind the record, which may be long. `term_blocks` says which blocks of ids have rows
/// with a term (`term_block.rs`; its number of characters is also here). An entry without such a row does no harm; the entries
/// of a block go with its last row. `fences` is no longer used.
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
    "
    ALTER TABLE rows ADD COLUMN terms TEXT;
    CREATE TABLE term_blocks (
        tab TEXT NOT NULL,
        tenant TEXT NOT NULL,
        term TEXT NOT NULL,
        block TEXT NOT NULL,
        PRIMARY KEY (tab, tenant, term, block)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX by_block ON term_blocks (tab, block);
    CREATE TRIGGER remove_blocks AFTER DELETE ON rows WHEN old.terms IS NOT NULL AND substr(old.id, 1, 17) IS NOT (
        SELECT substr(id, 1, 17) FROM rows WHERE tab = old.tab AND id >= substr(old.id, 1, 17) ORDER BY id LIMIT 1
    ) BEGIN
        DELETE FROM term_blocks WHERE tab = old.tab AND block = substr(old.id, 1, 17);
    END;
",
    "
    DROP INDEX by_id;
    CREATE INDEX by_id ON rows (tab, id, partition, terms);
",
];

/// Marks a file as a Toolhub store: the letters `Tlhb`.
const APPLICATION_ID: i32 = 0x546c_6862;

/// The schema version of the file, 0 for an empty one. Changes nothing.
pub(super) fn check_version(path: &Path, connection: &Connection, migrations: &[Migration]) -> Result<u32, OpenError> {
    let failed = |error| OpenError::from_sqlite(path, &error);
    let known = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
    match schema_version(connection).map_err(failed)? {
        Some(found) if found > known => Err(OpenError::Newer { found, known }),
        Some(found) => Ok(found),
        None if is_empty(connection).map_err(failed)? => Ok(0),
        None => Err(OpenError::Foreign(path.to_owned())),
    }
}

/// Migrates a file from the found version to the current one.
pub(super) fn migrate(
    path: &Path,
    connection: &mut Connection,
    found: u32,
    migrations: &[Migration],
) -> Result<(), OpenError> {
    for (migration, version) in migrations.iter().zip(1..).skip(found as usize) {
        // An empty file needs no copy.
        if found > 0 {
            failpoint::reach("migration: before the copy");
            copy_before_migration(path, connection, version - 1)?;
            failpoint::reach("migration: after the copy");
            tracing::info!(store = %path.display(), version, "migrating store schema");
        }
        apply_migration(connection, migration, version).map_err(|error| OpenError::from_sqlite(path, &error))?;
        failpoint::reach("migration: after the step");
    }
    Ok(())
}

/// The same for a file that is itself a copy and needs no other.
pub(super) fn migrate_copy(connection: &mut Connection, found: u32) -> Result<()> {
    let mut pending = MIGRATIONS.iter().zip(1..).skip(found as usize);
    pending.try_for_each(|(migration, version)| apply_migration(connection, migration, version))
}

/// The version of a Toolhub store; `None` for other files. A file whose first migration was interrupted is empty.
fn schema_version(connection: &Connection) -> Result<Option<u32>> {
    let application_id: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if application_id != APPLICATION_ID {
        return Ok(None);
    }
    connection.query_row("SELECT coalesce(max(version), 0) FROM steps", [], |row| row.get(0)).map(Some)
}

fn is_empty(connection: &Connection) -> Result<bool> {
    let (application_id, tables): (i32, i64) = connection.query_row(
        "SELECT (SELECT * FROM pragma_application_id), count(*) FROM sqlite_schema",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    Ok(application_id == 0 && tables == 0)
}

/// Applies a migration and records it, in one transaction.
fn apply_migration(connection: &mut Connection, migration: Migration, version: u32) -> Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version == 1 {
        transaction.execute_batch("CREATE TABLE steps (version INTEGER PRIMARY KEY, made INTEGER NOT NULL) STRICT")?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    transaction.execute_batch(migration)?;
    failpoint::reach("migration: inside the step");
    transaction.execute("INSERT INTO steps VALUES (?1, ?2)", (version, SystemClock.now().millis()))?;
    transaction.commit()
}

/// Copies the file next to it. The copy gets its final name only when it is complete.
fn copy_before_migration(path: &Path, connection: &Connection, version: u32) -> Result<(), OpenError> {
    let copy_path = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".before-{}{suffix}", version + 1));
        PathBuf::from(name)
    };
    let (copy, partial) = (copy_path(""), copy_path(".half"));
    let io_error = |error| OpenError::Io { path: copy.clone(), error };
    if partial.exists() {
        fs::remove_file(&partial).map_err(io_error)?;
    }
    let mut to = Connection::open(&partial).map_err(|error| OpenError::from_sqlite(&copy, &error))?;
    // Same permissions as the store. `fs::metadata` opens no descriptor of the store (see `connection`).
    fs::metadata(path).and_then(|store| fs::set_permissions(&partial, store.permissions())).map_err(io_error)?;
    let copy_all = || -> Result<bool> {
        to.execute_batch("PRAGMA synchronous = FULL")?;
        let copied = Backup::new(connection, &mut to)?.step(-1)?;
        to.close().map_err(|(_, error)| error)?;
        Ok(copied == StepResult::Done)
    };
    if !copy_all().map_err(|error| OpenError::from_sqlite(&copy, &error))? {
        return Err(io_error(io::ErrorKind::ResourceBusy.into()));
    }
    fs::rename(&partial, &copy).map_err(io_error)?;
    sync_parent_folder(path)
}

#[cfg(test)]
mod tests;
