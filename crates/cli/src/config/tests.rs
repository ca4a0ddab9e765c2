//! What can only be tried from inside: many configs at once, and what is made of them.

mod agreement;
mod changes;
mod hubs;
mod layers;

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use super::{Asked, Config, Loaded, Problems, load};

/// A folder that goes away with the test.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        // Tests run beside each other, and some ask for a folder of the same name.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("toolhub-config-{}-{name}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn write(&self, name: &str, text: &str) -> &Self {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// What is asked for in this folder, with these variables alone.
    pub(super) fn asked(&self, variables: &[(&str, &str)]) -> Asked {
        let home = self.0.join("home").display().to_string();
        let all = variables.iter().copied().chain([("HOME", home.as_str())]);
        let environment = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Asked { folder: self.0.clone(), environment, ..Asked::default() }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The config of a text.
pub(super) fn config(name: &str, text: &str) -> Config {
    loaded(name, text).map(|loaded| loaded.config).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(super) fn loaded(name: &str, text: &str) -> Result<Loaded, Problems> {
    let folder = Folder::new(name);
    folder.write("toolhub.toml", text);
    load(&folder.asked(&[]))
}
