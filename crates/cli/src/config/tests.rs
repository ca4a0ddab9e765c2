//! What can only be tried from inside: many configs at once, and what is made of them.

mod agreement;
mod changes;
mod hubs;
mod layers;

use std::ops::Deref;

use toolhub_testkit::TempFolder;

use super::{Asked, Config, Loaded, Problems, load};

/// A temporary folder with a config in it.
#[derive(Default)]
pub(super) struct Folder(TempFolder);

impl Folder {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// What is asked for in this folder, with these variables alone.
    pub(super) fn asked(&self, variables: &[(&str, &str)]) -> Asked {
        let home = self.0.join("home").display().to_string();
        let all = variables.iter().copied().chain([("HOME", home.as_str())]);
        let environment = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Asked { folder: self.path().to_owned(), environment, ..Asked::default() }
    }
}

impl Deref for Folder {
    type Target = TempFolder;

    fn deref(&self) -> &TempFolder {
        &self.0
    }
}

/// The config of a text.
pub(super) fn config(text: &str) -> Config {
    loaded(text).map(|loaded| loaded.config).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(super) fn loaded(text: &str) -> Result<Loaded, Problems> {
    let folder = Folder::new();
    folder.write("toolhub.toml", text);
    load(&folder.asked(&[]))
}
