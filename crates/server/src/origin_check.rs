//! Checks `Host`, `Origin` and `Sec-Fetch-Site` on every request, before routing (DNS rebinding, CSRF).
//!
//! In: the request head. Out: nothing, or a problem. A web page can make a browser send requests to any address, and
//! through its own DNS name make the address look like its own site; it cannot forge `Host`, `Origin` and
//! `Sec-Fetch-Site`.

mod hosts;

use axum::{
    extract::Request,
    http::{HeaderName, Method, Version, header},
};

use hosts::{Hosts, host_name};

use crate::{
    problem::{Code, Problem},
    request_info::RequestInfo,
    settings::Settings,
};

/// Where a request comes from, by the browser that sends it.
pub(crate) const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The allowed hosts and origins.
#[derive(Debug)]
pub(crate) struct OriginCheck {
    hosts: Hosts,
    /// The origin of `public_url`, for a server behind a proxy.
    public_origin: Option<Box<str>>,
}

impl OriginCheck {
    pub(crate) fn new(settings: &Settings) -> Self {
        let public_origin = settings.public_url.as_deref().and_then(url_origin);
        let public_authority =
            public_origin.as_deref().and_then(|site| site.split_once("://")).map(|(_, authority)| authority);
        let hosts = Hosts::new(settings.allowed_hosts.iter().map(String::as_str).chain(public_authority));
        Self { hosts, public_origin }
    }

    /// The allowed hosts.
    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Checks a request.
    ///
    /// # Errors
    /// The problem to answer with.
    pub(crate) fn check(&self, request: &Request, info: &RequestInfo) -> Result<(), Problem> {
        let authority = self.check_host(request, info)?;
        self.check_origin(request, authority)
    }

    /// The authority of the request. It may be absent only if the request came through no socket.
    fn check_host<'a>(&self, request: &'a Request, info: &RequestInfo) -> Result<&'a str, Problem> {
        let foreign = |why: &str| {
            Problem::new(Code::MISDIRECTED, why)
                .hint("add the host to `server.allowed_hosts` if clients use it to reach this server")
        };
        let mut values = request.headers().get_all(header::HOST).iter();
        let host = match (values.next(), values.next()) {
            (_, Some(_)) => return Err(foreign("the request has several `Host` headers")),
            (Some(host), None) => Some(host.to_str().map_err(|_| foreign("the `Host` header is not ASCII"))?),
            (None, None) => None,
        };
        let authority = match (request.uri().authority(), host) {
            (Some(_), _) if request.version() <= Version::HTTP_11 => {
                return Err(foreign("the request names a host in its request line; this server is not a proxy"));
            }
            (Some(authority), Some(host)) if !authority.as_str().eq_ignore_ascii_case(host) => {
                return Err(foreign("the request names two different hosts"));
            }
            (Some(authority), _) => authority.as_str(),
            (None, Some(host)) => host,
            (None, None) if info.peer.is_none() => return Ok(""),
            (None, None) => return Err(foreign("the request names no host")),
        };
        match host_name(authority) {
            Some(host) if self.hosts.contains(host) => Ok(authority),
            _ => Err(foreign("the host of the request is not allowed")),
        }
    }

    /// Refuses requests that a page of another site has sent.
    fn check_origin(&self, request: &Request, authority: &str) -> Result<(), Problem> {
        let headers = request.headers();
        let foreign = |why| Err(Problem::new(Code::FOREIGN_ORIGIN, why));
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default();
            let is_same = origin.split_once("://").is_some_and(|(scheme, rest)| {
                matches!(scheme, "http" | "https") && !authority.is_empty() && rest.eq_ignore_ascii_case(authority)
            });
            if !is_same && !self.public_origin.as_deref().is_some_and(|site| site.eq_ignore_ascii_case(origin)) {
                return foreign("the `Origin` of the request is another site");
            }
        }
        if opens_dashboard(request) {
            return Ok(());
        }
        for site in headers.get_all(FETCH_SITE) {
            if !matches!(site.as_bytes(), b"none" | b"same-origin") {
                return foreign("according to `Sec-Fetch-Site`, the request comes from another site");
            }
        }
        Ok(())
    }
}

/// Whether a person has followed a link to the dashboard, such as one to an approval in a chat. The other site learns nothing: it gets
/// neither the page, which holds no data, nor a window to talk to, and the browser sends no cookie.
fn opens_dashboard(request: &Request) -> bool {
    let is = |name: &str, value: &[u8]| {
        let mut values = request.headers().get_all(name).iter();
        values.next().is_some_and(|first| first.as_bytes() == value) && values.next().is_none()
    };
    let path = request.uri().path();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    is_read
        && (path == "/ui" || path.starts_with("/ui/"))
        && is("sec-fetch-mode", b"navigate")
        && is("sec-fetch-dest", b"document")
}

/// Scheme, host and port of a URL, as browsers write an origin.
pub(crate) fn url_origin(url: &str) -> Option<Box<str>> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    Some(format!("{scheme}://{}", authority.strip_suffix(default_port).unwrap_or(authority)).into())
}
