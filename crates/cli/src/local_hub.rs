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

    /// Loads the config as far as it is valid, to find its server; `None` if that is not possible.
    ///
    /// # Errors
    /// When the working folder cannot be determined.
    pub(crate) fn find_partial(global: &GlobalFlags) -> Result<Option<Self>, Failure> {
        let options = global.load_options()?;
        let (loaded, _) = config::load_partially(&options);
        Ok(loaded.map(|loaded| Self { options, loaded: Arc::new(loaded) }))
    }

    /// Refuses to work without a config: nothing is created in a folder that may not be the right one. Tools set by flags or
    /// variables, and an existing store, count as a config.
    ///
    /// # Errors
    /// When there is no config.
    pub(crate) fn require_config(&self) -> Result<(), Failure> {
        let has_store = self.store_path().is_some_and(Path::exists);
        let config = &self.loaded.config;
        let has_tools = !config.tools.is_empty() || !config.mcp_servers.is_empty();
        if has_store || !self.loaded.files.is_empty() || has_tools {
            return Ok(());
        }
        let folder = self.options.folder.display();
        Err(Failure::new(
            "no_config",
            format!("there is no toolhub.toml in {folder} or above, and no server at {}", self.url()),
        )
        .help("toolhub init")
        .help("or name a config with --config FILE, or a server with --server URL"))
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

    /// The path of the store's database; `None` for a store in memory or in Redis.
    pub(crate) fn store_path(&self) -> Option<&Path> {
        match &self.loaded.config.store.backend {
            Backend::Memory { .. } | Backend::Redis(_) => None,
            Backend::Sqlite { path, .. } => Some(path),
        }
    }

    /// Whether its server requires API keys.
    pub(crate) fn requires_keys(&self) -> bool {
        self.loaded.config.auth.mode == AuthMode::Keys
    }

    /// Checks that all processes find the hub at the same address.
    ///
    /// # Errors
    /// When the port is chosen at each start.
    pub(crate) fn require_fixed_port(&self) -> Result<(), Failure> {
        if self.loaded.config.server.port != 0 {
            return Ok(());
        }
        let message = "`server.port = 0` is a different port for each process, so that they could not share a hub";
        Err(Failure::new("config_invalid", message).help("set a fixed `server.port`"))
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
