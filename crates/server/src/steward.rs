//! What only the program around the server can do: its config, its backups.

use std::{error::Error, path::PathBuf};

use futures_core::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Why a steward could not do it, in words for whoever asked. No secret is in them.
pub type StewardError = Box<dyn Error + Send + Sync>;

/// The program around the server, as far as the server asks it for something.
pub trait Steward: Send + Sync + 'static {
    /// The config as it holds now; secrets are masked.
    fn config(&self) -> Value;

    /// Reads the config again and applies what changed; a bad one changes nothing.
    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, StewardError>>;

    /// Makes a backup of the store.
    fn backup(&self) -> BoxFuture<'_, Result<Backup, StewardError>>;
}

/// What a reload did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// Tools that are new.
    pub added: Vec<String>,
    /// Tools that are others now.
    pub replaced: Vec<String>,
    /// Tools that are gone.
    pub removed: Vec<String>,
    /// Settings that changed and hold only after a restart.
    pub needs_restart: Vec<String>,
}

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// Where it is.
    pub path: PathBuf,
    /// How large it is.
    pub bytes: u64,
    /// Of its content.
    pub sha256: String,
}
