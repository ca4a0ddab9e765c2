//! Options for opening a store in Redis.

use std::{fmt, time::Duration};

use sha2::{Digest as _, Sha256};
use toolhub_storage::seal::SealKey;

use super::{Address, error::SettingNames, keys::Keys};

/// After this long without an answer an operation fails; shorter than the limit of the callers, who then learn the reason.
const OPERATION_TIMEOUT: Duration = Duration::from_millis(9_500);

/// Options for opening a store in Redis.
#[derive(Clone)]
pub struct Options {
    pub(super) address: Address,
    pub(super) prefix: String,
    pub(super) buckets: Option<u16>,
    pub(super) tls: TlsFiles,
    pub(super) sentinel_password: Option<String>,
    pub(super) volatile: bool,
    pub(super) seal_key: Option<SealKey>,
    pub(super) replicas: u16,
    pub(super) operation_timeout: Duration,
    pub(super) setting_names: SettingNames,
}

/// Contents of PEM files for TLS.
#[derive(Clone, Default)]
pub struct TlsFiles {
    /// Certificates of the authorities to trust; `None` trusts those of the operating system.
    pub authorities: Option<Vec<u8>>,
    /// Certificate chain and private key of this client.
    pub client: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (authorities, client) = (self.authorities.is_some(), self.client.is_some());
        f.debug_struct("TlsFiles").field("authorities", &authorities).field("client", &client).finish()
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("address", &self.address).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Options {
    /// The prefix of all keys unless another one is set.
    pub const DEFAULT_PREFIX: &str = "toolhub";

    /// The store at this address with the default prefix.
    #[must_use]
    pub fn new(address: Address) -> Self {
        Self {
            address,
            prefix: Self::DEFAULT_PREFIX.into(),
            buckets: None,
            tls: TlsFiles::default(),
            sentinel_password: None,
            volatile: false,
            seal_key: None,
            replicas: 0,
            operation_timeout: OPERATION_TIMEOUT,
            setting_names: SettingNames::STORE,
        }
    }

    /// What all keys of the store begin with. Several stores can share a server under different prefixes.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The number of buckets of a new store; an existing store keeps its number. Default: 64 on a Cluster, otherwise 1.
    #[must_use]
    pub fn buckets(mut self, buckets: u16) -> Self {
        self.buckets = Some(buckets);
        self
    }

    /// Certificates for an address with TLS.
    #[must_use]
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.tls = files;
        self
    }

    /// The password of the Sentinels; that of the address is for the servers. Default: none.
    #[must_use]
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }

    /// Accepts a server that loses records: without append-only file, or with eviction. Off by default.
    #[must_use]
    pub fn volatile(mut self, volatile: bool) -> Self {
        self.volatile = volatile;
        self
    }

    /// The secret from which the key is made that seals secrets in records. It must be hard to guess, the same at each start, and stored
    /// elsewhere than in Redis. Without one, a call with secret arguments cannot go on after a restart of the hub.
    #[must_use]
    pub fn seal_secret(mut self, secret: &str) -> Self {
        self.seal_key = Some(SealKey::new(&Sha256::digest(secret).into()));
        self
    }

    /// How many replicas must have a commit before it is acknowledged. It waits a second at most; with fewer replicas the commit is
    /// acknowledged all the same, and a warning says so. Default: 0.
    #[must_use]
    pub fn replicas(mut self, replicas: u16) -> Self {
        self.replicas = replicas;
        self
    }

    /// After how long an operation without an answer fails. Default: 9.5 s.
    #[must_use]
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.operation_timeout = timeout;
        self
    }

    /// The names of the settings that errors and warnings tell to change. Default: those of the hub's store, `store.url` and
    /// `store.key_prefix`.
    #[must_use]
    pub fn setting_names(mut self, names: SettingNames) -> Self {
        self.setting_names = names;
        self
    }

    /// Says that the store has another number of buckets than these options.
    pub(super) fn bucket_warning(&self, keys: &Keys) -> Option<String> {
        let (wanted, found) = (self.buckets?, keys.buckets().count());
        (usize::from(wanted) != found).then(|| {
            format!(
                "the store has {found} buckets, and keeps them: `store.redis.buckets = {wanted}` counts for a new store only; remove it, or move \
                 the store with `toolhub store copy`"
            )
        })
    }
}
