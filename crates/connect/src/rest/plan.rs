//! Compiles the settings of a REST tool into a plan.
//!
//! In: a [`Rest`]. Out: a plan, or all problems of the settings. The settings are parsed once: the executor uses only the plan.

mod reader;
mod secret_texts;

use std::sync::Arc;

use hyper::header::HeaderName;
use serde_json::{Value, json};
use toolhub_core::{COOKIE_STATE_PREFIX, ConnectionStateConfig, ids::StateName};
use toolhub_net::{Origin, Pool, PoolOptions, request_target};

use super::{
    Redirects, ResponseFormat, Rest, RestError, Secret, Upstreams, credentials::Credentials, fixed_url,
    request::RequestTemplate, upstream::pool_options,
};
use crate::secret_mask::SecretMask;
use reader::Reader;

/// The compiled settings of a REST tool.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) template: RequestTemplate,
    pub(crate) origin: Origin,
    pub(crate) pool: Arc<Pool>,
    pub(crate) upstreams: Upstreams,
    pub(crate) pool_options: PoolOptions,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) secret_headers: Vec<(HeaderName, Secret)>,
    /// Secrets that the settings contain literally.
    pub(crate) secret_texts: Vec<Arc<str>>,
    pub(crate) connection: ConnectionStateConfig,
    pub(crate) select: Option<String>,
    pub(crate) response_format: ResponseFormat,
    pub(crate) redirects: Redirects,
    /// The state that stores the cookies, if the tool has a session.
    pub(crate) session: Option<StateName>,
    /// The origin and the target of the health check.
    pub(crate) health: Option<(Origin, String)>,
    pub(crate) max_response: usize,
    pub(crate) max_unpacked: usize,
    /// The request without secrets, for display.
    description: Value,
}

/// Headers that the HTTP client sets itself.
const RESERVED_HEADERS: [&str; 13] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept-encoding",
    "cookie",
];

/// Whether requests have this header without the tool, so that a tool cannot set it.
#[must_use]
pub fn is_set_by_client(header: &str) -> bool {
    RESERVED_HEADERS.iter().any(|reserved| reserved.eq_ignore_ascii_case(header))
}

impl Plan {
    /// Compiles the settings.
    ///
    /// # Errors
    /// Every problem.
    pub(crate) fn new(rest: &Rest) -> Result<Self, Vec<RestError>> {
        let mut reader = Reader::new(rest);
        let address = reader.parse_address();
        let template = reader.request_template(address.as_ref().map(|(_, path, query)| (path, query.as_str())));
        reader.check_settings();
        let health = rest.health_url.as_deref().and_then(|text| match fixed_url::parse(text) {
            Ok((origin, url)) => Some((origin, request_target(&url))),
            Err(reason) => reader.report("health_url", format!("`{}` {reason}", fixed_url::redact_url(text))),
        });
        let pool_options = pool_options(&rest.connection, &rest.allow_hosts, rest.ca_file.as_deref());
        if let Err(reason) = pool_options.check_ca_file() {
            reader.report::<()>("ca_file", reason);
        }
        let (Some((origin, ..)), Some(template), true) = (address, template, reader.problems.is_empty()) else {
            return Err(reader.problems);
        };
        let session = rest.session.then(|| session_name(&origin));
        let secret_texts = secret_texts::of(rest);
        Ok(Self {
            pool: rest.upstreams.pool(&origin, &pool_options),
            credentials: rest.auth.as_ref().map(|auth| Credentials::new(auth, &rest.upstreams)),
            secret_headers: rest
                .secret_headers
                .iter()
                .filter_map(|(n, v)| Some((n.parse().ok()?, v.clone())))
                .collect(),
            upstreams: rest.upstreams.clone(),
            connection: rest.connection.clone(),
            select: rest.select.clone(),
            response_format: rest.response_format,
            redirects: rest.redirects.clone(),
            max_response: rest.max_response,
            max_unpacked: rest.max_unpacked,
            description: describe(rest, &origin, &secret_texts),
            secret_texts,
            template,
            origin,
            pool_options,
            session,
            health,
        })
    }

    /// The request for display, without anything that may be secret.
    pub(crate) fn description(&self) -> Value {
        self.description.clone()
    }
}

/// The name of the per-thread state that stores the cookies of a host.
fn session_name(origin: &Origin) -> StateName {
    // A host name may be longer than a state name, or contain characters that it may not. The stored cookies name their host, so a
    // collision does no harm.
    let host: String = origin
        .authority()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || ".-:".contains(c) { c } else { '_' })
        .collect();
    let name: String = format!("{COOKIE_STATE_PREFIX}{host}").chars().take(128).collect();
    StateName::new(name).expect("only allowed characters, and at most 128 of them")
}

/// The request for display. Values of the query and of headers may be secrets, so only their names are included.
fn describe(rest: &Rest, origin: &Origin, secrets: &[Arc<str>]) -> Value {
    let url = rest
        .url
        .clone()
        .unwrap_or_else(|| join_url(rest.base_url.as_deref().unwrap_or_default(), rest.path.as_deref()));
    let (url, query) = url.split_once('?').unwrap_or((&url, ""));
    let in_url =
        query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split('=').next().unwrap_or_default());
    let query: Vec<&str> = in_url.chain(rest.query.iter().map(|(name, _)| name.as_str())).collect();
    let headers: Vec<&str> = rest.headers.iter().map(|(name, _)| name.as_str()).collect();
    let mut description = json!({
        "method": rest.method.to_ascii_uppercase(), "origin": origin.to_string(), "url": url, "query": query,
        "headers": headers, "allowHosts": rest.allow_hosts, "session": rest.session, "select": rest.select,
    });
    SecretMask::new(secrets.iter().map(|secret| &**secret)).value(&mut description);
    description
}

/// What the request does depends on this. Secrets are left out, so that a new one voids no grant.
pub(super) fn implementation(rest: &Rest) -> Value {
    let secret_headers: Vec<&String> = rest.secret_headers.iter().map(|(name, _)| name).collect();
    // A changed debug format in a later version voids grants, which is safe.
    let (parameters, body, redirects) =
        (format!("{:?}", rest.parameters), format!("{:?}", rest.body), format!("{:?}", rest.redirects));
    json!({
        "method": rest.method.to_ascii_uppercase(), "url": rest.url, "baseUrl": rest.base_url, "path": rest.path,
        "query": rest.query, "headers": rest.headers, "secretHeaders": secret_headers, "cookies": rest.cookies,
        "parameters": parameters, "body": body, "redirects": redirects,
    })
}

/// Joins a base URL and a path with one slash.
fn join_url(base: &str, path: Option<&str>) -> String {
    match path {
        Some(path) if path.starts_with('?') => format!("{base}{path}"),
        Some(path) => format!("{}/{}", base.trim_end_matches('/'), path.trim_start_matches('/')),
        None => base.to_owned(),
    }
}
