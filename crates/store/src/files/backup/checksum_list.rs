//! Checksum list of a backup, in the format of `sha256sum`.
//!
//! In: a backup, which may be manipulated. Out: its files one by one, each verified against the list; or an error. Only names
//! of store files are accepted, so no path leads out of the folder.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Take},
    path::Path,
};

use super::super::{
    context::{JSON_SUFFIX, ZSTD_SUFFIX},
    document_store::original_name,
    epoch,
};
use crate::backup::{Backup, copy_hashed};

/// The list, in the backup's folder.
pub(in super::super) const LIST_FILE: &str = "SHA256SUMS";
/// The folder of the context files.
pub(in super::super) const CONTEXTS: &str = "contexts";
/// Upper limit of a line's length.
const MAX_LINE_BYTES: u64 = 512;

/// Why the files of a backup could not be processed.
pub(in super::super) enum ListError {
    /// The backup is damaged or manipulated.
    Damaged(String),
    /// The callback failed to write a file.
    Io(io::Error),
}

impl From<io::Error> for ListError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub(super) fn format_line(sha256: &str, file: &str) -> String {
    format!("{sha256}  {CONTEXTS}/{file}\n")
}

/// Whether this is a valid name of a store file, relative to the folder `contexts`.
pub(in super::super) fn is_store_file(file: &str) -> bool {
    let Some((folder, name)) = file.split_once('/') else { return file == epoch::EPOCH_FILE };
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_allowed =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.');
    let original = original_name(name).unwrap_or(name);
    let has_suffix = original.ends_with(JSON_SUFFIX) || original.ends_with(ZSTD_SUFFIX);
    folder.len() == 2
        && folder.bytes().all(is_digit)
        && has_suffix
        && !name.starts_with('.')
        && name.bytes().all(is_allowed)
}

/// Calls `process` for each file of a backup; it must read the file to the end and return its checksum and length. After an error the
/// caller must discard everything processed so far.
pub(in super::super) fn for_each_file(
    backup: &Backup,
    mut process: impl FnMut(&str, Take<File>) -> io::Result<(String, u64)>,
) -> Result<(), ListError> {
    let damaged = |what: &str| ListError::Damaged(what.into());
    let list = open_regular_file(&backup.path.join(LIST_FILE))
        .map_err(|error| damaged(&format!("its file list cannot be read: {error}")))?;
    let max_bytes = backup.rows.saturating_add(1).saturating_mul(MAX_LINE_BYTES);
    let hashed = copy_hashed(list.take(max_bytes), io::sink());
    if !hashed.is_ok_and(|(sha256, _)| sha256 == backup.sha256) {
        return Err(damaged("checksum mismatch of its file list"));
    }
    let list = open_regular_file(&backup.path.join(LIST_FILE))
        .map_err(|error| damaged(&format!("its file list cannot be read: {error}")))?;
    let (mut remaining, mut count, mut last) = (backup.bytes, 0, String::new());
    for line in BufReader::new(list.take(max_bytes)).lines() {
        let line = line.map_err(|error| damaged(&format!("its file list cannot be read: {error}")))?;
        let entry = line.split_once("  ").and_then(|(sha256, path)| Some((sha256, path.strip_prefix("contexts/")?)));
        let Some((sha256, file)) = entry.filter(|(_, file)| is_store_file(file)) else {
            return Err(damaged(&format!("its file list contains the line {line:?}, which is not a store file")));
        };
        if file <= last.as_str() {
            return Err(damaged(&format!("its file list contains {file} twice or out of order")));
        }
        file.clone_into(&mut last);
        let from = open_regular_file(&backup.path.join(CONTEXTS).join(file));
        let from = from.map_err(|error| damaged(&format!("{file} cannot be read: {error}")))?;
        // Limited to the expected size, plus one byte to detect a longer file.
        let (found, bytes) = process(file, from.take(remaining.saturating_add(1)))?;
        if found != sha256 {
            return Err(damaged(&format!("checksum mismatch of {file}")));
        }
        remaining = remaining.checked_sub(bytes).ok_or_else(|| damaged("it is larger than its manifest says"))?;
        count += 1;
    }
    if (remaining, count) == (0, backup.rows) { Ok(()) } else { Err(damaged("it is smaller than its manifest says")) }
}

/// Opens a regular file; refuses symlinks.
fn open_regular_file(path: &Path) -> io::Result<File> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        for ours in ["4e/t1-cart-4e00.json", "00/_-cart-00.json.zst", "ab/x-y-ab.json.damaged", "ab/x.json.damaged-2"] {
            assert!(is_store_file(ours), "{ours}");
        }
        assert!(is_store_file(epoch::EPOCH_FILE));
        for other in [
            "../x.json",
            "4e/../x.json",
            "/etc/x.json",
            "4e//x.json",
            "4e/.x.json",
            "4e/x",
            "4E/x.json",
            "4e/a/x.json",
            "x.json",
            "",
            "/",
            "..",
            "4e/x.json\0",
            "4e/x\\..\\y.json",
            "4e/",
            "zz/x.json",
            "4e/..json",
            "./4e/x.json",
            "4e/ü.json",
        ] {
            assert!(!is_store_file(other), "{other}");
        }
    }
}
