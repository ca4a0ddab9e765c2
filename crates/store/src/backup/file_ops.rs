//! What backups and restores do with files and folders.
//!
//! In: paths. Out: that it is done, or what the system says.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

/// A path with something behind its name.
pub(crate) fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The path without links and dots, so that two names of one file have one lock.
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

/// The name with this ending that is free, also with each of `endings` behind it: the first, the second, and so on.
pub(crate) fn unused_path(path: &Path, ending: &str, endings: &[&str]) -> io::Result<PathBuf> {
    let names = std::iter::once(with_suffix(path, ending))
        .chain((2..).map(|number| with_suffix(path, &format!("{ending}-{number}"))));
    let is_free = |name: &PathBuf| endings.iter().all(|more| fs::symlink_metadata(with_suffix(name, more)).is_err());
    names.into_iter().find(is_free).ok_or_else(|| io::ErrorKind::AlreadyExists.into())
}

/// Copies bytes to their end; answers their SHA-256, in hex, and how many there are.
pub(crate) fn copy_hashed(mut from: impl Read, mut to: impl Write) -> io::Result<(String, u64)> {
    let (mut hash, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; 1 << 18]);
    loop {
        let read = match from.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            let hex = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            return Ok((hex, bytes));
        }
        hash.update(&piece[..read]);
        to.write_all(&piece[..read])?;
        bytes += read as u64;
    }
}

/// A second name for a file where the file system has such a thing, a copy elsewhere. On the disk when this returns.
pub(crate) fn link_or_copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            fs::copy(from, to)?;
            File::open(to)?.sync_all()
        }
        linked => linked,
    }
}

/// Returns when all names in a folder have reached the disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes a file, or a folder and all in it, that may not be there.
pub(crate) fn remove_if_exists(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Something that is removed again unless it got another name.
pub(crate) struct TempPath {
    pub(crate) path: PathBuf,
    /// What may lie beside it: it goes too.
    suffixes: &'static [&'static str],
}

impl TempPath {
    /// Its place, with nothing left of an earlier one.
    pub(crate) fn new(path: PathBuf, endings: &'static [&'static str]) -> io::Result<Self> {
        endings.iter().try_for_each(|ending| remove_if_exists(&with_suffix(&path, ending)))?;
        Ok(Self { path, suffixes: endings })
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        self.suffixes.iter().for_each(|ending| drop(remove_if_exists(&with_suffix(&self.path, ending))));
    }
}
