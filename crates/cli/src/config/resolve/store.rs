//! What holds for `[store]`, and opening it.

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

/// Where records are kept, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) backend: Backend,
    pub(crate) call_retention: Duration,
    pub(crate) event_retention: Duration,
    pub(crate) audit_retention: Duration,
    /// For ever where absent.
    pub(crate) idle_threads: Option<Duration>,
}

/// What keeps records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Sqlite { path: PathBuf, max_size: Option<u64>, backup: Option<BackupSchedule> },
}

/// Copies that the store makes of itself.
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

/// Why the store cannot be opened. The file and what to do are in the text.
#[derive(Debug)]
pub(crate) enum OpenStoreError {
    Folder(PathBuf, io::Error),
    Open(OpenError),
}

impl std::fmt::Display for OpenStoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder(path, error) => write!(f, "the folder {} cannot be made: {error}", path.display()),
            Self::Open(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OpenStoreError {}

impl Store {
    /// Where backups go, whether they are made by the clock or on request.
    pub(crate) fn backup_folder(&self) -> PathBuf {
        match &self.backend {
            Backend::Memory => PathBuf::new(),
            Backend::Sqlite { backup: Some(backup), .. } => backup.folder.clone(),
            Backend::Sqlite { path, .. } => path.with_file_name("backups"),
        }
    }

    /// Opens it; its folder is made where it is missing.
    ///
    /// # Errors
    /// When the folder cannot be made, or the file cannot be opened: another process may have it.
    pub(crate) fn open(&self) -> Result<StoreHandle, OpenStoreError> {
        let Backend::Sqlite { path, max_size, backup } = &self.backend else {
            return Ok(StoreHandle::Memory(Arc::new(Memory::new())));
        };
        if let Some(folder) = path.parent() {
            create_private_dir(folder).map_err(|error| OpenStoreError::Folder(folder.to_owned(), error))?;
        }
        let mut options = Options::default();
        if let Some(bytes) = max_size {
            options = options.max_bytes(*bytes);
        }
        if let Some(BackupSchedule { folder, interval: every, retention: keep_for }) = backup {
            options = options.backups(BackupOptions { folder: folder.clone(), interval: *every, retention: *keep_for });
        }
        Ok(StoreHandle::Sqlite(Arc::new(Sqlite::open(path, options).map_err(OpenStoreError::Open)?)))
    }
}

/// Makes a folder that nobody else on this machine can look into; one that is there stays as it is.
fn create_private_dir(folder: &std::path::Path) -> io::Result<()> {
    let mut made = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut made, 0o700);
    made.recursive(true).create(folder)
}

pub(super) fn resolve(said: &raw::Store, desk: &mut Diagnostics<'_>) -> Store {
    let at = |key| Path::of(["store", key]);
    let backend = match said.backend {
        raw::Backend::Memory => {
            let idle = [
                (said.path != raw::Store::default().path, "path"),
                (said.max_size.is_some(), "max_size"),
                (said.backup.enabled, "backup"),
            ];
            for (asked, key) in idle {
                if asked {
                    let message = format!("`store.{key}` does nothing with backend = \"memory\"");
                    desk.report(&at(key), message, "remove it, or use backend = \"sqlite\"");
                }
            }
            Backend::Memory
        }
        raw::Backend::Sqlite => {
            if said.path.is_empty() || said.path.ends_with('/') {
                let help = "name a file, such as \".toolhub/toolhub.db\"";
                desk.report(&at("path"), format!("{:?} names no file", said.path), help);
            }
            let path = desk.resolve_path(&at("path"), &said.path);
            let folder =
                said.backup.folder.as_deref().map(|folder| desk.resolve_path(&at("backup").key("folder"), folder));
            let folder = folder.unwrap_or_else(|| path.with_file_name("backups"));
            let backup =
                BackupSchedule { folder, interval: said.backup.interval.0, retention: said.backup.retention.0 };
            Backend::Sqlite {
                path,
                max_size: said.max_size.map(|size| size.0),
                backup: said.backup.enabled.then_some(backup),
            }
        }
    };
    Store {
        backend,
        call_retention: said.retention.calls.0,
        event_retention: said.retention.events.0,
        audit_retention: said.retention.audit.0,
        idle_threads: said.retention.idle_threads.0,
    }
}
