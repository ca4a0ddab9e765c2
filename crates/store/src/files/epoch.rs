//! The epoch of a file store, and the file that stores it after a restore.
//!
//! In: a folder. Out: an epoch. A restored store would assign some versions twice; a new epoch prevents that. The file is
//! in the folder `contexts`, so that it is swapped with the contexts and included in every backup.

use std::{io, path::Path};

use toolhub_storage::{
    backend::{RowKey, StoreError},
    clock::{Clock, SystemClock},
};

use super::{
    Disk,
    context::{self, Context},
    document_store::{Content, DocumentStore},
};
use crate::{
    epoch::{MAX_EPOCH, epoch_after},
    write_behind::clean_shutdown,
};

/// The file, in the folder `contexts`. Missing if nothing was ever restored.
pub(super) const EPOCH_FILE: &str = "epoch";
const HEADER_PREFIX: &str = "toolhub-epoch ";
/// Upper limit of the file's size.
const MAX_FILE_BYTES: usize = 256;

/// The epoch to write in.
pub(super) fn resolve_on_open(documents: &DocumentStore) -> Result<u64, StoreError> {
    Ok(read_file(&*documents.disk, &documents.contexts)?.max(from_shutdown_record(documents)?))
}

/// The epoch in the file.
pub(super) fn read_file(disk: &dyn Disk, contexts: &Path) -> Result<u64, StoreError> {
    match disk.read(&contexts.join(EPOCH_FILE), MAX_FILE_BYTES) {
        // The file exists but is damaged: use an epoch later than any it can have contained.
        Ok(content) => Ok(decode(&content).unwrap_or_else(|| epoch_after(0, SystemClock.now()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::Unavailable(error.to_string())),
    }
}

/// After an unclean shutdown with write-behind, versions were returned that no file contains.
fn from_shutdown_record(documents: &DocumentStore) -> Result<u64, StoreError> {
    let RowKey { partition, table, id } = clean_shutdown::key();
    let Some(partition_key) = context::partition_key(&partition) else { return Ok(0) };
    Ok(match documents.get(&Context::of_row(&partition_key, &id))? {
        Content::Doc(doc) => {
            doc.get(table, &id).map_or(0, |row| clean_shutdown::next_epoch(&row.value, row.version.number))
        }
        // The shutdown record is damaged: assume an unclean shutdown.
        Content::Quarantined(_) => epoch_after(0, SystemClock.now()),
        Content::Absent | Content::Unread => 0,
    })
}

/// The text of the file.
pub(super) fn encode(epoch: u64) -> String {
    format!("{HEADER_PREFIX}{epoch} {:08x}\n", crc32fast::hash(epoch.to_string().as_bytes()))
}

fn decode(content: &[u8]) -> Option<u64> {
    let number = std::str::from_utf8(content).ok()?.strip_prefix(HEADER_PREFIX)?.split(' ').next()?;
    let epoch: u64 = number.parse().ok()?;
    (epoch <= MAX_EPOCH && encode(epoch).as_bytes() == content).then_some(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_read_back_and_one_that_is_changed_is_none() {
        let text = encode(16_400);
        assert_eq!(decode(text.as_bytes()), Some(16_400));
        for at in 0..text.len() {
            let mut mutant = text.clone().into_bytes();
            mutant[at] ^= 1;
            assert_eq!((decode(&mutant), decode(&text.as_bytes()[..at])), (None, None), "{at}");
        }
        assert_eq!(decode(super::encode(MAX_EPOCH + 1).as_bytes()), None);
    }
}
