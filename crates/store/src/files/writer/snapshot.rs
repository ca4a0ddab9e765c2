//! Gives all files second names, between two writes: what a backup is made of.
//!
//! In: a folder on the disk of the store. Out: the moment its files are of. No byte is read: what a file holds is never changed.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use toolhub_storage::clock::{Clock, SystemClock, Timestamp};

use super::super::{backup::is_store_file, document_store::DocumentStore, epoch};
use crate::backup::BackupError;

pub(super) fn link_all(shelf: &DocumentStore, into: &Path, stop: &AtomicBool) -> Result<Timestamp, BackupError> {
    let (disk, made_at) = (&*shelf.disk, SystemClock.now());
    let broken = BackupError::io(into);
    disk.make_folder(into).map_err(&broken)?;
    for folder in disk.list(&shelf.contexts).map_err(&broken)? {
        if folder == epoch::EPOCH_FILE {
            disk.link(&shelf.contexts.join(&folder), &into.join(&folder)).map_err(&broken)?;
        }
        if folder.len() != 2 {
            continue;
        }
        let (from, to) = (shelf.contexts.join(&folder), into.join(&folder));
        let names = match disk.list(&from) {
            // It may be a file of somebody else.
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => continue,
            names => names.map_err(&broken)?,
        };
        disk.make_folder(&to).map_err(&broken)?;
        for name in names.iter().filter(|name| is_store_file(&format!("{folder}/{name}"))) {
            if stop.load(Ordering::Relaxed) {
                return Err(BackupError::Closed);
            }
            disk.link(&from.join(name), &to.join(name)).map_err(&broken)?;
        }
    }
    Ok(made_at)
}
