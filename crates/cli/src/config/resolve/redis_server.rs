//! Resolves the address and the login of a Redis server, and opens the store there.
//!
//! In: an address, the prefix of the keys and `[store.redis]`. Out: a server that can be opened or inspected; or problems.

use std::{fs, path::PathBuf};

use toolhub::{Redis, config::SecretText, redis};

use super::{
    super::{raw, tree::Path},
    Diagnostics,
    store::OpenStoreError,
};

/// Fewer characters could be guessed.
const MIN_SEAL_SECRET: usize = 16;

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
