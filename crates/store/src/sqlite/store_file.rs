//! The file of the store on disk: whether it is still the one that was opened, whether it is damaged, and whether the disk is full.
//!
//! In: the path, and how the last write ended. Out: the reason why nothing can be written. A file that was deleted or replaced
//! stays open, and what is written to it would be lost when the process ends.

use std::{
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use toolhub_storage::backend::StoreError;

/// Less free space than this is a full disk, if a write has failed for lack of space.
const MIN_FREE_BYTES: u64 = 1024 * 1024;

pub(super) struct StoreFile {
    path: PathBuf,
    wal: PathBuf,
    /// Identifies the file; `None` if the platform has no such identity.
    identity: Option<FileIdentity>,
    /// Whether the last write failed because the disk was full.
    is_disk_full: AtomicBool,
    /// The first problem that the check of the file found.
    damage: OnceLock<String>,
}

/// Device and inode.
type FileIdentity = (u64, u64);

impl StoreFile {
    /// A file that is open.
    pub(super) fn new(path: &Path) -> Self {
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let identity = identify(path);
        let (path, is_disk_full) = (path.to_owned(), AtomicBool::new(false));
        Self { path, wal: wal.into(), identity, is_disk_full, damage: OnceLock::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if the file or its WAL is not there any more, or another file is in its place.
    pub(super) fn check_identity(&self) -> Result<(), StoreError> {
        let Some(identity) = self.identity else { return Ok(()) };
        let found = identify(&self.path);
        let problem = match found {
            None => "was deleted or moved",
            Some(found) if found != identity => "was replaced",
            Some(_) if !self.wal.exists() => "lost its WAL (`-wal`)",
            Some(_) => return Ok(()),
        };
        Err(StoreError::Unavailable(format!(
            "the store's file {} {problem} while it was open; put it back, or restart to use what is there now",
            self.path.display()
        )))
    }

    /// Records whether the last write failed because the disk was full.
    pub(super) fn set_disk_full(&self, is_full: bool) {
        if self.is_disk_full.swap(is_full, Ordering::Relaxed) != is_full && is_full {
            tracing::error!(store = %self.path.display(), "the disk is full: nothing can be stored");
        }
    }

    /// Records what the check of the file found.
    pub(super) fn set_damaged(&self, problem: String) {
        tracing::error!(
            store = %self.path.display(), problem,
            "the store's file is damaged: intact records are served, and calls with new idempotency keys are refused; restore a backup"
        );
        let _ = self.damage.set(problem);
    }

    /// What the check of the file found.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// Why nothing can be written now.
    pub(super) fn write_error(&self) -> Option<String> {
        if let Err(error) = self.check_identity() {
            return Some(error.to_string());
        }
        let is_full = self.is_disk_full.load(Ordering::Relaxed) && has_no_space(&self.path);
        is_full.then(|| format!("the disk with {} is full", self.path.display()))
    }
}

#[cfg(unix)]
fn identify(path: &Path) -> Option<FileIdentity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identify(_: &Path) -> Option<FileIdentity> {
    None
}

/// Whether space is still missing. It may have been freed since the last write.
#[cfg(unix)]
fn has_no_space(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < MIN_FREE_BYTES)
}

#[cfg(not(unix))]
fn has_no_space(_: &Path) -> bool {
    true
}
