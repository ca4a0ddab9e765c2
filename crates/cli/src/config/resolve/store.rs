//! Resolves `[store]`, and opens it.

use std::{fs, io, path::PathBuf, sync::Arc, time::Duration};

use toolhub::{
    HubBuilder, ReadOnlyCalls, Redis, Sqlite,
    backend::Memory,
    redis,
    sqlite::{BackupOptions, OpenError, Options},
};

use super::{
    super::{raw, tree::Path},
    Diagnostics,
    redis_server::{RedisServer, resolve_address, resolve_server},
};

/// Smallest `max_size`: an empty database file needs a part of it.
const MIN_SIZE: u64 = 1 << 20;

/// Where records are stored, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) backend: Backend,
    pub(crate) call_retention: Duration,
    pub(crate) read_only_calls: ReadOnlyCalls,
    pub(crate) event_retention: Duration,
    pub(crate) audit_retention: Duration,
    /// How long another node may be silent.
    pub(crate) node_timeout: Duration,
    /// `None`: never removed.
    pub(crate) idle_threads: Option<Duration>,
}

/// Storage backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory { max_size: u64 },
    Sqlite { path: PathBuf, max_size: Option<u64>, backup: Option<BackupSchedule> },
    Redis(Box<RedisServer>),
}

/// Automatic backups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackupSchedule {
    pub(crate) folder: PathBuf,
    pub(crate) interval: Duration,
    pub(crate) retention: Duration,
}

/// An open store.
#[derive(Debug, Clone)]
pub(crate) enum StoreHandle {
    Memory(Arc<Memory>),
    Sqlite(Arc<Sqlite>),
    Redis(Arc<Redis>),
}

/// Why the store cannot be opened. The message names the file and the fix.
#[derive(Debug)]
pub(crate) enum OpenStoreError {
    Folder(PathBuf, io::Error),
    Open(OpenError),
    File(PathBuf, io::Error),
    Redis(redis::OpenError),
}

