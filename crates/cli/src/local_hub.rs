//! The hub of this folder, as its config describes it.
//!
//! In: the flags. Out: the URL of its server, its config file and its store; or every problem of the config.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    config::{self, AuthMode, Backend, LoadOptions, LoadedConfig},
    failure::Failure,
    global::GlobalFlags,
};

/// The config of this folder's hub.
#[derive(Debug)]
pub(crate) struct LocalHub {
    /// The options it was loaded with.
    pub(crate) options: LoadOptions,
    /// The loaded config.
    pub(crate) loaded: Arc<LoadedConfig>,
}

impl LocalHub {
    /// Loads the config that the flags select.
    ///
    /// # Errors
    /// Every problem of the config.
    pub(crate) fn find(global: &GlobalFlags) -> Result<Self, Failure> {
        Self::load(global.load_options()?)
    }

    /// Loads the config.
    ///
    /// # Errors
    /// Every problem of the config.
    pub(crate) fn load(options: LoadOptions) -> Result<Self, Failure> {
        let loaded = config::load(&options).map_err(|problems| Failure::from_config_problems(&problems))?;
        Ok(Self { options, loaded: Arc::new(loaded) })
    }

    /// The config file with the highest precedence, if there is one.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.loaded.files.last().map(PathBuf::as_path)
    }

    /// The path of the store's database; `None` for a store in memory.
    pub(crate) fn store_path(&self) -> Option<&Path> {
        match &self.loaded.config.store.backend {
            Backend::Memory => None,
            Backend::Sqlite { path, .. } => Some(path),
        }
    }

    /// Whether its server requires API keys.
    pub(crate) fn requires_keys(&self) -> bool {
        self.loaded.config.auth.mode == AuthMode::Keys
    }

    /// The URL of its server for a client.
    pub(crate) fn url(&self) -> String {
        let server = &self.loaded.config.server;
        // A server on an unspecified address is reached over loopback.
        match server.host {
            host if host.is_unspecified() => format!("http://127.0.0.1:{}", server.port),
            std::net::IpAddr::V6(host) => format!("http://[{host}]:{}", server.port),
            std::net::IpAddr::V4(host) => format!("http://{host}:{}", server.port),
        }
    }
}
