//! The hub of this folder, as its config describes it.
//!
//! In: the flags. Out: where its server listens, which file says so, and where its store is; or everything that is wrong
//! with the config.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    config::{self, Asked, Backend, Loaded, Mode},
    failure::Failure,
    global::Global,
};

/// The hub of this folder.
#[derive(Debug)]
pub(crate) struct Local {
    /// How the config was asked for.
    pub(crate) asked: Asked,
    /// The config and how it came to be.
    pub(crate) loaded: Arc<Loaded>,
}

impl Local {
    /// Reads the config.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn find(global: &Global) -> Result<Self, Failure> {
        Self::load(global.asked()?)
    }

    /// Reads the config that is asked for.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn load(asked: Asked) -> Result<Self, Failure> {
        let loaded = config::load(&asked).map_err(|problems| Failure::of_config(&problems))?;
        Ok(Self { asked, loaded: Arc::new(loaded) })
    }

    /// The config file that weighs most; none where there is none.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.loaded.files.last().map(PathBuf::as_path)
    }

    /// The file of the store; none where records are kept in memory.
    pub(crate) fn store(&self) -> Option<&Path> {
        match &self.loaded.config.store.backend {
            Backend::Memory => None,
            Backend::Sqlite { path, .. } => Some(path),
        }
    }

    /// Whether its server asks for keys.
    pub(crate) fn wants_keys(&self) -> bool {
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
