//! The hosts that a server accepts in `Host`.
//!
//! In: names and addresses from the settings. Out: whether a `Host` is one of them, with any port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The list of hosts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    names: Vec<Box<str>>,
    addresses: Vec<IpAddr>,
}

impl Hosts {
    /// Parses texts such as `localhost`, `127.0.0.1`, `::1` and `[::1]`; ports are ignored.
    pub(crate) fn new<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut list = Self::default();
        for host in hosts {
            let host = host.trim();
            if let Ok(address) = host.parse::<IpAddr>() {
                list.addresses.push(address.to_canonical());
                continue;
            }
            let host = host_name(host).unwrap_or(host);
            match parse_address(host) {
                Some(address) => list.addresses.push(address),
                None => list.names.push(host.to_ascii_lowercase().into()),
            }
        }
        list
    }

    /// Whether the host, without its port, is in the list.
    pub(crate) fn contains(&self, host: &str) -> bool {
        self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
            || parse_address(host).is_some_and(|address| self.addresses.contains(&address))
    }

    /// Whether any of them can name this server for other machines.
    pub(crate) fn has_non_loopback(&self) -> bool {
        self.names.iter().any(|name| &**name != "localhost")
            || self.addresses.iter().any(|address| !address.is_loopback())
    }
}

/// The host of `host`, `host:port`, `[v6]` or `[v6]:port`; `None` for any other form.
pub(crate) fn host_name(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => authority.split_at(rest.find(']')? + 2),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_valid_port = match port.strip_prefix(':') {
        Some(digits) => (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    // Refuses every character that could belong to another part of a URL.
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'[' | b']' | b':');
    (is_valid_port && !host.is_empty() && host.bytes().all(is_legal)).then_some(host)
}

/// The host as an IP address, if it is one. An IPv4-mapped IPv6 address becomes the IPv4 address.
fn parse_address(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[') {
        Some(rest) => Some(IpAddr::V6(rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?).to_canonical()),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(authority: &str, known: bool) {
        let hosts = Hosts::new(["127.0.0.1", "localhost", "::1", "Tools.Example:443", "[2001:db8::7]"]);
        assert_eq!(host_name(authority).is_some_and(|host| hosts.contains(host)), known, "{authority}");
    }

    #[test]
    fn a_host_is_known_whatever_its_port_its_case_and_the_form_of_its_address() {
        for known in [
            "localhost",
            "LOCALHOST:8665",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:65535",
            "[0:0:0:0:0:0:0:1]:80",
            "[::ffff:127.0.0.1]:80",
            "tools.example:9",
            "[2001:DB8::7]",
        ] {
            check(known, true);
        }
    }

    #[test]
    fn whatever_is_not_exactly_a_known_host_is_foreign() {
        for foreign in [
            "",
            "evil.example",
            "localhost.",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example#localhost",
            "localhost@evil.example",
            "user@localhost",
            "localhost:80@evil.example",
            "localhost:",
            "localhost:port",
            "localhost:123456",
            "localhost/",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0.0.0.0",
            "::1",
            "[::1",
            "[::1]x",
            "[::1%25eth0]",
            "localhost, evil.example",
            "localhost evil.example",
            "127.0.0.2",
        ] {
            check(foreign, false);
        }
    }
}
