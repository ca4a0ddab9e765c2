//! File system abstraction of the file store, and the real file system.
//!
//! In: paths and bytes. Out: success or the I/O error. Tests inject a disk that is full, fails or loses power; all file
//! operations of the store go through this trait, so tests can simulate failures of each of them.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

/// The file system operations that the file store uses.
///
/// An implementation promises the semantics of a local file system: a rename is atomic for readers, synced content survives a
/// power failure, and so do the names in a folder once the folder was synced.
pub trait Disk: Send + Sync + 'static {
    /// Reads at most `limit` bytes from the beginning of a file.
    ///
    /// # Errors
    /// The I/O error.
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>>;

    /// The names in a folder, in any order.
    ///
    /// # Errors
    /// The I/O error.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Creates or overwrites a file; with `sync`, the content is durable when this returns.
    ///
    /// # Errors
    /// The I/O error; the file may then exist with any content.
    fn write(&self, path: &Path, content: &[u8], sync: bool) -> io::Result<()>;

    /// Renames a file, replacing the destination.
    ///
    /// # Errors
    /// The I/O error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Creates a hard link, or a copy if the file system has no hard links. Does not sync.
    ///
    /// # Errors
    /// The I/O error.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write(to, &self.read(from, usize::MAX)?, false)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The I/O error; [`NotFound`](io::ErrorKind::NotFound) if the file does not exist.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Creates a folder unless it exists.
    ///
    /// # Errors
    /// The I/O error.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Syncs a folder, so that the names in it are durable.
    ///
    /// # Errors
    /// The I/O error.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let file = File::open(path)?;
        let expected = file.metadata()?.len().min(limit as u64);
        let mut content = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
        file.take(limit as u64).read_to_end(&mut content)?;
        Ok(content)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            // The store creates only UTF-8 names; others are not its files.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn write(&self, path: &Path, content: &[u8], sync: bool) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(content)?;
        if sync { file.sync_all() } else { Ok(()) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        // Some file systems have no hard links, and all limit their number.
        fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// Treats removing a missing file as success.
pub(super) fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}
