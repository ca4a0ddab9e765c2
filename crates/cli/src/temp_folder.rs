//! A temporary folder, removed on drop.

use std::{
    io,
    path::{Path, PathBuf},
};

/// The folder.
#[derive(Debug)]
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates the folder, named after this process.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("toolhub-demo-{}", std::process::id()));
        // A killed process may have left a folder behind, and process ids are reused.
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
