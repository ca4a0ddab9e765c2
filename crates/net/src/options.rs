//! Options for the connections to a service.
//!
//! Plain data; two callers with equal options share a pool. `dial` and `pool` act on them.

use std::{path::PathBuf, time::Duration};

use tokio::sync::Semaphore;
use url::Url;

use crate::{guard, origin::Origin, proxy::Proxy, tls};

/// How connections to a service are opened and pooled. Callers with equal options share connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolOptions {
    /// Maximum number of idle connections.
    pub max_idle: usize,
    /// Maximum number of concurrent [permits](crate::Pool::permit), over all pools of the origin.
    pub max_in_flight: usize,
    /// How long to wait for a permit.
    pub permit_timeout: Duration,
    /// An older connection is not reused.
    pub max_age: Duration,
    /// Timeout for DNS, TCP, proxy and TLS together.
    pub connect_timeout: Duration,
    /// How long a write may block.
    pub write_timeout: Duration,
    /// How long an idle connection stays open; `None` disables reuse.
    pub idle_timeout: Option<Duration>,
    /// The interval of TCP keep-alive probes; zero disables them.
    pub tcp_keepalive: Duration,
    /// Which addresses may be connected to.
    pub address_policy: AddressPolicy,
    /// A PEM file with root certificates in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// The proxy to use.
    pub proxy: Option<Proxy>,
}

/// Which addresses may be connected to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AddressPolicy {
    /// Any address, including loopback: for URLs that an operator configured.
    Any,
    /// Public addresses, and any address of these hosts, each with or without a port.
    PublicOrHosts(Vec<String>),
}

impl AddressPolicy {
    /// The range that makes the guard refuse this URL, as far as that is known without a DNS lookup: its host is an address, or
    /// `localhost`.
    #[must_use]
    pub fn refusal_without_lookup(&self, url: &Url) -> Option<&'static str> {
        let origin = Origin::from_url(url)?;
        match self {
            Self::Any => return None,
            Self::PublicOrHosts(hosts) if origin.matches_any(hosts) => return None,
            Self::PublicOrHosts(_) => {}
        }
        let is_local_name = origin.host == "localhost" || origin.host.ends_with(".localhost");
        let range = origin.ip().and_then(guard::special_range);
        range.or_else(|| is_local_name.then_some("a loopback address"))
    }
}

impl Default for PoolOptions {
    /// For a service that an operator configured: unlimited requests, any address, idle timeout 90 s.
    fn default() -> Self {
        Self {
            max_idle: 256,
            max_in_flight: Semaphore::MAX_PERMITS,
            permit_timeout: Duration::MAX,
            max_age: Duration::from_secs(3600),
            connect_timeout: Duration::from_secs(10),
            write_timeout: Duration::MAX,
            idle_timeout: Some(Duration::from_secs(90)),
            tcp_keepalive: Duration::from_secs(15),
            address_policy: AddressPolicy::Any,
            ca_file: None,
            proxy: None,
        }
    }
}

impl PoolOptions {
    /// Checks that the CA file can be read.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check_ca_file(&self) -> Result<(), String> {
        self.ca_file.as_deref().map_or(Ok(()), |path| tls::read_certificates(path).map(|_| ()))
    }
}
