//! Resolves `[store]`, and opens it.

use std::{fs, io, path::PathBuf, sync::Arc, time::Duration};

use toolhub::{
    ReadOnlyCalls, Redis, Sqlite,
    backend::Memory,
    config::SecretText,
    redis,
    sqlite::{BackupOptions, OpenError, Options},
};

use super::{
    super::{raw, tree::Path},
    Diagnostics,
};

/// Smallest `max_size`: an empty database file needs a part of it.
const MIN_SIZE: u64 = 1 << 20;
/// Fewer characters could be guessed.
const MIN_SEAL_SECRET: usize = 16;

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

/// Where a Redis server is, and how to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RedisServer {
    pub(crate) address: redis::Address,
    key_prefix: String,
    sentinel_password: Option<SecretText>,
    seal_secret: Option<SecretText>,
    ca_file: Option<PathBuf>,
    /// Certificate and private key.
    client_files: Option<(PathBuf, PathBuf)>,
    buckets: Option<u16>,
    volatile: bool,
    replicas: u16,
    /// Whether it is that of the distributed state manager.
    is_of_state: bool,
}

/// The settings in [state] of the server of the distributed state manager.
const STATE_SETTINGS: redis::SettingNames =
    redis::SettingNames { url: "state.redis_url", database: "state.redis_db", key_prefix: "state.redis_prefix" };

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

impl RedisServer {
    /// The same login for another server.
    pub(super) fn at(&self, address: redis::Address, key_prefix: String) -> Self {
        Self { address: address.login_of(&self.address), key_prefix, ..self.clone() }
    }

    /// The same server as that of the distributed state manager.
    pub(super) fn of_state(self) -> Self {
        Self { is_of_state: true, ..self }
    }

    /// Whether nodes can open what others have sealed.
    pub(crate) fn has_seal_secret(&self) -> bool {
        self.seal_secret.is_some()
    }

    pub(crate) fn open(&self) -> Result<Redis, OpenStoreError> {
        Redis::open(self.options()?).map_err(OpenStoreError::Redis)
    }

    /// Checks whether the store can be opened. Writes nothing.
    pub(crate) fn inspect(&self) -> Result<redis::Inspection, OpenStoreError> {
        Redis::inspect(self.options()?).map_err(OpenStoreError::Redis)
    }

    fn options(&self) -> Result<redis::Options, OpenStoreError> {
        let read = |path: &PathBuf| fs::read(path).map_err(|error| OpenStoreError::File(path.clone(), error));
        let authorities = self.ca_file.as_ref().map(read).transpose()?;
        let client = match &self.client_files {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        let mut options = redis::Options::new(self.address.clone())
            .prefix(&self.key_prefix)
            .tls(redis::TlsFiles { authorities, client })
            .volatile(self.volatile)
            .replicas(self.replicas);
        if self.is_of_state {
            options = options.setting_names(STATE_SETTINGS);
        }
        if let Some(buckets) = self.buckets {
            options = options.buckets(buckets);
        }
        if let Some(password) = &self.sentinel_password {
            options = options.sentinel_password(password.reveal());
        }
        if let Some(secret) = &self.seal_secret {
            options = options.seal_secret(secret.reveal());
        }
        Ok(options)
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

/// A server with the login and the durability of [store.redis].
pub(super) fn resolve_server(
    address: redis::Address,
    key_prefix: String,
    raw: &raw::Redis,
    diagnostics: &mut Diagnostics<'_>,
) -> RedisServer {
    let in_redis = |key: &str| Path::of(["store", "redis", key]);
    if raw.buckets.is_some_and(|buckets| !(1..=1024).contains(&buckets)) {
        let message = "`store.redis.buckets` must be between 1 and 1024";
        diagnostics.report(&in_redis("buckets"), message, "remove it for the default");
    }
    let password = raw.password.as_ref().and_then(|password| password.fetch(&in_redis("password"), diagnostics));
    let sentinel_password =
        raw.sentinel_password.as_ref().and_then(|password| password.fetch(&in_redis("sentinel_password"), diagnostics));
    let seal_secret = raw.seal_secret.as_ref().and_then(|secret| secret.fetch(&in_redis("seal_secret"), diagnostics));
    if seal_secret.as_ref().is_some_and(|secret| secret.reveal().len() < MIN_SEAL_SECRET) {
        let message = "`store.redis.seal_secret` is too short";
        diagnostics.report(
            &in_redis("seal_secret"),
            message,
            "use at least 16 random characters: openssl rand -hex 16",
        );
    }
    let file = |file: &Option<String>, key, diagnostics: &Diagnostics<'_>| {
        file.as_deref().map(|file| diagnostics.resolve_path(&in_redis(key), file))
    };
    let ca_file = file(&raw.ca_file, "ca_file", diagnostics);
    let client_files = match (&raw.cert_file, &raw.key_file) {
        (None, None) => None,
        (certificate @ Some(_), key @ Some(_)) => {
            file(certificate, "cert_file", diagnostics).zip(file(key, "key_file", diagnostics))
        }
        (certificate, _) => {
            let (set, missing) =
                if certificate.is_some() { ("cert_file", "key_file") } else { ("key_file", "cert_file") };
            diagnostics.report(
                &in_redis(set),
                format!("`store.redis.{set}` needs `{missing}` too"),
                format!("set `{missing}`"),
            );
            None
        }
    };
    let password = password.map(|password| password.reveal().to_owned());
    RedisServer {
        address: address.credentials(raw.user.clone(), password),
        key_prefix,
        sentinel_password,
        seal_secret,
        ca_file,
        client_files,
        buckets: raw.buckets,
        volatile: raw.volatile,
        replicas: raw.replicas,
        is_of_state: false,
    }
}

/// The address in `section.key`; after a problem any one, because the config is refused.
pub(super) fn resolve_address(
    url: &str,
    section: &str,
    key: &str,
    diagnostics: &mut Diagnostics<'_>,
) -> redis::Address {
    let any = redis::Address::default();
    // Without its line, which would show the password.
    if url.contains('@') {
        let message = format!("`{section}.{key}` contains a user or password");
        let help = "set them as `user` and `password` in [store.redis]";
        diagnostics.report(&Path::of([section]), message, help);
        return any;
    }
    redis::Address::parse(url).unwrap_or_else(|error| {
        let message = format!("`{section}.{key}` is no address of Redis: {error}");
        diagnostics.report(&Path::of([section, key]), message, "write it like \"redis://localhost:6379/0\"");
        any
    })
}
