//! Intent file (write-ahead record): makes renames and removals of several files atomic.
//!
//! In: staged files and their target names. Out: the intent file; after a crash, `recover` completes its operations. A
//! truncated intent was never complete, so none of its operations had started.

use std::{collections::HashSet, io, path::Path};

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{context::ZSTD_SUFFIX, disk::ignore_not_found, document_store::DocumentStore, file_codec};

/// The name of the intent file.
pub(super) const INTENT_FILE: &str = "intent";
const HEADER_PREFIX: &str = "toolhub-intent 1 ";

/// One file operation of an intent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileOp {
    /// The target, relative to the folder `contexts`.
    pub(super) file: String,
    /// The staged file; `None` to remove the target.
    pub(super) ready: Option<SmolStr>,
    /// The sequence number of the write. A target with a higher number is left alone.
    pub(super) write: u64,
}

/// Encodes an intent.
pub(super) fn encode(ops: &[FileOp]) -> io::Result<Vec<u8>> {
    let ops = serde_json::to_string(ops)?;
    Ok(format!("{HEADER_PREFIX}{:08x}\n{ops}\n", crc32fast::hash(ops.as_bytes())).into_bytes())
}

fn decode(content: &[u8]) -> Option<Vec<FileOp>> {
    let (checksum, ops) = std::str::from_utf8(content).ok()?.strip_prefix(HEADER_PREFIX)?.split_once('\n')?;
    let ops = ops.strip_suffix('\n')?;
    (checksum == format!("{:08x}", crc32fast::hash(ops.as_bytes()))).then(|| serde_json::from_str(ops).ok())?
}

/// Completes a pending intent, if there is one, and clears the staging folder.
pub(super) fn recover(documents: &DocumentStore) -> io::Result<()> {
    let (disk, staging_folder) = (&*documents.disk, &documents.staging_folder);
    let names: HashSet<String> = disk.list(staging_folder)?.into_iter().collect();
    if names.contains(INTENT_FILE) {
        let intent_path = staging_folder.join(INTENT_FILE);
        match decode(&disk.read(&intent_path, usize::MAX)?) {
            Some(ops) => replay(documents, &ops)?,
            None => {
                let folder = staging_folder.display();
                tracing::info!(%folder, "discarded an incomplete intent file of the last run; no file was changed");
            }
        }
        disk.remove(&intent_path)?;
    }
    names
        .iter()
        .filter(|name| *name != INTENT_FILE)
        .try_for_each(|name| ignore_not_found(disk.remove(&staging_folder.join(name))))?;
    // Make the removal durable: an old intent must not reappear after a power failure, because later files would not be protected
    // by a higher sequence number (numbers may be reused from here on).
    disk.sync_folder(staging_folder)
}

fn replay(documents: &DocumentStore, ops: &[FileOp]) -> io::Result<()> {
    let (disk, mut pending) = (&*documents.disk, Vec::new());
    for op in ops {
        let (target, compressed) = (documents.contexts.join(&op.file), op.file.ends_with(ZSTD_SUFFIX));
        if read_write_seq(documents, &target, compressed)? >= op.write {
            continue;
        }
        if let Some(ready) = &op.ready
            && read_write_seq(documents, &documents.staging_folder.join(ready), compressed)? != op.write
        {
            // Either the intent became durable before its staged files, and nothing had started; or it reappeared after
            // everything was done, and the file was removed since.
            return Ok(());
        }
        pending.push((op, target));
    }
    for (op, target) in &pending {
        match &op.ready {
            Some(ready) => disk.rename(&documents.staging_folder.join(ready), target)?,
            None => ignore_not_found(disk.remove(target))?,
        }
    }
    let folders: HashSet<&Path> = pending.iter().filter_map(|(_, target)| target.parent()).collect();
    folders.into_iter().try_for_each(|folder| disk.sync_folder(folder))
}

/// The write sequence number of a file; 0 if it cannot be read.
fn read_write_seq(documents: &DocumentStore, path: &Path, compressed: bool) -> io::Result<u64> {
    match documents.disk.read(path, usize::MAX) {
        Ok(content) => Ok(file_codec::decode(&content, compressed).map_or(0, |doc| doc.write_seq)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_and_one_that_is_cut_or_changed_is_none() {
        let ops = vec![
            FileOp { file: "ab/x.json".into(), ready: Some("7".into()), write: 3 },
            FileOp { file: "cd/y.json.zst".into(), ready: None, write: 3 },
        ];
        let intent = encode(&ops).unwrap();
        assert_eq!(decode(&intent), Some(ops));
        for at in 0..intent.len() {
            assert_eq!(decode(&intent[..at]), None);
            let mut mutant = intent.clone();
            mutant[at] ^= 1;
            assert_eq!(decode(&mutant), None);
        }
    }
}
