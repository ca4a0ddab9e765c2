//! The epoch of a folder, and the file that says it after a restore.
//!
//! In: a folder. Out: a number. A store that went back in time would give some versions out for a second time; in a new epoch
//! it does not. The file lies among the contexts, so that it is swapped with them and is in every backup.

use std::{io, path::Path};

use toolhub_storage::{
    backend::{Key, StoreError},
    clock::{Clock, SystemClock},
};

use super::{
    Disk,
    name::{self, Context},
    shelf::{Content, Shelf},
};
use crate::{
    behind::mark,
    epoch::{LAST, after},
};

/// The file, in the folder of all contexts. None where nothing was restored.
pub(super) const FILE: &str = "epoch";
const BEGIN: &str = "toolhub-epoch ";
/// No such file is longer.
const LONGEST: usize = 256;

/// The epoch to write in.
pub(super) fn of(shelf: &Shelf) -> Result<u64, StoreError> {
    Ok(said(&*shelf.disk, &shelf.contexts)?.max(marked(shelf)?))
}

/// The epoch the file says.
pub(super) fn said(disk: &dyn Disk, contexts: &Path) -> Result<u64, StoreError> {
    match disk.read(&contexts.join(FILE), LONGEST) {
        // There was one, and nobody knows which.
        Ok(content) => Ok(read(&content).unwrap_or_else(|| after(0, SystemClock.now()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::Unavailable(error.to_string())),
    }
}

/// A store that was written behind and had an unclean end has given out versions no file knows of.
fn marked(shelf: &Shelf) -> Result<u64, StoreError> {
    let Key { partition, table, id } = mark::key();
    let Some(home) = name::home(&partition) else { return Ok(0) };
    Ok(match shelf.get(&Context::of(&home, &id))? {
        Content::Doc(doc) => doc.get(table, &id).map_or(0, |row| mark::next_epoch(&row.value, row.seen.version)),
        // Nobody knows how it ended.
        Content::Aside(_) => after(0, SystemClock.now()),
        Content::Nothing | Content::Unread => 0,
    })
}

/// The text of the file.
pub(super) fn text(epoch: u64) -> String {
    format!("{BEGIN}{epoch} {:08x}\n", crc32fast::hash(epoch.to_string().as_bytes()))
}

fn read(content: &[u8]) -> Option<u64> {
    let said = std::str::from_utf8(content).ok()?.strip_prefix(BEGIN)?.split(' ').next()?;
    let epoch: u64 = said.parse().ok()?;
    (epoch <= LAST && text(epoch).as_bytes() == content).then_some(epoch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_read_back_and_one_that_is_changed_is_none() {
        let text = text(16_400);
        assert_eq!(read(text.as_bytes()), Some(16_400));
        for at in 0..text.len() {
            let mut mutant = text.clone().into_bytes();
            mutant[at] ^= 1;
            assert_eq!((read(&mutant), read(&text.as_bytes()[..at])), (None, None), "{at}");
        }
        assert_eq!(read(super::text(LAST + 1).as_bytes()), None);
    }
}
