//! Options for the connections to a service.
//!
//! Plain data; two callers with equal options share a pool. `dial` and `pool` act on them.

use std::{path::PathBuf, time::Duration};

use tokio::sync::Semaphore;

use crate::{proxy::Proxy, tls};

/// How connections to a service are made and kept. Whoever wants the same shares connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolOptions {
    /// How many idle connections are kept.
    pub max_idle: usize,
    /// How many [permits](crate::Pool::permit) are out at once, over all pools of the origin.
    pub max_in_flight: usize,
    /// How long to wait for a permit.
    pub permit_timeout: Duration,
    /// An older connection is not used again.
    pub max_age: Duration,
    /// How long DNS, TCP, proxy and TLS may take together.
    pub connect_timeout: Duration,
    /// How long a service may accept no bytes.
    pub write_timeout: Duration,
    /// How long an unused connection is kept; `None` where none is.
    pub idle_timeout: Option<Duration>,
    /// The interval of TCP keep-alive probes; none at zero.
    pub tcp_keepalive: Duration,
    /// Which addresses may be connected to.
    pub address_policy: AddressPolicy,
    /// A PEM file with root certificates beside the system's.
    pub ca_file: Option<PathBuf>,
    /// The proxy between.
    pub proxy: Option<Proxy>,
}

/// Which addresses may be connected to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AddressPolicy {
    /// Any, also of this machine: an operator wrote the address.
    Any,
    /// Public ones, and those of the hosts that are named here, with or without a port.
    PublicOrHosts(Vec<String>),
}

impl Default for PoolOptions {
    /// For an address that an operator wrote: no limit of requests, connections to any address, kept for 90 seconds.
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
    /// Whether the file with certificates can be read.
    ///
    /// # Errors
    /// Why not.
    pub fn check_ca_file(&self) -> Result<(), String> {
        self.ca_file.as_deref().map_or(Ok(()), |path| tls::read_certificates(path).map(|_| ()))
    }
}
