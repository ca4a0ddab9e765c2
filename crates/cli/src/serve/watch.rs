//! Reloads the config when its files change.
//!
//! Polls the content of the files once a second, and what is in the folders that old registries search. File notifications differ between systems and miss replaced or mounted files, and
//! reading a few kilobytes is cheap.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{daemon::Daemon, signals};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Polls until aborted.
pub(super) async fn reload_on_change(daemon: Arc<Daemon>) {
    let mut known = Snapshot::take(&daemon);
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let current = Snapshot::take(&daemon);
        // A missing file is probably being replaced.
        if current != known && current.files.iter().all(Option::is_some) {
            signals::reload(&daemon, "file changed").await;
            // The reload may have found other files of registries.
            known = Snapshot { registries: read_registries(&daemon), ..current };
        }
    }
}

/// An entry of a folder: name, size and time of the last change.
type FolderEntry = (OsString, u64, Option<SystemTime>);

/// What is on the disk.
#[derive(PartialEq, Eq)]
struct Snapshot {
    files: Vec<Option<Vec<u8>>>,
    /// The files of old registries, which may come and go, and the entries of their folders: a file that could not be read as a tool is
    /// only there.
    registries: (Vec<Option<Vec<u8>>>, Vec<Vec<FolderEntry>>),
}

impl Snapshot {
    fn take(daemon: &Daemon) -> Self {
        Self { files: read_contents(&daemon.watched_files()), registries: read_registries(daemon) }
    }
}

fn read_registries(daemon: &Daemon) -> (Vec<Option<Vec<u8>>>, Vec<Vec<FolderEntry>>) {
    let loaded = daemon.loaded();
    (read_contents(&loaded.registry_files), loaded.registry_folders.iter().map(|folder| list_entries(folder)).collect())
}

/// The entries of a folder, sorted; none if it cannot be listed. Only files of TOML count, because a store beside them changes all the time.
fn list_entries(folder: &Path) -> Vec<FolderEntry> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let relevant = entries.filter(|entry| {
        let path = entry.path();
        path.is_dir() || path.extension().is_some_and(|extension| extension == "toml")
    });
    let mut found: Vec<FolderEntry> = relevant
        .map(|entry| {
            let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file);
            let changed = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
            (entry.file_name(), metadata.map_or(0, |metadata| metadata.len()), changed)
        })
        .collect();
    found.sort();
    found
}

fn read_contents(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    files.iter().map(|file| std::fs::read(file).ok()).collect()
}
