//! The hub of this folder, as its config describes it.
//!
//! In: the flags. Out: where its server listens, which file says so, and where its store is; or everything that is wrong
//! with the config.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    config::{self, Backend, LoadOptions, LoadedConfig, Mode},
    failure::Failure,
    global::GlobalFlags,
};

/// The hub of this folder.
#[derive(Debug)]
pub(crate) struct LocalHub {
    /// How the config was asked for.
    pub(crate) options: LoadOptions,
    /// The config and how it came to be.
    pub(crate) loaded: Arc<LoadedConfig>,
}

impl LocalHub {
    /// Reads the config.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn find(global: &GlobalFlags) -> Result<Self, Failure> {
        Self::load(global.load_options()?)
    }

    /// Reads the config that is asked for.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn load(asked: LoadOptions) -> Result<Self, Failure> {
        let loaded = config::load(&asked).map_err(|problems| Failure::from_config_problems(&problems))?;
        Ok(Self { options: asked, loaded: Arc::new(loaded) })
    }

    /// The config file that weighs most; none where there is none.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.loaded.files.last().map(PathBuf::as_path)
    }

    /// The file of the store; none where records are kept in memory.
    pub(crate) fn store_path(&self) -> Option<&Path> {
        match &self.loaded.config.store.backend {
            Backend::Memory => None,
            Backend::Sqlite { path, .. } => Some(path),
        }
    }

    /// Whether its server asks for keys.
    pub(crate) fn requires_keys(&self) -> bool {
        self.loaded.config.auth.mode == Mode::Keys
    }

    /// The address of its server as a client writes it.
    pub(crate) fn url(&self) -> String {
        let server = &self.loaded.config.server;
        // A server that listens everywhere is reached at this machine's own address.
        match server.host {
            host if host.is_unspecified() => format!("http://127.0.0.1:{}", server.port),
            std::net::IpAddr::V6(host) => format!("http://[{host}]:{}", server.port),
            std::net::IpAddr::V4(host) => format!("http://{host}:{}", server.port),
        }
    }
}
