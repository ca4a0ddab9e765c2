//! Tests that need the internals of the config: generated configs, layers, changes, and the resulting hub.

mod agreement;
mod changes;
mod hubs;
mod layers;
mod old_registries;

use std::ops::Deref;

use toolhub_testkit::TempFolder;

use super::{Config, LoadOptions, LoadedConfig, Problems, load};

/// A temporary folder with a config in it.
#[derive(Default)]
pub(super) struct ConfigFolder(TempFolder);

impl ConfigFolder {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Load options for this folder, with only these variables.
    pub(super) fn load_options(&self, variables: &[(&str, &str)]) -> LoadOptions {
        let home = self.0.join("home").display().to_string();
        let all = variables.iter().copied().chain([("HOME", home.as_str())]);
        let environment = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        LoadOptions { folder: self.path().to_owned(), environment, ..LoadOptions::default() }
    }
}

impl Deref for ConfigFolder {
    type Target = TempFolder;

    fn deref(&self) -> &TempFolder {
        &self.0
    }
}

/// Loads the config in a text.
pub(super) fn load_config(text: &str) -> Config {
    load_text(text).map(|loaded| loaded.config).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(super) fn load_text(text: &str) -> Result<LoadedConfig, Problems> {
    let folder = ConfigFolder::new();
    folder.write("toolhub.toml", text);
    load(&folder.load_options(&[]))
}
