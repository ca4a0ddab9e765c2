//! File operations of backups and restores.
//!
//! In: paths. Out: success or the I/O error.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use toolhub_types::digest;

/// The path with a suffix appended to its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The path without symlinks and dots, so that two names of one file share one lock. The file itself need not exist.
pub(crate) fn canonical_path(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or(error)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            Ok(fs::canonicalize(folder.unwrap_or(Path::new(".")))?.join(name))
        }
        found => found,
    }
}

/// The first unused path of `path` + `suffix`, then `path` + `suffix-2` and so on. A path counts as unused only if it is also
/// unused with each of `more_suffixes`.
pub(crate) fn unused_path(path: &Path, suffix: &str, more_suffixes: &[&str]) -> io::Result<PathBuf> {
    let names = std::iter::once(with_suffix(path, suffix))
        .chain((2..).map(|number| with_suffix(path, &format!("{suffix}-{number}"))));
    let is_unused =
        |name: &PathBuf| more_suffixes.iter().all(|more| fs::symlink_metadata(with_suffix(name, more)).is_err());
    names.into_iter().find(is_unused).ok_or_else(|| io::ErrorKind::AlreadyExists.into())
}

/// Copies all bytes; returns their SHA-256 in hex and their number.
pub(crate) fn copy_hashed(mut from: impl Read, mut to: impl Write) -> io::Result<(String, u64)> {
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 18]);
    loop {
        let read = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok((digest::hex(&hash.finalize()), bytes));
        }
        hash.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        bytes += read as u64;
    }
}

/// Hard-links a file, or copies it if the file system has no hard links. The content is durable when this returns.
pub(crate) fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            fs::copy(from, to)?;
            File::open(to)?.sync_all()
        }
        linked => linked,
    }
}

/// Syncs a folder, so that renames and new files in it are durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes a file or a folder with its contents; succeeds if it does not exist.
pub(crate) fn remove_if_exists(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// A temporary file or folder, removed on drop unless it was renamed.
pub(crate) struct TempPath {
    pub(crate) path: PathBuf,
    /// Suffixes of related files that are removed too.
    suffixes: &'static [&'static str],
}

impl TempPath {
    /// Reserves the path and removes leftovers of an earlier attempt.
    pub(crate) fn new(path: PathBuf, suffixes: &'static [&'static str]) -> io::Result<Self> {
        suffixes.iter().try_for_each(|suffix| remove_if_exists(&with_suffix(&path, suffix)))?;
        Ok(Self { path, suffixes })
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        self.suffixes.iter().for_each(|suffix| drop(remove_if_exists(&with_suffix(&self.path, suffix))));
    }
}
