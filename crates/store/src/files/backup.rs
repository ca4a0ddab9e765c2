//! Backups of a folder: all files of one moment, under second names, with a list that has the checksum of each.
//!
//! In: where to. Out: a folder that `restore` puts back, with a manifest beside it (`crate::backup`). Files of a store are replaced
//! and never changed, so a second name keeps what a file held; the thread that writes gives them out between two writes
//! (`writer/moment.rs`). Everything that takes time is done here afterwards, while others write.

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

use super::{Files, open::LAYOUT_VERSION, writer::Writer};
use crate::{
    backup::{
        Backup, BackupError, BackupSource, TempPath, canonical_path, copy_hashed, link_or_copy, sync_folder,
        with_suffix,
    },
    failpoint,
};

/// Where in the folder of a store its files get second names. Whatever lies there is left of a backup that was cut short.
pub(super) const SNAPSHOT_FOLDER: &str = "moment";

/// Makes backups of a store.
pub(super) struct FilesBackupSource {
    pub(super) folder: PathBuf,
    pub(super) writer: Arc<Writer>,
}

impl BackupSource for FilesBackupSource {
    const SUFFIX: &'static str = "";

    fn store_path(&self) -> &Path {
        &self.folder
    }

    fn create_backup(&self, into: &Path, stop: &Arc<AtomicBool>) -> Result<Backup, BackupError> {
        let path = canonical_path(into).map_err(BackupError::io(into))?;
        let taken = fs::symlink_metadata(&path).is_ok();
        // What lies in these is the store's.
        if taken || ["contexts", "new", SNAPSHOT_FOLDER].iter().any(|ours| path.starts_with(self.folder.join(ours))) {
            return Err(BackupError::Exists(path));
        }
        if let Some(other) = Backup::conflicting_manifest(&path) {
            return Err(BackupError::Exists(other));
        }
        let broken = BackupError::io(&path);
        let half = TempPath::new(with_suffix(&path, ".half"), &[""]).map_err(&broken)?;
        let moment = TempPath::new(self.folder.join(SNAPSHOT_FOLDER), &[""]).map_err(BackupError::io(&self.folder))?;
        failpoint::reach("backup of files: before the moment");
        let made_at = self.writer.link_snapshot(&moment.path, stop)?;
        failpoint::reach("backup of files: after the moment");
        fs::create_dir(&half.path).map_err(&broken)?;
        // Nobody else may read it than may read the store.
        let allowed = fs::metadata(&self.folder).and_then(|store| fs::set_permissions(&half.path, store.permissions()));
        allowed.map_err(&broken)?;
        let (bytes, rows) = copy(&moment.path, &half.path, stop)?;
        failpoint::reach("backup of files: after the copy");
        let (sha256, _) = File::open(half.path.join(checksum_list::LIST_FILE))
            .and_then(|list| copy_hashed(list, io::sink()))
            .and_then(|hashed| sync_folder(&half.path).map(|()| hashed))
            .map_err(&broken)?;
        let backup = Backup { path: path.clone(), made_at, schema: LAYOUT_VERSION, bytes, rows, sha256 };
        // The manifest first: a folder that has its name has its manifest.
        backup.write().map_err(&broken)?;
        failpoint::reach("backup of files: after the manifest");
        if fs::symlink_metadata(&path).is_ok() {
            return Err(BackupError::Exists(path.clone()));
        }
        fs::rename(&half.path, &path).map_err(&broken)?;
        failpoint::reach("backup of files: after the name");
        sync_folder(path.parent().unwrap_or(Path::new("/"))).map_err(&broken)?;
        Ok(backup)
    }

    fn is_intact(&self, backup: &Backup) -> bool {
        for_each_file(backup, |_, file| copy_hashed(file, io::sink())).is_ok()
    }
}

/// Gives the files of a moment their names in the backup, and lists them. Answers how long they are and how many.
fn copy(moment: &Path, half: &Path, stop: &AtomicBool) -> Result<(u64, u64), BackupError> {
    let (contexts, list) = (half.join(checksum_list::CONTEXTS), half.join(checksum_list::LIST_FILE));
    let broken = BackupError::io(half);
    fs::create_dir(&contexts).map_err(&broken)?;
    let mut lines = BufWriter::new(File::create_new(&list).map_err(&broken)?);
    let (mut bytes, mut count) = (0, 0);
    let mut take = |name: &str| -> io::Result<()> {
        let to = contexts.join(name);
        link_or_copy(&moment.join(name), &to)?;
        let (sha256, length) = copy_hashed(File::open(&to)?, io::sink())?;
        (bytes, count) = (bytes + length, count + 1);
        lines.write_all(checksum_list::format_line(&sha256, name).as_bytes())
    };
    for name in sorted_names(moment).map_err(&broken)? {
        if moment.join(&name).is_dir() {
            fs::create_dir(contexts.join(&name)).map_err(&broken)?;
            for file in sorted_names(&moment.join(&name)).map_err(&broken)? {
                if stop.load(Ordering::Relaxed) {
                    return Err(BackupError::Closed);
                }
                take(&format!("{name}/{file}")).map_err(&broken)?;
            }
            sync_folder(&contexts.join(&name)).map_err(&broken)?;
        } else {
            take(&name).map_err(&broken)?;
        }
    }
    sync_folder(&contexts).map_err(&broken)?;
    lines.into_inner().map_err(io::IntoInnerError::into_error).and_then(|list| list.sync_all()).map_err(&broken)?;
    Ok((bytes, count))
}

/// What lies in a folder, in order.
pub(super) fn sorted_names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}

impl Files {
    /// Makes a backup: all files as they are at one moment, while everybody goes on reading and writing.
    ///
    /// It is a folder under the name that is given, with a text beside it (`….json`). In it are the files, and a list of them that
    /// `sha256sum -c` understands. Either it is whole and on the disk, or it is not there. On the disk of the store the files
    /// are not copied but have second names, so what does not change takes its room once; on another disk they are copied. Nothing
    /// is written to the store while its files get their second names, some microseconds for each. What was set aside as damaged
    /// is in it too. It is made to its end also when nobody waits for it any more.
    ///
    /// # Errors
    /// When there is something of that name, and when the disk is full.
    pub async fn backup(&self, into: impl AsRef<Path>) -> Result<Backup, BackupError> {
        self.backup_worker.create_backup(into.as_ref()).await
    }

    /// The backups in the folder that was named in the options, the latest first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn backups(&self) -> io::Result<Vec<Backup>> {
        self.backup_worker.list()
    }

    /// Why the last backup the store was to make by itself was not made; `None` when it was.
    #[must_use]
    pub fn last_backup_error(&self) -> Option<String> {
        self.backup_worker.last_error()
    }
}
