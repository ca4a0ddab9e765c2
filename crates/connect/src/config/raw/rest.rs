//! Config keys of REST tools.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhub_core::{ConnectionStateConfig, Retry};

use crate::config::{PositiveDuration, SecretSource, Size, secret};

/// The keys of a REST tool. Texts are templates: `{city}` stands for the argument `city`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rest {
    /// URL of the request. `{city}` stands for the argument `city`, in a path segment or a query value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Base URL of `path`, instead of `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Path below `base_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// HTTP method. Default: "GET".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Query parameters. A parameter whose argument is absent is omitted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// Request headers; their values are never printed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "secret::deserialize_table")]
    pub headers: BTreeMap<String, SecretSource>,
    /// JSON body; a string that is exactly `{items}` becomes the argument `items` itself. Arguments that no template uses go into
    /// the query of GET, HEAD and DELETE requests, and into the body of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// Form fields, instead of `body`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub form: BTreeMap<String, String>,
    /// Authentication of the requests.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "secret::deserialize_optional_table")]
    pub auth: Option<RestAuth>,
    /// What part of the response is the result.
    #[serde(skip_serializing_if = "RestResult::is_empty")]
    pub result: RestResult,
    /// Hosts that may be reached although their addresses are private or local, such as "127.0.0.1" or "api.internal:8080".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_hosts: Vec<String>,
    /// Whether to follow redirects to the same host. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_redirects: Option<bool>,
    /// Other hosts that redirects may lead to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redirect_hosts: Vec<String>,
    /// Whether to store the service's cookies, separately for each thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<bool>,
    /// Health check URL, which responds to a GET with 2xx when the service works. Probed while the tool is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_url: Option<String>,
    /// PEM file with CA certificates to trust in addition to those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// Connections to the service: pool size, timeouts, retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
}

/// The HTTP method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Reads.
    Get,
    /// Reads, without a body.
    Head,
    /// Creates something.
    Post,
    /// Creates or replaces something.
    Put,
    /// Changes part of something.
    Patch,
    /// Removes something.
    Delete,
    /// Reads the supported methods.
    Options,
}

/// Authentication of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestAuth {
    /// The authentication method.
    #[serde(rename = "type")]
    pub auth_type: AuthType,
    /// The token, for "bearer".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretSource>,
    /// The user name, for "basic".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The password, for "basic".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretSource>,
    /// Where the API key is sent. Default: "header".
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub location: Option<KeyLocation>,
    /// The name of the header, query parameter or cookie, for "api_key".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The key, for "api_key".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<SecretSource>,
    /// The token endpoint, for "oauth2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// The client ID, for "oauth2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The client secret, for "oauth2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretSource>,
    /// The scopes of the token, for "oauth2".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Additional fields of the token request, for "oauth2", such as `audience`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub token_fields: BTreeMap<String, String>,
}

/// The authentication methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthType {
    /// `token` in the `Authorization` header.
    Bearer,
    /// `username` and `password` in the `Authorization` header.
    Basic,
    /// `value` in the header, query parameter or cookie `name`.
    ApiKey,
    /// A token fetched from `token_url` with `client_id` and `client_secret`.
    Oauth2,
}

/// Where an API key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyLocation {
    /// A header.
    Header,
    /// A query parameter.
    Query,
    /// A cookie.
    Cookie,
}

/// What part of a response is the result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RestResult {
    /// JSON pointer to the result in a JSON response: "/current/temperature".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub select: Option<String>,
    /// How to interpret the response body. Default: by its content type.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub format: Option<ResultFormat>,
    /// Maximum size of a response. Default: "8MiB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<Size>,
    /// Maximum size of a response after decompression. Default: "8MiB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unpacked: Option<Size>,
}

