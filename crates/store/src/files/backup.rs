//! Online backups of a file store: a hard-linked snapshot of all files, with a list of checksums.
//!
//! In: a destination. Out: a folder that `restore` accepts, with a manifest next to it (`crate::backup`). Store files are replaced,
//! never modified, so a hard link preserves the content of a file; the writer thread creates the links between two writes
//! (`writer/snapshot.rs`). The slow part, copying and hashing, runs here afterwards, concurrently with writes.

mod checksum_list;

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

pub(super) use checksum_list::{ListError, for_each_file, is_store_file};

use toolhub_types::store_role::StoreRole;

use super::{Files, open::LAYOUT_VERSION, writer::Writer};
use crate::{
    backup::{
        Backup, BackupError, BackupSource, TempPath, canonical_path, copy_hashed, link_or_copy, sync_folder,
        with_suffix,
    },
    failpoint,
};

/// The folder for hard links inside the store's folder. Existing contents are leftovers of an interrupted backup.
pub(super) const SNAPSHOT_FOLDER: &str = "moment";

/// Creates backups of a file store.
pub(super) struct FilesBackupSource {
    pub(super) folder: PathBuf,
    pub(super) writer: Arc<Writer>,
}

impl BackupSource for FilesBackupSource {
    const SUFFIX: &'static str = "";

    fn store_path(&self) -> &Path {
        &self.folder
    }

    fn create_backup(&self, destination: &Path, stop: &Arc<AtomicBool>) -> Result<Backup, BackupError> {
        let path = canonical_path(destination).map_err(BackupError::io(destination))?;
        let exists = fs::symlink_metadata(&path).is_ok();
        // These folders belong to the store.
        if exists || ["contexts", "new", SNAPSHOT_FOLDER].iter().any(|name| path.starts_with(self.folder.join(name))) {
            return Err(BackupError::Exists(path));
        }
        if let Some(other) = Backup::conflicting_manifest(&path) {
            return Err(BackupError::Exists(other));
        }
        let io_error = BackupError::io(&path);
        let partial = TempPath::new(with_suffix(&path, ".half"), &[""]).map_err(&io_error)?;
        let snapshot =
            TempPath::new(self.folder.join(SNAPSHOT_FOLDER), &[""]).map_err(BackupError::io(&self.folder))?;
        failpoint::reach("files backup: before the snapshot");
        let made_at = self.writer.link_snapshot(&snapshot.path, stop)?;
        failpoint::reach("files backup: after the snapshot");
        fs::create_dir(&partial.path).map_err(&io_error)?;
        // Same permissions as the store.
        let permissions =
            fs::metadata(&self.folder).and_then(|store| fs::set_permissions(&partial.path, store.permissions()));
        permissions.map_err(&io_error)?;
        let (bytes, rows) = copy(&snapshot.path, &partial.path, stop)?;
        failpoint::reach("files backup: after the copy");
        let (sha256, _) = File::open(partial.path.join(checksum_list::LIST_FILE))
            .and_then(|list| copy_hashed(list, io::sink()))
            .and_then(|hashed| sync_folder(&partial.path).map(|()| hashed))
            .map_err(&io_error)?;
        let backup = Backup {
            path: path.clone(),
            store: Some(StoreRole::State),
            made_at,
            schema: LAYOUT_VERSION,
            bytes,
            rows,
            sha256,
        };
        // The manifest first: a backup with its final name always has a manifest.
        backup.write().map_err(&io_error)?;
        failpoint::reach("files backup: after the manifest");
        if fs::symlink_metadata(&path).is_ok() {
            return Err(BackupError::Exists(path.clone()));
        }
        fs::rename(&partial.path, &path).map_err(&io_error)?;
        failpoint::reach("files backup: after the name");
        sync_folder(path.parent().unwrap_or(Path::new("/"))).map_err(&io_error)?;
        Ok(backup)
    }

    fn is_intact(&self, backup: &Backup) -> bool {
        for_each_file(backup, |_, file| copy_hashed(file, io::sink())).is_ok()
    }
}

/// Links or copies the files of a snapshot into the backup and writes the checksum list. Returns their total size and number.
fn copy(snapshot: &Path, partial: &Path, stop: &AtomicBool) -> Result<(u64, u64), BackupError> {
    let (contexts, list) = (partial.join(checksum_list::CONTEXTS), partial.join(checksum_list::LIST_FILE));
    let io_error = BackupError::io(partial);
    fs::create_dir(&contexts).map_err(&io_error)?;
    let mut lines = BufWriter::new(File::create_new(&list).map_err(&io_error)?);
    let (mut bytes, mut count) = (0, 0);
    let mut add = |name: &str| -> io::Result<()> {
        let to = contexts.join(name);
        link_or_copy(&snapshot.join(name), &to)?;
        let (sha256, length) = copy_hashed(File::open(&to)?, io::sink())?;
        (bytes, count) = (bytes + length, count + 1);
        lines.write_all(checksum_list::format_line(&sha256, name).as_bytes())
    };
    for name in sorted_names(snapshot).map_err(&io_error)? {
        if snapshot.join(&name).is_dir() {
            fs::create_dir(contexts.join(&name)).map_err(&io_error)?;
            for file in sorted_names(&snapshot.join(&name)).map_err(&io_error)? {
                if stop.load(Ordering::Relaxed) {
                    return Err(BackupError::Closed);
                }
                add(&format!("{name}/{file}")).map_err(&io_error)?;
            }
            sync_folder(&contexts.join(&name)).map_err(&io_error)?;
        } else {
            add(&name).map_err(&io_error)?;
        }
    }
    sync_folder(&contexts).map_err(&io_error)?;
    lines.into_inner().map_err(io::IntoInnerError::into_error).and_then(|list| list.sync_all()).map_err(&io_error)?;
    Ok((bytes, count))
}

/// The names in a folder, sorted.
pub(super) fn sorted_names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

impl Files {
    /// Creates an online backup: a consistent snapshot of all files, while reads and writes continue.
    ///
    /// The result is a folder with the given name and a manifest next to it (`….json`). It contains the files and a checksum
    /// list for `sha256sum -c`. The backup is either complete and durable, or absent. On the store's own file system the files
    /// are hard-linked, so unchanged files take no extra space; on another one they are copied. Writes are blocked while the
    /// links are created, some microseconds per file. Quarantined files are included. The backup continues even if the
    /// returned future is dropped.
    ///
    /// # Errors
    /// When the destination exists, and when the disk is full.
    pub async fn backup(&self, destination: impl AsRef<Path>) -> Result<Backup, BackupError> {
        self.backup_worker.create_backup(destination.as_ref()).await
    }

    /// The backups in the folder of the options, latest first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn backups(&self) -> io::Result<Vec<Backup>> {
        self.backup_worker.list()
    }

    /// The error of the last scheduled backup; `None` if it succeeded.
    #[must_use]
    pub fn last_backup_error(&self) -> Option<String> {
        self.backup_worker.last_error()
    }
}
