//! A temporary folder that is removed on drop.

use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A folder of one test. Dereferences to its path; removed on drop.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// In the system's temporary folder, usually on a disk.
    #[must_use]
    pub fn new() -> Self {
        Self::under(&std::env::temp_dir())
    }

    /// On a tmpfs if there is one: for tests that open hundreds of files and do not test the disk.
    #[must_use]
    pub fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::under(memory) } else { Self::new() }
    }

    fn under(parent: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("toolhub-test-{}-{number}", std::process::id()));
        // A killed process may have left its folder behind, and process ids are reused.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary folder can be created");
        Self(path)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Its path as text.
    #[must_use]
    pub fn text(&self) -> String {
        self.0.to_str().expect("the temporary folder has a UTF-8 path").to_owned()
    }

    /// Writes a file, and creates its parent folders.
    pub fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("folders can be created");
        fs::write(path, text).expect("a file can be written");
        self
    }

    /// Reads a file.
    #[must_use]
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect("the file exists")
    }
}

impl Default for TempFolder {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for TempFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
