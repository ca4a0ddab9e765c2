//! Origins of services: scheme, host and port.
//!
//! In: parsed URLs. Out: an [`Origin`], its `Host` header, and whether a list of hosts names it. Supports only http and https; the
//! callers check the other parts of a URL.

use std::{fmt, net::IpAddr};

use url::{Host, Url};

/// Scheme, host and port of a service. Must never depend on a tool's arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Whether TLS is used.
    pub https: bool,
    /// A name or an IP address; IPv6 without brackets.
    pub host: String,
    /// The port, explicit even if it is the default.
    pub port: u16,
}

impl Origin {
    /// The origin of a URL; `None` for schemes other than http and https, or without a host.
    #[must_use]
    pub fn from_url(url: &Url) -> Option<Self> {
        let https = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = match url.host()? {
            Host::Domain(name) => name.trim_end_matches('.').to_owned(),
            Host::Ipv4(ip) => ip.to_string(),
            Host::Ipv6(ip) => ip.to_string(),
        };
        (!host.is_empty()).then_some(Self { https, host, port: url.port_or_known_default()? })
    }

    /// The host as an IP address, if it is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// The value of the `Host` header.
    #[must_use]
    pub fn authority(&self) -> String {
        let default_port = if self.https { 443 } else { 80 };
        if self.port == default_port { self.bracketed() } else { self.host_and_port() }
    }

    /// Host and port, including a default port: the target of `CONNECT`.
    pub(crate) fn host_and_port(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port)
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }

    /// Whether the host is `localhost` or a loopback address.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.ip().is_some_and(|ip| ip.is_loopback())
    }

    /// Whether a list of hosts contains this one, with or without its port.
    #[must_use]
    pub fn matches_any(&self, hosts: &[String]) -> bool {
        hosts.iter().any(|entry| self.matches_host(entry))
    }

    fn matches_host(&self, entry: &str) -> bool {
        let is_host = |text: &str| {
            let text = text.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
            // An IP address has more than one notation.
            match text.parse::<IpAddr>() {
                Ok(ip) => Some(ip) == self.ip(),
                Err(_) => text.eq_ignore_ascii_case(&self.host),
            }
        };
        let with_port = entry.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
        is_host(entry) || with_port.is_some_and(|(host, port)| port.parse() == Ok(self.port) && is_host(host))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.https { "https" } else { "http" }, self.authority())
    }
}

/// The request target of a URL: path and query.
#[must_use]
pub fn request_target(url: &Url) -> String {
    match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        Origin::from_url(&Url::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn hosts_are_the_same_however_they_are_spelled() {
        assert_eq!(origin("HTTP://Example.COM.:80/x"), origin("http://example.com"));
        assert_eq!(origin("http://2130706433/").host, "127.0.0.1");
        assert_eq!(origin("http://0x7f.1/").host, "127.0.0.1");
        assert_eq!(origin("http://[::1]:8080").authority(), "[::1]:8080");
        assert_eq!(origin("https://[::1]").authority(), "[::1]");
        assert_eq!(origin("https://[::1]").host_and_port(), "[::1]:443");
    }

    #[test]
    fn a_list_names_hosts_with_or_without_a_port() {
        let at = origin("http://[::1]:8080");
        for named in ["::1", "[::1]", "[::1]:8080", "0:0:0:0:0:0:0:1"] {
            assert!(at.matches_any(&[named.into()]), "{named}");
        }
        for other in ["[::1]:80", "::2", "localhost", "1"] {
            assert!(!at.matches_any(&[other.into()]), "{other}");
        }
        let at = origin("http://Box.local:90");
        assert!(at.matches_any(&["BOX.local".into()]) && at.matches_any(&["box.local:90".into()]));
        assert!(!at.matches_any(&["box.local:91".into()]) && !at.matches_any(&["local".into()]));
    }
}
