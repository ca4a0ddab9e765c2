//! Resolves `[store]`, and opens it.

use std::{fs, io, path::PathBuf, sync::Arc, time::Duration};

use toolhub::{
    Sqlite,
    backend::Memory,
    sqlite::{BackupOptions, OpenError, Options},
};

use super::{
    super::{raw, tree::Path},
    Diagnostics,
};

/// Smallest `max_size`: an empty database file needs a part of it.
const MIN_SIZE: u64 = 1 << 20;

/// Where records are stored, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) backend: Backend,
    pub(crate) call_retention: Duration,
    pub(crate) event_retention: Duration,
    pub(crate) audit_retention: Duration,
    /// `None`: never removed.
    pub(crate) idle_threads: Option<Duration>,
}

/// Storage backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory { max_size: u64 },
    Sqlite { path: PathBuf, max_size: Option<u64>, backup: Option<BackupSchedule> },
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
}

/// Why the store cannot be opened. The message names the file and the fix.
#[derive(Debug)]
pub(crate) enum OpenStoreError {
    Folder(PathBuf, io::Error),
    Open(OpenError),
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
        }
    }
}

impl std::error::Error for OpenStoreError {}

impl Store {
    /// The folder of backups, scheduled or on request.
    pub(crate) fn backup_folder(&self) -> PathBuf {
        match &self.backend {
            Backend::Memory { .. } => PathBuf::new(),
            Backend::Sqlite { backup: Some(backup), .. } => backup.folder.clone(),
            Backend::Sqlite { path, .. } => path.with_file_name("backups"),
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

pub(super) fn resolve(raw: &raw::Store, diagnostics: &mut Diagnostics<'_>) -> Store {
    let at = |key| Path::of(["store", key]);
    if raw.max_size.is_some_and(|size| size.0 < MIN_SIZE) {
        let help = "give the store room for more records, e.g. \"256MiB\"";
        diagnostics.report(&at("max_size"), "`store.max_size` must be at least 1MiB", help);
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
        event_retention: raw.retention.events.0,
        audit_retention: raw.retention.audit.0,
        idle_threads: raw.retention.idle_threads.0,
    }
}
