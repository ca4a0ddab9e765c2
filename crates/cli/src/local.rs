//! What the config of this folder says, as far as commands need it to find the hub.

use std::{path::PathBuf, sync::Arc};

use crate::{
    config::{self, Asked, Backend, Loaded, Mode},
    failure::Failure,
    global::Global,
};

/// The hub of this folder.
#[derive(Debug, Clone)]
pub(crate) struct Local {
    /// How the config was asked for.
    pub(crate) asked: Asked,
    /// What it says.
    pub(crate) loaded: Arc<Loaded>,
    /// Where a server of this config listens.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whether it asks for keys.
    pub(crate) keys: bool,
    /// The config file; none where there is none.
    pub(crate) file: Option<PathBuf>,
    /// The file of the store; none where records are kept in memory.
    pub(crate) store: Option<PathBuf>,
}

impl Local {
    /// Reads the config.
    ///
    /// # Errors
    /// When it is bad.
    pub(crate) fn find(global: &Global) -> Result<Self, Failure> {
        Self::load(global.asked()?)
    }

    /// Reads the config that is asked for.
    ///
    /// # Errors
    /// When it is bad.
    pub(crate) fn load(asked: Asked) -> Result<Self, Failure> {
        let loaded = config::load(&asked).map_err(|problems| Failure::of_config(&problems))?;
        let config = &loaded.config;
        let users = asked.user_file();
        Ok(Self {
            host: config.server.host.to_string(),
            port: config.server.port,
            keys: config.auth.mode == Mode::Keys,
            file: loaded.files.last().filter(|file| Some(*file) != users.as_ref()).cloned(),
            store: match &config.store.backend {
                Backend::Memory => None,
                Backend::Sqlite { path, .. } => Some(path.clone()),
            },
            loaded: Arc::new(loaded),
            asked,
        })
    }

    /// The address of its server as a client writes it.
    pub(crate) fn url(&self) -> String {
        // A server that listens everywhere is reached at this machine's own address.
        let host = match self.host.as_str() {
            "0.0.0.0" | "::" | "[::]" | "" => "127.0.0.1".to_owned(),
            six if six.contains(':') && !six.starts_with('[') => format!("[{six}]"),
            host => host.to_owned(),
        };
        format!("http://{host}:{}", self.port)
    }
}
