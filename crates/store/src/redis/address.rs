//! Addresses of Redis: one server, servers behind Sentinel, or a Cluster.
//!
//! In: the text of `store.url`. Out: hosts, kind, TLS, database, user and password. Opens nothing; an error never quotes the text, which
//! may contain a password.

use std::fmt;

use percent_encoding::percent_decode_str;

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// Where Redis is.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub(super) topology: Topology,
    /// The server, some servers of the Cluster, or the Sentinels; at least one.
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) tls: bool,
    pub(super) database: i64,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// How servers are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Topology {
    /// The address is that of the server.
    Standalone,
    /// The addresses are those of Sentinels, which know the primary of this name.
    Sentinel(String),
    /// The addresses are those of some servers of a Cluster.
    Cluster,
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It does not begin with a known scheme.
    #[error(
        "it must begin with `redis://`, `rediss://` (TLS), `redis+sentinel://`, `rediss+sentinel://`, `redis+cluster://` or \
         `rediss+cluster://`"
    )]
    Scheme,
    /// A host or port cannot be read.
    #[error("its hosts cannot be read; write `host:port`, and `a:6379,b:6379` for several")]
    Hosts,
    /// Several servers are named that need not belong together.
    #[error(
        "it names several servers; begin it with `redis+sentinel://` if they are Sentinels, with `redis+cluster://` if they form a \
         Cluster, or name one server only"
    )]
    SeveralHosts,
    /// What follows the hosts cannot be read.
    #[error("its database cannot be read; write its number after the hosts, such as `/0`")]
    Database,
    /// The name of the primary is missing.
    #[error("it lacks the name of the primary; write it after the Sentinels, such as `/mymaster/0`")]
    PrimaryName,
    /// A Cluster has only the database 0.
    #[error("a Cluster has no numbered databases; end it after the hosts")]
    ClusterDatabase,
    /// User or password cannot be read.
    #[error("its user or password is not percent-encoded UTF-8")]
    Credentials,
}

impl Address {
    /// Reads an address: `redis://user:password@host:port/database`, `redis+sentinel://a,b,c/name/database`,
    /// `redis+cluster://a,b,c`; with `rediss` instead of `redis` over TLS.
    ///
    /// # Errors
    /// When the text is no such address.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme)?;
        let (security, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match security {
            "redis" => false,
            "rediss" => true,
            _ => return Err(AddressError::Scheme),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = authority.rsplit_once('@').map_or((None, authority), |(one, two)| (Some(one), two));
        let (topology, database) = match kind {
            "" => (Topology::Standalone, path),
            "sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err(AddressError::PrimaryName);
                }
                (Topology::Sentinel(decode(name)?), database)
            }
            "cluster" if !path.is_empty() => return Err(AddressError::ClusterDatabase),
            "cluster" => (Topology::Cluster, ""),
            _ => return Err(AddressError::Scheme),
        };
        let database = match database {
            "" => 0,
            number => number.parse().ok().filter(|number: &i64| *number >= 0).ok_or(AddressError::Database)?,
        };
        let default_port = if kind == "sentinel" { DEFAULT_SENTINEL_PORT } else { DEFAULT_PORT };
        let hosts = hosts.split(',').map(|host| parse_host(host, default_port)).collect::<Result<Vec<_>, _>>()?;
        if topology == Topology::Standalone && hosts.len() > 1 {
            return Err(AddressError::SeveralHosts);
        }
        let (user, password) = match credentials {
            None => (None, None),
            Some(text) => {
                let (user, password) = text.split_once(':').unwrap_or((text, ""));
                let given = |text: &str| if text.is_empty() { Ok(None) } else { decode(text).map(Some) };
                (given(user)?, given(password)?)
            }
        };
        Ok(Self { topology, hosts, tls, database, user, password })
    }

    /// Replaces user and password, if they are given.
    #[must_use]
    pub fn credentials(mut self, user: Option<String>, password: Option<String>) -> Self {
        self.user = user.or(self.user);
        self.password = password.or(self.password);
        self
    }

    /// Replaces user and password by those of another address.
    #[must_use]
    pub fn login_of(self, other: &Self) -> Self {
        Self { user: other.user.clone(), password: other.password.clone(), ..self }
    }

    /// Replaces the number of the database, unless it is 0 or there is a Cluster, which has only one.
    #[must_use]
    pub fn database(mut self, number: u32) -> Self {
        if number > 0 && !self.is_cluster() {
            self.database = number.into();
        }
        self
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.topology == Topology::Cluster
    }
}

