//! What the config of this folder says, as far as commands need it to find the hub.

use std::path::PathBuf;

use crate::{failure::Failure, global::Global};

/// The hub of this folder.
#[derive(Debug, Clone)]
pub(crate) struct Local {
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
        let _ = global;
        Ok(Self {
            host: "127.0.0.1".into(),
            port: 8665,
            keys: false,
            file: None,
            store: Some(PathBuf::from(".toolhub/toolhub.db")),
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
