//! Checks `Host`, `Origin` and `Sec-Fetch-Site` on every request, before routing (DNS rebinding, CSRF).
//!
//! In: the head of a request. Out: nothing, or the problem it is answered with. A web page can make a browser send
//! requests to any address and, by a name it owns, pretend that the address is its own; it cannot forge `Host`, `Origin`
//! and `Sec-Fetch-Site`.

mod hosts;

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, Version, header},
};

use hosts::{Hosts, host_name};

use crate::{
    problem::{Code, Problem},
    request_info::RequestInfo,
    settings::Settings,
};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What requests are compared with.
#[derive(Debug)]
pub(crate) struct OriginCheck {
    hosts: Hosts,
    /// The site the owner says this server is, where a proxy hides it.
    public_origin: Option<Box<str>>,
}

impl OriginCheck {
    pub(crate) fn new(settings: &Settings) -> Self {
        let public = settings.public_url.as_deref().and_then(url_origin);
        let own = public.as_deref().and_then(|site| site.split_once("://")).map(|(_, authority)| authority);
        let hosts = Hosts::new(settings.allowed_hosts.iter().map(String::as_str).chain(own));
        Self { hosts, public_origin: public }
    }

    /// The hosts this server answers for.
    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Whether the request may go on.
    ///
    /// # Errors
    /// The problem it is answered with.
    pub(crate) fn check(&self, request: &Request, info: &RequestInfo) -> Result<(), Problem> {
        let authority = self.check_host(request, info)?;
        self.check_origin(request.headers(), authority)
    }

    /// The authority the request names. Only a request that came by no socket may name none.
    fn check_host<'a>(&self, request: &'a Request, info: &RequestInfo) -> Result<&'a str, Problem> {
        let foreign = |why: &str| {
            Problem::new(Code::MISDIRECTED, why)
                .hint("name the host in `server.allowed_hosts`, if people shall reach this server by it")
        };
        let mut named = request.headers().get_all(header::HOST).iter();
        let host = match (named.next(), named.next()) {
            (_, Some(_)) => return Err(foreign("the request names several hosts")),
            (Some(host), None) => Some(host.to_str().map_err(|_| foreign("the host is not readable"))?),
            (None, None) => None,
        };
        let authority = match (request.uri().authority(), host) {
            (Some(_), _) if request.version() <= Version::HTTP_11 => {
                return Err(foreign("the request names a host in its address; this server is no proxy"));
            }
            (Some(authority), Some(host)) if !authority.as_str().eq_ignore_ascii_case(host) => {
                return Err(foreign("the request names two hosts"));
            }
            (Some(authority), _) => authority.as_str(),
            (None, Some(host)) => host,
            (None, None) if info.peer.is_none() => return Ok(""),
            (None, None) => return Err(foreign("the request names no host")),
        };
        match host_name(authority) {
            Some(host) if self.hosts.contains(host) => Ok(authority),
            _ => Err(foreign("this server does not answer for the host the request names")),
        }
    }

    /// No page of another site has sent it.
    fn check_origin(&self, headers: &HeaderMap, authority: &str) -> Result<(), Problem> {
        let foreign = |why| Err(Problem::new(Code::FOREIGN_ORIGIN, why));
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let same = origin.split_once("://").is_some_and(|(scheme, rest)| {
                matches!(scheme, "http" | "https") && !authority.is_empty() && rest.eq_ignore_ascii_case(authority)
            });
            if !same && !self.public_origin.as_deref().is_some_and(|site| site.eq_ignore_ascii_case(origin)) {
                return foreign("the request was sent by a page of another site");
            }
        }
        for site in headers.get_all(FETCH_SITE) {
            if !matches!(site.as_bytes(), b"none" | b"same-origin") {
                return foreign("a browser says that another site asked for this");
            }
        }
        Ok(())
    }
}

/// Scheme, host and port of a URL, as browsers write an origin.
fn url_origin(url: &str) -> Option<Box<str>> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let usual = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    Some(format!("{scheme}://{}", authority.strip_suffix(usual).unwrap_or(authority)).into())
}
