//! Reads what an owner said about a request into what is needed to make it.
//!
//! In: a [`Rest`]. Out: a plan, or everything that is wrong with what was said. Nothing of the request is read twice: whoever makes
//! requests looks at the plan alone.

mod reader;

use std::sync::Arc;

use hyper::header::HeaderName;
use serde_json::{Value, json};
use toolhub_core::{ConnectionStateConfig, ids::StateName};
use toolhub_net::{Origin, Pool, PoolOptions, request_target};

use super::{
    Redirects, ResponseFormat, Rest, RestError, Secret, Upstreams, credentials::Credentials, fixed_url,
    request::RequestTemplate, upstream::pool_options,
};
use reader::Reader;

/// All there is to know about a request.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) shape: RequestTemplate,
    pub(crate) origin: Origin,
    pub(crate) pool: Arc<Pool>,
    pub(crate) upstreams: Upstreams,
    pub(crate) pool_options: PoolOptions,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) secret_headers: Vec<(HeaderName, Secret)>,
    pub(crate) connection: ConnectionStateConfig,
    pub(crate) select: Option<String>,
    pub(crate) answer: ResponseFormat,
    pub(crate) redirects: Redirects,
    /// Where cookies are kept, if they are.
    pub(crate) session: Option<StateName>,
    /// The origin and the target of the health check.
    pub(crate) health: Option<(Origin, String)>,
    pub(crate) max_response: usize,
    pub(crate) max_unpacked: usize,
    /// How it is shown.
    description: Value,
}

/// Headers that are the business of HTTP itself.
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

impl Plan {
    /// Reads what was said.
    ///
    /// # Errors
    /// Every problem.
    pub(crate) fn new(rest: &Rest) -> Result<Self, Vec<RestError>> {
        let mut reader = Reader::new(rest);
        let address = reader.parse_address();
        let shape = reader.request_template(address.as_ref().map(|(_, path, query)| (path, query.as_str())));
        reader.check_settings();
        let health = rest.health_url.as_deref().and_then(|text| match fixed_url::parse(text) {
            Ok((origin, url)) => Some((origin, request_target(&url))),
            Err(why) => reader.report("health_url", format!("`{}` {why}", fixed_url::redact_url(text))),
        });
        let pool_options = pool_options(&rest.connection, &rest.allow_hosts, rest.ca_file.as_deref());
        if let Err(why) = pool_options.check_ca_file() {
            reader.report::<()>("ca_file", why);
        }
        let (Some((origin, ..)), Some(shape), true) = (address, shape, reader.problems.is_empty()) else {
            return Err(reader.problems);
        };
        let session = rest.session.then(|| session_name(&origin));
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
            answer: rest.response_format,
            redirects: rest.redirects.clone(),
            max_response: rest.max_response,
            max_unpacked: rest.max_unpacked,
            description: describe(rest, &origin),
            shape,
            origin,
            pool_options,
            session,
            health,
        })
    }

    /// How it is shown, without anything that might be secret.
    pub(crate) fn description(&self) -> Value {
        self.description.clone()
    }
}

/// The state that holds the cookies of a host, for each thread.
fn session_name(origin: &Origin) -> StateName {
    // A host may have signs that no state may have, or too many; the cookies themselves say whose they are.
    let host: String = origin
        .authority()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || ".-:".contains(c) { c } else { '_' })
        .collect();
    let cut: String = format!("cookies:{host}").chars().take(128).collect();
    StateName::new(cut).expect("letters, digits and signs a state may have, and not too many")
}

/// The request as it is shown. Values of the query and of headers may be secrets, so only their names are told.
fn describe(rest: &Rest, origin: &Origin) -> Value {
    let url = rest
        .url
        .clone()
        .unwrap_or_else(|| join_url(rest.base_url.as_deref().unwrap_or_default(), rest.path.as_deref()));
    let (place, query) = url.split_once('?').unwrap_or((&url, ""));
    let in_url =
        query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split('=').next().unwrap_or_default());
    let query: Vec<&str> = in_url.chain(rest.query.iter().map(|(name, _)| name.as_str())).collect();
    let headers: Vec<&str> = rest.headers.iter().map(|(name, _)| name.as_str()).collect();
    json!({
        "method": rest.method.to_ascii_uppercase(), "origin": origin.to_string(), "url": place, "query": query,
        "headers": headers, "allowHosts": rest.allow_hosts, "session": rest.session, "select": rest.select,
    })
}

/// An address with a path behind it, and one slash between them.
fn join_url(base: &str, path: Option<&str>) -> String {
    match path {
        Some(path) if path.starts_with('?') => format!("{base}{path}"),
        Some(path) => format!("{}/{}", base.trim_end_matches('/'), path.trim_start_matches('/')),
        None => base.to_owned(),
    }
}
