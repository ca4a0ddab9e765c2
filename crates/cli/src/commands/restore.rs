//! `restore`: a backup takes the place of the store. No server may run on it, so this command asks none.

use std::path::{Path, PathBuf};

use serde_json::json;
use toolhub::sqlite::{self, OpenError, RestoreError};

use crate::{exit::Exit, failure::Failure, local_hub::LocalHub, session::Session};

/// Put a backup in the place of the store.
#[derive(Debug, clap::Args)]
#[command(after_help = "What was there before is kept beside it. Stop the server first.")]
pub(crate) struct Restore {
    /// The backup, as `toolhub backup` printed it
    file: PathBuf,
}

pub(crate) fn run(session: &Session, restore: &Restore) -> Result<Exit, Failure> {
    if session.global.server.is_some() {
        return Err(Failure::usage("a backup is restored where the store is, not through a server")
            .help("stop the server, then run this beside its config, without --server and TOOLHUB_URL"));
    }
    let local = LocalHub::find(&session.global)?;
    let Some(store) = local.store_path() else {
        return Err(Failure::new("config_invalid", "the config keeps records in memory: there is no store to restore")
            .help("set backend = \"sqlite\" in [store]"));
    };
    if let Some(folder) = store.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let cannot = |error| Failure::unexpected(format!("the folder {} cannot be made: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(cannot)?;
    }
    let restored = sqlite::restore(&restore.file, store).map_err(|error| restore_failure(&error, &restore.file))?;
    if session.printer.json {
        let told = json!({"store": store, "backup": restored.backup.path, "madeAt": restored.backup.made_at,
            "rows": restored.backup.rows, "kept": restored.previous_store});
        session.printer.print_json(&told.to_string());
        return Ok(Exit::Success);
    }
    session.printer.print(&store.display().to_string());
    session.printer.note(&format!("restored as it was at {}: {} rows", restored.backup.made_at, restored.backup.rows));
    if let Some(kept) = restored.previous_store {
        session.printer.note(&format!("what was there before is kept as {}", kept.display()));
    }
    Ok(Exit::Success)
}

fn restore_failure(error: &RestoreError, file: &Path) -> Failure {
    match error {
        RestoreError::Store(OpenError::InUse { .. }) => {
            Failure::new("store_in_use", error.to_string()).help("stop the server that has it open, then try again")
        }
        RestoreError::NoBackup { .. } if !file.exists() => {
            Failure::new("not_found", format!("there is no backup {}", file.display()))
                .help("`toolhub backup` prints where it puts one")
        }
        RestoreError::NoBackup { .. } => Failure::usage(error.to_string())
            .help("give the file that `toolhub backup` printed, with its .json beside it"),
        _ => Failure::unexpected(error.to_string()),
    }
}
