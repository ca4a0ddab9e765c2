//! What holds for `[server]`.

use std::{net::IpAddr, time::Duration};

use super::{
    super::{
        raw::{self, Mode},
        tree::Path,
    },
    Diagnostics,
};

/// How the server listens, and what it takes from clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) host: IpAddr,
    pub(crate) port: u16,
    pub(crate) public_url: Option<String>,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) tool_hosts: Vec<String>,
    pub(crate) header_limit: usize,
    pub(crate) body_limit: usize,
    pub(crate) decompressed_limit: usize,
    pub(crate) json_depth: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) drain_timeout: Duration,
}

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

pub(super) fn resolve(said: &raw::Server, mode: Mode, desk: &mut Diagnostics<'_>) -> Server {
    let at = |key| Path::of(["server", key]);
    let bare = said.host.trim_start_matches('[').trim_end_matches(']');
    let host = if said.host == "localhost" { Some(LOOPBACK) } else { bare.parse().ok() };
    if host.is_none() {
        let help = "use 127.0.0.1 for this machine alone, 0.0.0.0 or :: for all its addresses, or one of them";
        desk.report(&at("host"), format!("{:?} is no address to listen on", said.host), help);
    }
    let host = host.unwrap_or(LOOPBACK);
    if !host.is_loopback() {
        if mode == Mode::Local {
            let help = "make a key with `toolhub keys create NAME --scope tools:read --scope tools:call`, add the [[auth.keys]] it \
                        prints,\nand say mode = \"keys\" in [auth]; or listen on 127.0.0.1";
            desk.report(&at("host"), format!("{host} can be reached by others, and nobody needs a key"), help);
        }
        if !desk.is_set(&at("allowed_hosts")) {
            let help = "add allowed_hosts = [\"toolhub.example\"]: the names in the URLs that clients use";
            desk.report(
                &at("host"),
                format!("{host} can be reached by others, and `allowed_hosts` does not say by which names"),
                help,
            );
        }
    }
    for (place, name) in said.allowed_hosts.iter().enumerate() {
        if let Some(help) = invalid_host_help(name) {
            desk.report(&at("allowed_hosts").index(place), format!("{name:?} is no name of a host"), help);
        }
    }
    // `"${URL:-}"` says nothing where the variable is not set.
    let public_url = said.public_url.as_deref().filter(|url| !url.is_empty());
    if let Some(url) = public_url {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let plain = rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['?', '#', '@', ' ']));
        if !plain {
            let help = "write it like \"https://toolhub.example\"";
            desk.report(&at("public_url"), "`server.public_url` is no URL that clients could use", help);
        }
    }
    let bytes = |size: toolhub::config::Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    Server {
        host,
        port: said.port,
        public_url: public_url.map(|url| url.trim_end_matches('/').to_owned()),
        allowed_hosts: said.allowed_hosts.clone(),
        tool_hosts: said.tool_hosts.clone(),
        header_limit: bytes(said.header_limit),
        body_limit: bytes(said.body_limit),
        decompressed_limit: bytes(said.decompressed_limit),
        json_depth: said.json_depth.into(),
        header_timeout: said.header_timeout.0,
        body_timeout: said.body_timeout.0,
        max_connections: super::to_usize(said.max_connections),
        drain_timeout: said.drain_timeout.0,
    }
}

/// What is wrong with the name of a host, as it stands in a request.
fn invalid_host_help(name: &str) -> Option<&'static str> {
    let bracketed = name.starts_with('[') && name.ends_with(']');
    if name.contains("://") || name.contains('/') {
        return Some("write the name alone, without http:// and path");
    }
    if !bracketed && name.matches(':').count() > 1 {
        return Some("write an IPv6 address in brackets, such as \"[::1]\"");
    }
    if !bracketed && name.contains(':') {
        return Some("write the name without the port; any port of it is accepted");
    }
    if name.contains('*') {
        return Some("there are no globs here: name each host, so that no foreign name slips in");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    (name.is_empty() || !name.chars().all(plain)).then_some("use letters, digits, dots and dashes")
}