fn decode(text: &str) -> Result<String, AddressError> {
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| AddressError::Credentials)
}

fn parse_host(text: &str, default_port: u16) -> Result<(String, u16), AddressError> {
    // An IPv6 address has colons of its own, so it stands in brackets.
    let (host, port) = match text.strip_prefix('[') {
        Some(text) => {
            let (host, port) = text.split_once(']').ok_or(AddressError::Hosts)?;
            (host, port.strip_prefix(':'))
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| AddressError::Hosts))?;
    if host.is_empty() || host.contains(['?', '#', ' ']) {
        return Err(AddressError::Hosts);
    }
    Ok((host.to_owned(), port))
}

/// A server of this machine, at the usual port.
impl Default for Address {
    fn default() -> Self {
        let (topology, hosts) = (Topology::Standalone, vec![("localhost".to_owned(), DEFAULT_PORT)]);
        Self { topology, hosts, tls: false, database: 0, user: None, password: None }
    }
}

/// Without user and password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.topology {
            Topology::Standalone => "",
            Topology::Sentinel(_) => "+sentinel",
            Topology::Cluster => "+cluster",
        };
        write!(f, "redis{}{kind}://", if self.tls { "s" } else { "" })?;
        for (at, (host, port)) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}:{port}", if at > 0 { "," } else { "" })?;
        }
        match &self.topology {
            Topology::Standalone => write!(f, "/{}", self.database),
            Topology::Sentinel(name) => write!(f, "/{name}/{}", self.database),
            Topology::Cluster => Ok(()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str, user: Option<&str>, password: Option<&str>) {
        let address = Address::parse(text).unwrap();
        assert_eq!(address.to_string(), shown);
        assert_eq!((address.user.as_deref(), address.password.as_deref()), (user, password));
        assert_eq!(format!("{address:?}"), format!("Address({shown})"));
    }

    #[test]
    fn addresses_are_read_and_shown_without_their_password() {
        check("redis://localhost", "redis://localhost:6379/0", None, None);
        check("redis://:s3cret@[::1]:7000/3", "redis://::1:7000/3", None, Some("s3cret"));
        check("rediss://hub:a%40b@db.example/0", "rediss://db.example:6379/0", Some("hub"), Some("a@b"));
        check("redis+sentinel://a,b:1,c/main/2", "redis+sentinel://a:26379,b:1,c:26379/main/2", None, None);
        check("rediss+cluster://hub@a:1,b:2", "rediss+cluster://a:1,b:2", Some("hub"), None);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (text, error) in [
            ("localhost:6379", AddressError::Scheme),
            ("http://localhost", AddressError::Scheme),
            ("redis+other://localhost", AddressError::Scheme),
            ("redis://", AddressError::Hosts),
            ("redis://a,,b", AddressError::Hosts),
            ("redis://a:port", AddressError::Hosts),
            ("redis://a?x=1", AddressError::Hosts),
            ("redis://a,b", AddressError::SeveralHosts),
            ("rediss://a:1,b:2/0", AddressError::SeveralHosts),
            ("redis://a/x", AddressError::Database),
            ("redis://a/-1", AddressError::Database),
            ("redis+sentinel://a", AddressError::PrimaryName),
            ("redis+cluster://a/0", AddressError::ClusterDatabase),
            ("redis://%ff@a", AddressError::Credentials),
        ] {
            assert_eq!(Address::parse(text), Err(error), "{text}");
        }
    }
}
