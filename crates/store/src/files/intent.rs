//! A note of what is about to happen to several files at once, so that it happens to all of them or to none.
//!
//! In: files that lie ready, and the names they are to get. Out: a text; and after a crash, what the note asks for is
//! done to the end. A note that is cut short was never finished, so nothing of it had begun.

use std::{collections::HashSet, io, path::Path};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{context::ZSTD_SUFFIX, disk::ignore_not_found, document_store::DocumentStore, file_codec};

/// The name of the note.
pub(super) const INTENT_FILE: &str = "intent";
const HEADER_PREFIX: &str = "toolhub-intent 1 ";

/// One file of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileOp {
    /// Below the folder of all contexts.
    pub(super) file: String,
    /// What lies ready in the workshop; `None` where the file is to go.
    pub(super) ready: Option<SmolStr>,
    /// The number of the write. A file with a greater one is left alone.
    pub(super) write: u64,
}

/// The text of a note.
pub(super) fn encode(steps: &[FileOp]) -> io::Result<Vec<u8>> {
    let steps = serde_json::to_string(steps)?;
    Ok(format!("{HEADER_PREFIX}{:08x}\n{steps}\n", crc32fast::hash(steps.as_bytes())).into_bytes())
}

fn decode(content: &[u8]) -> Option<Vec<FileOp>> {
    let (sum, steps) = std::str::from_utf8(content).ok()?.strip_prefix(HEADER_PREFIX)?.split_once('\n')?;
    let steps = steps.strip_suffix('\n')?;
    (sum == format!("{:08x}", crc32fast::hash(steps.as_bytes()))).then(|| serde_json::from_str(steps).ok())?
}

/// Finishes what a note in the workshop asks for, if there is one, and clears the workshop.
pub(super) fn recover(shelf: &DocumentStore) -> io::Result<()> {
    let (disk, workshop) = (&*shelf.disk, &shelf.staging_folder);
    let names: HashSet<String> = disk.list(workshop)?.into_iter().collect();
    if names.contains(INTENT_FILE) {
        let note = workshop.join(INTENT_FILE);
        match decode(&disk.read(&note, usize::MAX)?) {
            Some(steps) => replay(shelf, &steps)?,
            None => tracing::info!("several files were about to be written together when the store stopped; none was"),
        }
        disk.remove(&note)?;
    }
    names
        .iter()
        .filter(|name| *name != INTENT_FILE)
        .try_for_each(|name| ignore_not_found(disk.remove(&workshop.join(name))))?;
    // No note may come back and find files that were written since; nor one of an earlier life, which was done and removed:
    // from here on numbers of writes may come again.
    disk.sync_folder(workshop)
}

fn replay(shelf: &DocumentStore, steps: &[FileOp]) -> io::Result<()> {
    let (disk, mut open) = (&*shelf.disk, Vec::new());
    for step in steps {
        let (target, packed) = (shelf.contexts.join(&step.file), step.file.ends_with(ZSTD_SUFFIX));
        if read_write_seq(shelf, &target, packed)? >= step.write {
            continue;
        }
        if let Some(ready) = &step.ready
            && read_write_seq(shelf, &shelf.staging_folder.join(ready), packed)? != step.write
        {
            // Either the note reached the disk before everything it speaks of, and nothing of it had begun; or it came
            // back after all of it was done, and the file was removed since.
            return Ok(());
        }
        open.push((step, target));
    }
    for (step, target) in &open {
        match &step.ready {
            Some(ready) => disk.rename(&shelf.staging_folder.join(ready), target)?,
            None => ignore_not_found(disk.remove(target))?,
        }
    }
    let folders: HashSet<&Path> = open.iter().filter_map(|(_, target)| target.parent()).collect();
    folders.into_iter().try_for_each(|folder| disk.sync_folder(folder))
}

/// The number of the write that a file holds; 0 where it cannot be read.
fn read_write_seq(shelf: &DocumentStore, path: &Path, packed: bool) -> io::Result<u64> {
    match shelf.disk.read(path, usize::MAX) {
        Ok(content) => Ok(file_codec::decode(&content, packed).map_or(0, |doc| doc.write_seq)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_one_that_is_cut_or_changed_is_none() {
        let steps = vec![
            FileOp { file: "ab/x.json".into(), ready: Some("7".into()), write: 3 },
            FileOp { file: "cd/y.json.zst".into(), ready: None, write: 3 },
        ];
        let note = encode(&steps).unwrap();
        assert_eq!(decode(&note), Some(steps));
        for at in 0..note.len() {
            assert_eq!(decode(&note[..at]), None);
            let mut mutant = note.clone();
            mutant[at] ^= 1;
            assert_eq!(decode(&mutant), None);
        }
    }
}
