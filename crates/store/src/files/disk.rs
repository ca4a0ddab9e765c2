//! What the store asks of a file system, and the real one.
//!
//! In: paths and bytes. Out: that it is done, or the system's error. A test hands in a disk that is full, that fails or
//! that loses power; everything the store does to files goes through here, so nothing is out of such a test's reach.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

/// A file system as the store of files uses it.
///
/// An implementation promises what a local file system does: a rename is whole or not at all for whoever looks, and what
/// was synced is there after a loss of power. Names in a folder are there after one once the folder was synced.
pub trait Disk: Send + Sync + 'static {
    /// The first bytes of a file, at most so many.
    ///
    /// # Errors
    /// What the system says.
    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>>;

    /// The names in a folder, in any order.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Makes a file of this content, or replaces one; with `sync` it returns when the content has reached the disk.
    ///
    /// # Errors
    /// What the system says; then the file may be there, with any content.
    fn write(&self, path: &Path, content: &[u8], sync: bool) -> io::Result<()>;

    /// Gives a file another name, in place of whatever had it.
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, or makes a copy of it where there is no such thing. Nothing is synced.
    ///
    /// # Errors
    /// What the system says.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.write(to, &self.read(from, usize::MAX)?, false)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says; [`NotFound`](io::ErrorKind::NotFound) where there is none.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes a folder, unless it is there.
    ///
    /// # Errors
    /// What the system says.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Returns when all names in a folder have reached the disk.
    ///
    /// # Errors
    /// What the system says.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn read(&self, path: &Path, most: usize) -> io::Result<Vec<u8>> {
        let file = File::open(path)?;
        let expected = file.metadata()?.len().min(most as u64);
        let mut content = Vec::with_capacity(usize::try_from(expected).unwrap_or(0));
        file.take(most as u64).read_to_end(&mut content)?;
        Ok(content)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            // A name that is no text was not given by us.
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
        // Not every file system knows a second name, and none knows any number of them.
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

/// A file that is to go may be gone already.
pub(super) fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}
