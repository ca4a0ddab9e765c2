//! Opens the store that a state configuration describes.
//!
//! In: the state manager and business state configs. Out: a backend, composed of the stores and decorators of this crate, and
//! the handle that makes backups of it (`backups`).

mod backups;

use std::{fs, io, path::PathBuf, sync::Arc};

use toolhub_storage::backend::{Backend, Memory, StoreError};
use toolhub_types::{
    state_config::{BusinessStateConfig, ManagerType, PersistenceFormat, StateManagerConfig},
    store_role::StoreRole,
};

pub use backups::{RestoreStoreError, StateBackups, restore_store};

use crate::{Compressed, Files, Sqlite, WriteBehind, backup::BackupOptions, files, sqlite, write_behind};

/// The database in the folder of a state manager.
const DATABASE_FILE: &str = "state.db";
/// The backups in that folder.
const BACKUP_FOLDER: &str = "backups";

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenStoreError {
    /// Its folder cannot be created.
    #[error(
        "cannot create the store folder {}: {error}; check `persistence_path` and its permissions",
        path.display()
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
    /// The SQLite store cannot be opened.
    #[error(transparent)]
    Sqlite(#[from] sqlite::OpenError),
    /// The file store cannot be opened.
    #[error(transparent)]
    Files(#[from] files::OpenError),
    /// Write-behind cannot read or write its shutdown record in the store.
    #[error("write-behind cannot start: {0}")]
    WriteBehind(#[from] StoreError),
    /// The Redis store cannot be opened.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Redis(#[from] crate::redis::OpenError),
    /// The address of the Redis server is missing or wrong.
    #[error("`redis_url` of `manager_type = distributed`: {0}")]
    RedisUrl(String),
}

/// Opens the store that these configs describe: `persistence_path`, `persistence_format`, `compression` and
/// `state_compression`, `sync_on_change` and `sync_interval`, `backup_enabled`, `backup_interval` and `backup_retention`.
/// With `sqlite` the records are in `state.db` in the folder, with `json` in the folder itself; backups in `backups` there. Or
/// `redis_url`, `redis_prefix` and `redis_db`, whose URL may contain user and password.
///
/// ```
/// use toolhub_types::state_config::{BusinessStateConfig, ManagerType, StateManagerConfig};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = std::env::temp_dir().join(format!("toolhub-doc-managers-{}", std::process::id()));
/// let states = StateManagerConfig {
///     manager_type: Some(ManagerType::Persistent),
///     persistence_path: folder.clone(),
///     ..StateManagerConfig::default()
/// };
/// let store = toolhub_store::open_store(&states, &BusinessStateConfig::default())?;
/// assert!(folder.join("state.db").is_file());
/// # drop(store); std::fs::remove_dir_all(folder)?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// When the folder cannot be created, the store cannot be opened, or there is no store of this type.
pub fn open_store(
    manager: &StateManagerConfig,
    business: &BusinessStateConfig,
) -> Result<Arc<dyn Backend>, OpenStoreError> {
    open_store_with_backups(manager, business).map(|(store, _)| store)
}

/// As [`open_store`], with the handle that makes backups of the store on demand; `None` for a store in memory.
///
/// # Errors
/// As [`open_store`].
pub fn open_store_with_backups(
    manager: &StateManagerConfig,
    business: &BusinessStateConfig,
) -> Result<(Arc<dyn Backend>, Option<StateBackups>), OpenStoreError> {
    match manager.manager_type {
        Some(ManagerType::Distributed) => return Ok((open_redis(manager)?, None)),
        Some(ManagerType::Memory | ManagerType::Session) => return Ok((Arc::new(Memory::new()), None)),
        Some(ManagerType::Persistent) | None => {}
    }
    let folder = &manager.persistence_path;
    fs::create_dir_all(folder).map_err(|error| OpenStoreError::Folder { path: folder.clone(), error })?;
    let compression = manager.compression || business.state_compression;
    let backups = business.backup_enabled.then(|| BackupOptions {
        interval: business.backup_interval,
        retention: business.backup_retention,
        ..BackupOptions::new(folder.join(BACKUP_FOLDER))
    });
    let mut on_demand = StateBackups::new(folder.join(BACKUP_FOLDER));
    let store: Arc<dyn Backend> = match manager.persistence_format {
        PersistenceFormat::Sqlite => {
            let options = sqlite::Options::default().role(StoreRole::State);
            let options = backups.into_iter().fold(options, sqlite::Options::backups);
            let store = Arc::new(Sqlite::open(folder.join(DATABASE_FILE), options)?);
            on_demand.set_sqlite(&store);
            if compression { Arc::new(Compressed(store)) } else { store }
        }
        PersistenceFormat::Json => {
            let store = Arc::new(Files::open(folder, files::Options { compression, backups })?);
            on_demand.set_files(&store);
            store
        }
    };
    if business.sync_on_change {
        return Ok((store, Some(on_demand)));
    }
    let buffered = open_write_behind(store, business)?;
    on_demand.set_write_behind(&buffered);
    Ok((buffered, Some(on_demand)))
}

/// Opens the store of `redis_url`, `redis_prefix` and `redis_db`.
#[cfg(feature = "redis")]
fn open_redis(manager: &StateManagerConfig) -> Result<Arc<dyn Backend>, OpenStoreError> {
    use crate::redis::{Address, Options, SettingNames};

    let url = manager.redis_url.as_deref().ok_or_else(|| OpenStoreError::RedisUrl("it is missing".into()))?;
    let address = Address::parse(url).map_err(|error| OpenStoreError::RedisUrl(error.to_string()))?;
    let names = SettingNames { url: "redis_url", database: "redis_db", key_prefix: "redis_prefix" };
    let options = Options::new(address.database(manager.redis_db)).prefix(&manager.redis_prefix).setting_names(names);
    Ok(Arc::new(crate::Redis::open(options)?))
}

#[cfg(not(feature = "redis"))]
fn open_redis(_: &StateManagerConfig) -> Result<Arc<dyn Backend>, OpenStoreError> {
    Err(OpenStoreError::RedisUrl("this program was built without the feature `redis`".into()))
}

/// Opens it on a temporary thread with its own runtime: callers that build a hub or register a tool may have no runtime.
fn open_write_behind(
    store: Arc<dyn Backend>,
    business: &BusinessStateConfig,
) -> Result<Arc<WriteBehind>, OpenStoreError> {
    let options = write_behind::Options { flush_interval: business.sync_interval, ..write_behind::Options::default() };
    let opened = std::thread::scope(|scope| {
        let open = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let runtime = runtime.map_err(|error| StoreError::Unavailable(error.to_string()))?;
            runtime.block_on(WriteBehind::open(store, options))
        };
        scope
            .spawn(open)
            .join()
            .unwrap_or_else(|_| Err(StoreError::Unknown("opening the write-behind store panicked".into())))
    });
    Ok(Arc::new(opened?))
}
