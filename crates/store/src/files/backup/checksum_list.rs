//! The list in a backup: the checksum and the name of each file, a line for each, as `sha256sum` writes them.
//!
//! In: a backup, which may have been made by anybody. Out: its files one by one, each found to be what was listed; or what is
//! wrong. Names are those of files of a store and no others, so none leads out of the folder.

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

/// The list, in the folder of a backup.
pub(in super::super) const LIST_FILE: &str = "SHA256SUMS";
/// The folder of the files.
pub(in super::super) const CONTEXTS: &str = "contexts";
/// No line is longer.
const MAX_LINE_BYTES: u64 = 512;

/// Why a file was not taken.
pub(in super::super) enum ListError {
    /// The backup is not what was made.
    Damaged(String),
    /// It could not be put where it should go.
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

/// Whether a store may have a file of this name below the folder of all contexts.
pub(in super::super) fn is_store_file(file: &str) -> bool {
    let Some((folder, name)) = file.split_once('/') else { return file == epoch::EPOCH_FILE };
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.');
    let written = original_name(name).unwrap_or(name);
    let ends = written.ends_with(JSON_SUFFIX) || written.ends_with(ZSTD_SUFFIX);
    folder.len() == 2 && folder.bytes().all(is_digit) && ends && !name.starts_with('.') && name.bytes().all(fits)
}

/// Hands each file of a backup to somebody who reads it to its end, and answers its checksum and its length. Whatever was taken
/// before something turned out to be wrong is to be thrown away.
pub(in super::super) fn for_each_file(
    backup: &Backup,
    mut take: impl FnMut(&str, Take<File>) -> io::Result<(String, u64)>,
) -> Result<(), ListError> {
    let damaged = |what: &str| ListError::Damaged(what.into());
    let list = open_regular_file(&backup.path.join(LIST_FILE))
        .map_err(|error| damaged(&format!("its list cannot be read: {error}")))?;
    let longest = backup.rows.saturating_add(1).saturating_mul(MAX_LINE_BYTES);
    let hashed = copy_hashed(list.take(longest), io::sink());
    if !hashed.is_ok_and(|(sha256, _)| sha256 == backup.sha256) {
        return Err(damaged("the list of its files does not have its checksum"));
    }
    let list = open_regular_file(&backup.path.join(LIST_FILE))
        .map_err(|error| damaged(&format!("its list cannot be read: {error}")))?;
    let (mut left, mut count, mut last) = (backup.bytes, 0, String::new());
    for line in BufReader::new(list.take(longest)).lines() {
        let line = line.map_err(|error| damaged(&format!("its list cannot be read: {error}")))?;
        let entry = line.split_once("  ").and_then(|(sha256, path)| Some((sha256, path.strip_prefix("contexts/")?)));
        let Some((sha256, file)) = entry.filter(|(_, file)| is_store_file(file)) else {
            return Err(damaged(&format!("its list has the line {line:?}, which names no file of a store")));
        };
        if file <= last.as_str() {
            return Err(damaged(&format!("its list has {file} twice, or not in its place")));
        }
        file.clone_into(&mut last);
        let from = open_regular_file(&backup.path.join(CONTEXTS).join(file));
        let from = from.map_err(|error| damaged(&format!("{file} cannot be read: {error}")))?;
        // No more is taken than belongs to it, and one byte by which that is noticed.
        let (found, bytes) = take(file, from.take(left.saturating_add(1)))?;
        if found != sha256 {
            return Err(damaged(&format!("{file} does not have its checksum")));
        }
        left = left.checked_sub(bytes).ok_or_else(|| damaged("it is longer than its manifest says"))?;
        count += 1;
    }
    if (left, count) == (0, backup.rows) { Ok(()) } else { Err(damaged("it is shorter than its manifest says")) }
}

/// Opens what is a file, and no link to one somewhere else.
fn open_regular_file(path: &Path) -> io::Result<File> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    File::open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leads_out_of_the_folder() {
        for ours in ["4e/t1-cart-4e00.json", "00/_-fence-00.json.zst", "ab/x-y-ab.json.damaged", "ab/x.json.damaged-2"]
        {
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
