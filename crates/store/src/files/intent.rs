//! A note of what is about to happen to several files at once, so that it happens to all of them or to none.
//!
//! In: files that lie ready, and the names they are to get. Out: a text; and after a crash, what the note asks for is
//! done to the end. A note that is cut short was never finished, so nothing of it had begun.

use std::{collections::HashSet, io, path::Path};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{disk::gone, name::PACKED, pack, shelf::Shelf};

/// The name of the note.
pub(super) const NOTE: &str = "intent";
const BEGIN: &str = "toolhub-intent 1 ";

/// One file of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    /// Below the folder of all contexts.
    pub(super) file: String,
    /// What lies ready in the workshop; `None` where the file is to go.
    pub(super) ready: Option<SmolStr>,
    /// The number of the write. A file with a greater one is left alone.
    pub(super) write: u64,
}

/// The text of a note.
pub(super) fn write(steps: &[Step]) -> io::Result<Vec<u8>> {
    let steps = serde_json::to_string(steps)?;
    Ok(format!("{BEGIN}{:08x}\n{steps}\n", crc32fast::hash(steps.as_bytes())).into_bytes())
}

fn read(content: &[u8]) -> Option<Vec<Step>> {
    let (sum, steps) = std::str::from_utf8(content).ok()?.strip_prefix(BEGIN)?.split_once('\n')?;
    let steps = steps.strip_suffix('\n')?;
    (sum == format!("{:08x}", crc32fast::hash(steps.as_bytes()))).then(|| serde_json::from_str(steps).ok())?
}

/// Finishes what a note in the workshop asks for, if there is one, and clears the workshop.
pub(super) fn recover(shelf: &Shelf) -> io::Result<()> {
    let (disk, workshop) = (&*shelf.disk, &shelf.workshop);
    let names: HashSet<String> = disk.list(workshop)?.into_iter().collect();
    if names.contains(NOTE) {
        let note = workshop.join(NOTE);
        match read(&disk.read(&note, usize::MAX)?) {
            Some(steps) => finish(shelf, &steps)?,
            None => tracing::info!("several files were about to be written together when the store stopped; none was"),
        }
        disk.remove(&note)?;
    }
    names.iter().filter(|name| *name != NOTE).try_for_each(|name| gone(disk.remove(&workshop.join(name))))?;
    // No note may come back and find files that were written since; nor one of an earlier life, which was done and removed:
    // from here on numbers of writes may come again.
    disk.sync_folder(workshop)
}

fn finish(shelf: &Shelf, steps: &[Step]) -> io::Result<()> {
    let (disk, mut open) = (&*shelf.disk, Vec::new());
    for step in steps {
        let (target, packed) = (shelf.contexts.join(&step.file), step.file.ends_with(PACKED));
        if number(shelf, &target, packed)? >= step.write {
            continue;
        }
        if let Some(ready) = &step.ready
            && number(shelf, &shelf.workshop.join(ready), packed)? != step.write
        {
            // Either the note reached the disk before everything it speaks of, and nothing of it had begun; or it came
            // back after all of it was done, and the file was removed since.
            return Ok(());
        }
        open.push((step, target));
    }
    for (step, target) in &open {
        match &step.ready {
            Some(ready) => disk.rename(&shelf.workshop.join(ready), target)?,
            None => gone(disk.remove(target))?,
        }
    }
    let folders: HashSet<&Path> = open.iter().filter_map(|(_, target)| target.parent()).collect();
    folders.into_iter().try_for_each(|folder| disk.sync_folder(folder))
}

/// The number of the write that a file holds; 0 where it cannot be read.
fn number(shelf: &Shelf, path: &Path, packed: bool) -> io::Result<u64> {
    match shelf.disk.read(path, usize::MAX) {
        Ok(content) => Ok(pack::read(&content, packed).map_or(0, |doc| doc.write)),
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
            Step { file: "ab/x.json".into(), ready: Some("7".into()), write: 3 },
            Step { file: "cd/y.json.zst".into(), ready: None, write: 3 },
        ];
        let note = write(&steps).unwrap();
        assert_eq!(read(&note), Some(steps));
        for at in 0..note.len() {
            assert_eq!(read(&note[..at]), None);
            let mut mutant = note.clone();
            mutant[at] ^= 1;
            assert_eq!(read(&mutant), None);
        }
    }
}
