//! What is said about a tool that is an HTTP request.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhub_core::ConnectionStateConfig;

use crate::config::{SecretSource, Size, Time, secret};

/// The keys of a tool that is an HTTP request. Texts are templates: `{city}` stands for the argument `city`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rest {
    /// The address of the request, where the tool is one. `{city}` stands for the argument `city`, in one segment of the path or
    /// one value of the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The address that `path` is below, in the place of `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The path below `base_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The method of the request; "GET" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Pairs of the query. One whose argument is absent is left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    /// Headers of the request; their values are never shown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "secret::table")]
    pub headers: BTreeMap<String, SecretSource>,
    /// The JSON body; a text that is nothing but `{items}` becomes the argument `items` itself. Arguments that nothing names go
    /// into the query of a GET, HEAD or DELETE and into the body of others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// The fields of a form, in the place of `body`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub form: BTreeMap<String, String>,
    /// How requests show who they are from.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "secret::some_table")]
    pub auth: Option<RestAuth>,
    /// What of the answer is the result.
    #[serde(skip_serializing_if = "RestResult::is_empty")]
    pub result: RestResult,
    /// Hosts that may be reached although their addresses are private or local, such as "127.0.0.1" or "api.internal:8080".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_hosts: Vec<String>,
    /// Whether redirects are followed that stay on the host; yes where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow_redirects: Option<bool>,
    /// Hosts that redirects may lead to beside their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redirect_hosts: Vec<String>,
    /// Whether the service's cookies are kept, for each thread apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<bool>,
    /// An address that answers a GET with 2xx when the service is well; it is asked while the tool is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_url: Option<String>,
    /// A PEM file with certificates that may vouch for the service, beside those the system trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<String>,
    /// Connections to the service: how many, how long each step may take, how often to try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<Connection>,
}

/// The method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Reads.
    Get,
    /// Reads, without a body.
    Head,
    /// Makes something.
    Post,
    /// Puts something in a place.
    Put,
    /// Changes a part.
    Patch,
    /// Removes.
    Delete,
    /// Asks what is possible.
    Options,
}

/// How requests show who they are from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestAuth {
    /// Which of the ways.
    #[serde(rename = "type")]
    pub auth_type: AuthWay,
    /// The token, for "bearer".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretSource>,
    /// The name, for "basic".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The password, for "basic".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretSource>,
    /// Where an API key goes; "header" where nothing is said.
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub location: Option<KeyPlace>,
    /// What the key is called there, for "api_key".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The key, for "api_key".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<SecretSource>,
    /// Where tokens are given out, for "oauth2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// Who asks for a token, for "oauth2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Its secret, for "oauth2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretSource>,
    /// What the token is to be good for, for "oauth2".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// More fields of the request for a token, for "oauth2", such as `audience`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub token_fields: BTreeMap<String, String>,
}

/// The ways to show who a request is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthWay {
    /// `token` in the header Authorization.
    Bearer,
    /// `username` and `password` in the header Authorization.
    Basic,
    /// `value` under a `name` of the service's own.
    ApiKey,
    /// A token fetched from `token_url` with `client_id` and `client_secret`.
    Oauth2,
}

/// Where an API key goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyPlace {
    /// A header.
    Header,
    /// A pair of the query.
    Query,
    /// A cookie.
    Cookie,
}

/// What of an answer is the result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RestResult {
    /// The part of a JSON answer, as a JSON pointer: "/current/temperature".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub select: Option<String>,
    /// What the body of an answer is taken for; what its content type says where nothing is said.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub form: Option<AnswerForm>,
    /// How many bytes of an answer are read; "8MiB" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<Size>,
    /// How many bytes a packed answer may become; "8MiB" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_unpacked: Option<Size>,
}

impl RestResult {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What the body of an answer is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// JSON.
    Json,
    /// Text.
    Text,
    /// Bytes, kept as an artifact.
    Binary,
}

/// Connections to a service. Tools of the same service with the same settings share them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Connection {
    /// How many requests may be under way at once.
    pub pool_size: u32,
    /// How many more, when it is busy.
    pub max_overflow: u32,
    /// How long a call waits for its turn; then it is `overloaded`.
    pub pool_timeout: Time,
    /// The age at which connections are made anew.
    pub pool_recycle: Time,
    /// How long one request may take in all.
    pub timeout: Time,
    /// How long it may take to connect.
    pub connect_timeout: Time,
    /// How long the service may be silent while it answers.
    pub read_timeout: Time,
    /// How long it may take to send a request.
    pub write_timeout: Time,
    /// Whether connections are kept for the next request.
    pub keep_alive: bool,
    /// How long an unused one is kept.
    pub keep_alive_timeout: Time,
    /// How often one that is kept is asked whether it still works.
    pub keep_alive_interval: Time,
    /// How often a request is tried, counting the first time. `retry` of the tool weighs more.
    #[schemars(range(min = 1))]
    pub retry_attempts: u32,
    /// The wait before the second attempt.
    pub retry_delay: Time,
    /// By how much each wait is longer than the one before.
    #[schemars(range(min = 1))]
    pub retry_backoff: f64,
    /// Whether a wait is a random part of its length.
    pub retry_jitter: bool,
}

impl Default for Connection {
    fn default() -> Self {
        let usual = ConnectionStateConfig::default();
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            pool_size: count(usual.pool_size),
            max_overflow: count(usual.max_overflow),
            pool_timeout: Time(usual.pool_timeout),
            pool_recycle: Time(usual.pool_recycle),
            timeout: Time(usual.timeout),
            connect_timeout: Time(usual.connect_timeout),
            read_timeout: Time(usual.read_timeout),
            write_timeout: Time(usual.write_timeout),
            keep_alive: usual.keep_alive,
            keep_alive_timeout: Time(usual.keep_alive_timeout),
            keep_alive_interval: Time(usual.keep_alive_interval),
            retry_attempts: usual.retry_attempts,
            retry_delay: Time(usual.retry_delay),
            retry_backoff: usual.retry_backoff,
            retry_jitter: usual.retry_jitter,
        }
    }
}

impl From<&Connection> for ConnectionStateConfig {
    fn from(said: &Connection) -> Self {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let time = |time: Time| -> Duration { time.0 };
        Self {
            pool_size: count(said.pool_size),
            max_overflow: count(said.max_overflow),
            pool_timeout: time(said.pool_timeout),
            pool_recycle: time(said.pool_recycle),
            timeout: time(said.timeout),
            connect_timeout: time(said.connect_timeout),
            read_timeout: time(said.read_timeout),
            write_timeout: time(said.write_timeout),
            keep_alive: said.keep_alive,
            keep_alive_timeout: time(said.keep_alive_timeout),
            keep_alive_interval: time(said.keep_alive_interval),
            retry_attempts: said.retry_attempts,
            retry_delay: time(said.retry_delay),
            retry_backoff: said.retry_backoff,
            retry_jitter: said.retry_jitter,
        }
    }
}