impl std::fmt::Display for OpenStoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder(path, error) => write!(
                f,
                "cannot create the store folder {}: {error}; check `store.path` and its permissions",
                path.display()
            ),
            Self::Open(error) => error.fmt(f),
            Self::File(path, error) => {
                write!(f, "cannot read {}: {error}; check the files of [store.redis]", path.display())
            }
            Self::Redis(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenStoreError {}

impl StoreHandle {
    /// The store, whatever its kind.
    pub(crate) fn backend(&self) -> Arc<dyn toolhub::backend::Backend> {
        match self {
            Self::Memory(store) => store.clone(),
            Self::Sqlite(store) => store.clone(),
            Self::Redis(store) => store.clone(),
        }
    }
}

impl Store {
    /// The folder of backups, scheduled or on request.
    pub(crate) fn backup_folder(&self) -> PathBuf {
        match &self.backend {
            Backend::Memory { .. } | Backend::Redis(_) => PathBuf::new(),
            Backend::Sqlite { backup: Some(backup), .. } => backup.folder.clone(),
            Backend::Sqlite { path, .. } => path.with_file_name("backups"),
        }
    }

    /// The folder of scheduled backups and their interval; `None` if none are made.
    pub(crate) fn scheduled_backups(&self) -> Option<(&std::path::Path, Duration)> {
        match &self.backend {
            Backend::Sqlite { backup: Some(backup), .. } => Some((&backup.folder, backup.interval)),
            _ => None,
        }
    }

    /// Opens the store; creates its folder if missing.
    ///
    /// # Errors
    /// When the folder cannot be created, or the file cannot be opened, e.g. because another process has it open.
    pub(crate) fn open(&self) -> Result<StoreHandle, OpenStoreError> {
        let (path, max_size, backup) = match &self.backend {
            Backend::Memory { max_size } => {
                return Ok(StoreHandle::Memory(Arc::new(Memory::with_max_bytes(*max_size))));
            }
            Backend::Redis(server) => return server.open().map(|store| StoreHandle::Redis(Arc::new(store))),
            Backend::Sqlite { path, max_size, backup } => (path, max_size, backup),
        };
        if let Some(folder) = path.parent() {
            create_private_dir(folder).map_err(|error| OpenStoreError::Folder(folder.to_owned(), error))?;
        }
        let mut options = Options::default();
        if let Some(bytes) = max_size {
            options = options.max_bytes(*bytes);
        }
        if let Some(BackupSchedule { folder, interval, retention }) = backup {
            let (folder, interval, retention) = (folder.clone(), *interval, *retention);
            options = options.backups(BackupOptions { folder, interval, retention });
        }
        Ok(StoreHandle::Sqlite(Arc::new(Sqlite::open(path, options).map_err(OpenStoreError::Open)?)))
    }
}

/// Creates a folder that only this user can access; an existing one is left as it is.
fn create_private_dir(folder: &std::path::Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Resolves the section. `state_is_distributed`: states are in Redis too, with the login of this section.
pub(super) fn resolve(raw: &raw::Store, state_is_distributed: bool, diagnostics: &mut Diagnostics<'_>) -> Store {
    let at = |key| Path::of(["store", key]);
    if raw.max_size.is_some_and(|size| size.0 < MIN_SIZE) {
        let help = "give the store room for more records, e.g. \"256MiB\"";
        diagnostics.report(&at("max_size"), "`store.max_size` must be at least 1MiB", help);
    }
    if raw.node_timeout.0 < HubBuilder::MIN_NODE_TIMEOUT {
        let message = format!("`store.node_timeout` must be at least {:?}", HubBuilder::MIN_NODE_TIMEOUT);
        diagnostics.report(&at("node_timeout"), message, "remove it for the default of \"15s\"");
    }
    if raw.backend != raw::Backend::Redis {
        let default = raw::Store::default();
        let unused = [
            (raw.url.is_some(), "url"),
            (raw.key_prefix != default.key_prefix, "key_prefix"),
            (raw.node_timeout != default.node_timeout, "node_timeout"),
            (raw.redis != default.redis && !state_is_distributed, "redis"),
        ];
        for (is_set, key) in unused {
            if is_set {
                let message = format!("`store.{key}` has an effect only with backend = \"redis\"");
                diagnostics.report(&at(key), message, "remove it, or set backend = \"redis\"");
            }
        }
    }
    let backend = match raw.backend {
        raw::Backend::Memory => {
            let unused = [(raw.path != raw::Store::default().path, "path"), (raw.backup.enabled, "backup")];
            for (is_set, key) in unused {
                if is_set {
                    let message = format!("`store.{key}` has no effect with backend = \"memory\"");
                    diagnostics.report(&at(key), message, "remove it, or use backend = \"sqlite\"");
                }
            }
            Backend::Memory { max_size: raw.max_size.map_or(Memory::DEFAULT_MAX_BYTES, |size| size.0) }
        }
        raw::Backend::Redis => Backend::Redis(Box::new(resolve_redis(raw, diagnostics))),
        raw::Backend::Sqlite => {
            if raw.path.is_empty() || raw.path.ends_with('/') {
                let help = "name a file, such as \".toolhub/toolhub.db\"";
                diagnostics.report(&at("path"), format!("{:?} is not a file path", raw.path), help);
            }
            let path = diagnostics.resolve_path(&at("path"), &raw.path);
            let folder = raw
                .backup
                .folder
                .as_deref()
                .map(|folder| diagnostics.resolve_path(&at("backup").key("folder"), folder));
            let folder = folder.unwrap_or_else(|| path.with_file_name("backups"));
            let backup = BackupSchedule { folder, interval: raw.backup.interval.0, retention: raw.backup.retention.0 };
            Backend::Sqlite {
                path,
                max_size: raw.max_size.map(|size| size.0),
                backup: raw.backup.enabled.then_some(backup),
            }
        }
    };
    Store {
        backend,
        call_retention: raw.retention.calls.0,
        read_only_calls: match raw.read_only_calls {
            raw::ReadOnlyCalls::All => ReadOnlyCalls::All,
            raw::ReadOnlyCalls::Failed => ReadOnlyCalls::Failed,
            raw::ReadOnlyCalls::None => ReadOnlyCalls::None,
        },
        event_retention: raw.retention.events.0,
        audit_retention: raw.retention.audit.0,
        node_timeout: raw.node_timeout.0,
        idle_threads: raw.retention.idle_threads.0,
    }
}

fn resolve_redis(raw: &raw::Store, diagnostics: &mut Diagnostics<'_>) -> RedisServer {
    let at = |key| Path::of(["store", key]);
    let unused = [
        (raw.path != raw::Store::default().path, "path"),
        (raw.max_size.is_some(), "max_size"),
        (raw.backup.enabled, "backup"),
    ];
    for (is_set, key) in unused {
        if is_set {
            let message = format!("`store.{key}` has no effect with backend = \"redis\"");
            diagnostics.report(&at(key), message, "remove it; size and backups of a Redis server are set there");
        }
    }
    if raw.key_prefix.is_empty() || raw.key_prefix.contains(['{', '}']) {
        let help = "use letters, digits and `-`, such as \"toolhub\"";
        diagnostics.report(&at("key_prefix"), "`store.key_prefix` must not be empty nor contain braces", help);
    }
    let address = match raw.url.as_deref() {
        Some(url) => resolve_address(url, "store", "url", diagnostics),
        None => {
            let help = "write it like \"redis://localhost:6379/0\"";
            diagnostics.report(&at("url"), "backend = \"redis\" needs `store.url`", help);
            redis::Address::default()
        }
    };
    resolve_server(address, raw.key_prefix.clone(), &raw.redis, diagnostics)
}
