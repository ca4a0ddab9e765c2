//! Resolves `[server]`.

use std::{net::IpAddr, time::Duration};

use super::{
    super::{
        raw::{self, AuthMode},
        tree::Path,
    },
    Diagnostics,
};

/// Where the server listens, and its limits for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) host: IpAddr,
    pub(crate) port: u16,
    pub(crate) public_url: Option<String>,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) tool_hosts: Vec<String>,
    pub(crate) header_limit: usize,
    pub(crate) body_limit: usize,
    pub(crate) json_depth: usize,
    pub(crate) json_values: usize,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) max_connections: usize,
    pub(crate) ui: bool,
    pub(crate) drain_timeout: Duration,
}

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

pub(super) fn resolve(raw: &raw::Server, mode: AuthMode, diagnostics: &mut Diagnostics<'_>) -> Server {
    let at = |key| Path::of(["server", key]);
    let bare = raw.host.trim_start_matches('[').trim_end_matches(']');
    let host = if raw.host == "localhost" { Some(LOOPBACK) } else { bare.parse().ok() };
    if host.is_none() {
        let help = "use 127.0.0.1 for this machine only, 0.0.0.0 or :: for all its addresses, or one of them";
        diagnostics.report(&at("host"), format!("{:?} is not an IP address to listen on", raw.host), help);
    }
    let host = host.unwrap_or(LOOPBACK);
    if !host.is_loopback() {
        if mode == AuthMode::Local {
            let help = "create a key with `toolhub keys create NAME --scope tools:read --scope tools:call`, add the [[auth.keys]] it \
                        prints,\nand set mode = \"keys\" in [auth]; or listen on 127.0.0.1";
            diagnostics.report(
                &at("host"),
                format!("{host} can be reached from other machines, but clients need no API key"),
                help,
            );
        }
        if !diagnostics.is_set(&at("allowed_hosts")) {
            let help = "add allowed_hosts = [\"toolhub.example\"]: the names in the URLs that clients use";
            diagnostics.report(
                &at("host"),
                format!("{host} can be reached from other machines, but `allowed_hosts` is not set"),
                help,
            );
        }
    }
    for (index, name) in raw.allowed_hosts.iter().enumerate() {
        if let Some(help) = invalid_host_help(name) {
            diagnostics.report(&at("allowed_hosts").index(index), format!("{name:?} is not a host name"), help);
        }
    }
    // `"${URL:-}"` is empty if the variable is not set.
    let public_url = raw.public_url.as_deref().filter(|url| !url.is_empty());
    if let Some(url) = public_url {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let plain = rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['?', '#', '@', ' ']));
        if !plain {
            let help = "write it like \"https://toolhub.example\"";
            diagnostics.report(&at("public_url"), "`server.public_url` is not a valid URL", help);
        }
    }
    let bytes = |size: toolhub::config::Size| usize::try_from(size.0).unwrap_or(usize::MAX);
    Server {
        host,
        port: raw.port,
        public_url: public_url.map(|url| url.trim_end_matches('/').to_owned()),
        allowed_hosts: raw.allowed_hosts.clone(),
        tool_hosts: raw.tool_hosts.clone(),
        header_limit: bytes(raw.header_limit),
        body_limit: bytes(raw.body_limit),
        json_depth: raw.json_depth.into(),
        json_values: usize::try_from(raw.json_values).unwrap_or(usize::MAX),
        header_timeout: raw.header_timeout.0,
        body_timeout: raw.body_timeout.0,
        max_connections: super::to_usize(raw.max_connections),
        ui: raw.ui,
        drain_timeout: raw.drain_timeout.0,
    }
}

/// What is wrong with a host name, compared to the form in a `Host` header.
fn invalid_host_help(name: &str) -> Option<&'static str> {
    let bracketed = name.starts_with('[') && name.ends_with(']');
    if name.contains("://") || name.contains('/') {
        return Some("write only the name, without http:// and path");
    }
    if !bracketed && name.matches(':').count() > 1 {
        return Some("write an IPv6 address in brackets, such as \"[::1]\"");
    }
    if !bracketed && name.contains(':') {
        return Some("write the name without the port; every port is accepted");
    }
    if name.contains('*') {
        return Some("globs are not supported here, for security; name each host");
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    (name.is_empty() || !name.chars().all(plain)).then_some("use letters, digits, dots and dashes")
}
