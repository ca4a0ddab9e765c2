//! `restore`: replaces a store with a backup. No server may have the store open, so this command works on the files directly.

use std::path::{Path, PathBuf};

use serde_json::json;
use toolhub::{
    RestoreError, RestoreStoreError, StoreRole, files,
    sqlite::{self, OpenError, RestoreReport},
};

use crate::{exit::Exit, failure::Failure, local_hub::LocalHub, session::Session};

/// Replace the store with a backup.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The previous store is kept beside the new one. Stop the server first.
A backup names what it is a backup of; one of another store is refused.")]
pub(crate) struct Restore {
    /// Backup, as printed by `toolhub backup`
    file: PathBuf,
    /// Restore the store of the persistent state manager
    #[arg(long)]
    state: bool,
}

pub(crate) fn run(session: &Session, restore: &Restore) -> Result<Exit, Failure> {
    if session.global.server.is_some() {
        return Err(Failure::usage("a backup cannot be restored through a server")
            .help("stop the server, then run this on its machine, without --server and TOOLHUB_URL"));
    }
    let local = LocalHub::find(&session.global)?;
    local.require_config()?;
    if !restore.file.exists() {
        return Err(Failure::new("not_found", format!("there is no backup {}", restore.file.display()))
            .help("`toolhub backup` prints the path of the backup it creates"));
    }
    let (store, restored) =
        if restore.state { restore_states(&local, &restore.file)? } else { restore_hub(&local, &restore.file)? };
    if session.printer.json {
        let document = json!({"store": store, "backup": restored.backup.path, "madeAt": restored.backup.made_at,
            "rows": restored.backup.rows, "kept": restored.previous_store});
        session.printer.print_json(&document.to_string());
        return Ok(Exit::Success);
    }
    session.printer.print(&store.display().to_string());
    let unit = if restored.backup.path.is_dir() { "files" } else { "rows" };
    session
        .printer
        .note(&format!("restored the backup of {}: {} {unit}", restored.backup.made_at, restored.backup.rows));
    if let Some(previous) = restored.previous_store {
        session.printer.note(&format!("the previous store is kept as {}", previous.display()));
    }
    Ok(Exit::Success)
}

/// Restores the hub's store. Returns its path.
fn restore_hub(local: &LocalHub, file: &Path) -> Result<(PathBuf, RestoreReport), Failure> {
    let Some(store) = local.store_path() else {
        return Err(Failure::new(
            "config_invalid",
            "the config keeps records in memory or in Redis, so there is no store file to restore",
        )
        .help("set backend = \"sqlite\" in [store]"));
    };
    if let Some(folder) = store.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let create_failure =
            |error| Failure::unexpected(format!("cannot create the folder {}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(create_failure)?;
    }
    let in_use = |error: &OpenError| matches!(error, OpenError::InUse { .. });
    let restored = sqlite::restore(file, store, StoreRole::Hub);
    Ok((store.to_owned(), restored.map_err(|error| restore_failure(&error, file, in_use))?))
}

/// Restores the store of the persistent state manager. Returns its folder.
fn restore_states(local: &LocalHub, file: &Path) -> Result<(PathBuf, RestoreReport), Failure> {
    let state = &local.loaded.config.state;
    if !state.on_disk {
        return Err(Failure::new("config_invalid", "no state manager of this config has a store of its own")
            .help("set manager_type = \"persistent\" in [state]; without it the hub's store holds all states"));
    }
    let restored = toolhub::restore_store(file, &state.manager).map_err(|error| match &error {
        RestoreStoreError::Sqlite(error) => {
            restore_failure(error, file, |error| matches!(error, OpenError::InUse { .. }))
        }
        RestoreStoreError::Files(error) => {
            restore_failure(error, file, |error| matches!(error, files::OpenError::InUse { .. }))
        }
        RestoreStoreError::Format { found, .. } => Failure::usage(error.to_string())
            .help(format!("set persistence_format = \"{found}\" in [state], or pass another backup")),
        _ => Failure::unexpected(error.to_string()),
    })?;
    Ok((state.manager.persistence_path.clone(), restored))
}

fn restore_failure<Open: std::fmt::Display>(
    error: &RestoreError<Open>,
    file: &Path,
    is_in_use: impl Fn(&Open) -> bool,
) -> Failure {
    match error {
        RestoreError::Store(open_error) if is_in_use(open_error) => {
            Failure::new("store_in_use", error.to_string()).help("stop the server, then retry")
        }
        RestoreError::WrongStore { found, .. } => Failure::usage(error.to_string()).help(match found {
            StoreRole::Hub => format!("toolhub restore {}", file.display()),
            StoreRole::State => format!("toolhub restore --state {}", file.display()),
        }),
        RestoreError::NoBackup { .. } => Failure::usage(error.to_string())
            .help("pass what `toolhub backup` printed, with its .json manifest beside it"),
        _ => Failure::unexpected(error.to_string()),
    }
}