impl RestResult {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a response body is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResultFormat {
    /// JSON.
    Json,
    /// Text.
    Text,
    /// Bytes, stored as an artifact.
    Binary,
}

/// Connections to a service. Tools of the same service with the same settings share a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Connection {
    /// Number of concurrent requests.
    pub pool_size: u32,
    /// Number of additional concurrent requests under load.
    pub max_overflow: u32,
    /// How long a call waits for a connection; then it fails as `overloaded`.
    pub pool_timeout: PositiveDuration,
    /// Maximum age of a connection; older ones are replaced.
    pub pool_recycle: PositiveDuration,
    /// Timeout of one request.
    pub timeout: PositiveDuration,
    /// Timeout for connecting.
    pub connect_timeout: PositiveDuration,
    /// Timeout between two parts of a response.
    pub read_timeout: PositiveDuration,
    /// Timeout for sending a request.
    pub write_timeout: PositiveDuration,
    /// Whether connections are reused.
    pub keep_alive: bool,
    /// How long an idle connection stays open.
    pub keep_alive_timeout: PositiveDuration,
    /// Interval of the liveness checks of an idle connection.
    pub keep_alive_interval: PositiveDuration,
    /// Maximum number of attempts, including the first. If one of the `retry_` keys is set, they take precedence over `[defaults]`
    /// and `[limits]`, and `retry` of the tool over them. Default: 3.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_attempts: Option<u32>,
    /// Delay before the second attempt. Default: "1s".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_delay: Option<PositiveDuration>,
    /// Growth factor of the delay. Default: 2.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_backoff: Option<f64>,
    /// Whether each delay is randomized. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_jitter: Option<bool>,
}

impl Connection {
    /// The retry policy, if a part of it is set.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        let Self { retry_attempts, retry_delay, retry_backoff, retry_jitter, .. } = self;
        let is_set =
            retry_attempts.is_some() || retry_delay.is_some() || retry_backoff.is_some() || retry_jitter.is_some();
        is_set.then(|| ConnectionStateConfig::from(self).retry())
    }
}

impl Default for Connection {
    fn default() -> Self {
        let defaults = ConnectionStateConfig::default();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            pool_size: count(defaults.pool_size),
            max_overflow: count(defaults.max_overflow),
            pool_timeout: PositiveDuration(defaults.pool_timeout),
            pool_recycle: PositiveDuration(defaults.pool_recycle),
            timeout: PositiveDuration(defaults.timeout),
            connect_timeout: PositiveDuration(defaults.connect_timeout),
            read_timeout: PositiveDuration(defaults.read_timeout),
            write_timeout: PositiveDuration(defaults.write_timeout),
            keep_alive: defaults.keep_alive,
            keep_alive_timeout: PositiveDuration(defaults.keep_alive_timeout),
            keep_alive_interval: PositiveDuration(defaults.keep_alive_interval),
            retry_attempts: None,
            retry_delay: None,
            retry_backoff: None,
            retry_jitter: None,
        }
    }
}

impl From<&Connection> for ConnectionStateConfig {
    fn from(connection: &Connection) -> Self {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let time = |time: PositiveDuration| -> Duration { time.0 };
        let defaults = Self::default();
        Self {
            pool_size: count(connection.pool_size),
            max_overflow: count(connection.max_overflow),
            pool_timeout: time(connection.pool_timeout),
            pool_recycle: time(connection.pool_recycle),
            timeout: time(connection.timeout),
            connect_timeout: time(connection.connect_timeout),
            read_timeout: time(connection.read_timeout),
            write_timeout: time(connection.write_timeout),
            keep_alive: connection.keep_alive,
            keep_alive_timeout: time(connection.keep_alive_timeout),
            keep_alive_interval: time(connection.keep_alive_interval),
            retry_attempts: connection.retry_attempts.unwrap_or(defaults.retry_attempts),
            retry_delay: connection.retry_delay.map_or(defaults.retry_delay, time),
            retry_backoff: connection.retry_backoff.unwrap_or(defaults.retry_backoff),
            retry_jitter: connection.retry_jitter.unwrap_or(defaults.retry_jitter),
        }
    }
}
