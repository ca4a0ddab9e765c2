//! A folder that goes away with whoever made it.

use std::{
    io,
    path::{Path, PathBuf},
};

/// The folder.
#[derive(Debug)]
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    /// A new folder of this process.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("toolhub-demo-{}", std::process::id()));
        // A process that was killed may have left one behind, and a later process may have its number.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
