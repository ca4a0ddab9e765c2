//! Snapshot of all files by hard links, between two writes: the source of a backup.
//!
//! In: a folder on the store's file system. Out: the time of the snapshot. No content is read: store files are never modified.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use toolhub_storage::clock::{Clock, SystemClock, Timestamp};

use super::super::{backup::is_store_file, document_store::DocumentStore, epoch};
use crate::backup::BackupError;

pub(super) fn link_all(
    documents: &DocumentStore,
    destination: &Path,
    stop: &AtomicBool,
) -> Result<Timestamp, BackupError> {
    let (disk, made_at) = (&*documents.disk, SystemClock.now());
    let io_error = BackupError::io(destination);
    disk.make_folder(destination).map_err(&io_error)?;
    for folder in disk.list(&documents.contexts).map_err(&io_error)? {
        if folder == epoch::EPOCH_FILE {
            disk.link(&documents.contexts.join(&folder), &destination.join(&folder)).map_err(&io_error)?;
        }
        if folder.len() != 2 {
            continue;
        }
        let (from, to) = (documents.contexts.join(&folder), destination.join(&folder));
        let names = match disk.list(&from) {
            // It may be a foreign file.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => continue,
            names => names.map_err(&io_error)?,
        };
        disk.make_folder(&to).map_err(&io_error)?;
        for name in names.iter().filter(|name| is_store_file(&format!("{folder}/{name}"))) {
            if stop.load(Ordering::Relaxed) {
                return Err(BackupError::Closed);
            }
            disk.link(&from.join(name), &to.join(name)).map_err(&io_error)?;
        }
    }
    Ok(made_at)
}
