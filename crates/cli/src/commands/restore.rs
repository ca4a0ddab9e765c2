//! `restore`: replaces the store with a backup. No server may have the store open, so this command works on the file directly.

use std::path::{Path, PathBuf};

use serde_json::json;
use toolhub::sqlite::{self, OpenError, RestoreError};

use crate::{exit::Exit, failure::Failure, local_hub::LocalHub, session::Session};

/// Replace the store with a backup.
#[derive(Debug, clap::Args)]
#[command(after_help = "The previous store is kept beside the new one. Stop the server first.")]
pub(crate) struct Restore {
    /// Backup file, as printed by `toolhub backup`
    file: PathBuf,
}

pub(crate) fn run(session: &Session, restore: &Restore) -> Result<Exit, Failure> {
    if session.global.server.is_some() {
        return Err(Failure::usage("a backup cannot be restored through a server")
            .help("stop the server, then run this on its machine, without --server and TOOLHUB_URL"));
    }
    let local = LocalHub::find(&session.global)?;
    let Some(store) = local.store_path() else {
        return Err(Failure::new(
            "config_invalid",
            "the config keeps records in memory, so there is no store to restore",
        )
        .help("set backend = \"sqlite\" in [store]"));
    };
    if let Some(folder) = store.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let create_failure =
            |error| Failure::unexpected(format!("cannot create the folder {}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(create_failure)?;
    }
    let restored = sqlite::restore(&restore.file, store).map_err(|error| restore_failure(&error, &restore.file))?;
    if session.printer.json {
        let document = json!({"store": store, "backup": restored.backup.path, "madeAt": restored.backup.made_at,
            "rows": restored.backup.rows, "kept": restored.previous_store});
        session.printer.print_json(&document.to_string());
        return Ok(Exit::Success);
    }
    session.printer.print(&store.display().to_string());
    session.printer.note(&format!("restored the backup of {}: {} rows", restored.backup.made_at, restored.backup.rows));
    if let Some(previous) = restored.previous_store {
        session.printer.note(&format!("the previous store is kept as {}", previous.display()));
    }
    Ok(Exit::Success)
}

fn restore_failure(error: &RestoreError, file: &Path) -> Failure {
    match error {
        RestoreError::Store(OpenError::InUse { .. }) => {
            Failure::new("store_in_use", error.to_string()).help("stop the server, then retry")
        }
        RestoreError::NoBackup { .. } if !file.exists() => {
            Failure::new("not_found", format!("there is no backup {}", file.display()))
                .help("`toolhub backup` prints the path of the backup it creates")
        }
        RestoreError::NoBackup { .. } => Failure::usage(error.to_string())
            .help("pass the file that `toolhub backup` printed, with its .json manifest beside it"),
        _ => Failure::unexpected(error.to_string()),
    }
}
