//! Builder for REST tools.
//!
//! In: settings, in any order. Out: a [`ToolBuilder`], or all problems of the settings. Nothing is checked before [`Rest::problems`]
//! or the registration of the tool; `plan.rs` does the checking.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use serde_json::Value;
use toolhub_core::{Arguments, ConnectionStateConfig, Executor, Limits, Retry, ToolBuilder, schema};
use toolhub_net::SecretText;

use super::{
    Auth, Body, Parameter, RestError, Secret, Upstreams,
    executor::RestExecutor,
    json_template::JsonTemplate,
    plan::{self, Plan},
    template::Template,
};

/// The HTTP request of a REST tool.
///
/// Texts are templates: `{city}` stands for the argument `city`, and is encoded for its location, so that no value can change the host,
/// the number of path segments or the headers. `{{` and `}}` are literal braces. If an argument is absent or `null`, its query
/// parameter, header or body member is omitted; an argument in the path is required. Arguments that no template uses go into the query
/// (GET, HEAD, DELETE, OPTIONS) or into the JSON body (others).
///
/// ```
/// use serde_json::json;
/// use toolhub_connect::rest::{Auth, Rest, Secret};
///
/// let weather = Rest::get("https://api.weather.example/v1/{country}/current?city={city}")
///     .auth(Auth::bearer(Secret::literal("…")))
///     .select("/current")
///     .tool_with("weather", json!({
///         "type": "object",
///         "properties": {"country": {"type": "string"}, "city": {"type": "string"}},
///         "required": ["country", "city"],
///     }))
///     .description("The weather in a city");
/// ```
#[derive(Debug, Clone)]
pub struct Rest {
    pub(super) method: String,
    pub(super) url: Option<String>,
    pub(super) base_url: Option<String>,
    pub(super) path: Option<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) secret_headers: Vec<(String, Secret)>,
    pub(super) cookies: Vec<(String, String)>,
    pub(super) secret_texts: Vec<SecretText>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
    pub(super) auth: Option<Auth>,
    pub(super) connection: ConnectionStateConfig,
    /// The retry policy of the tool, if it does not follow from `connection`.
    retry: Option<Retry>,
    pub(super) select: Option<String>,
    pub(super) response_format: ResponseFormat,
    pub(super) allow_hosts: Vec<String>,
    pub(super) redirects: Redirects,
    pub(super) session: bool,
    pub(super) health_url: Option<String>,
    pub(super) max_response: usize,
    pub(super) max_unpacked: usize,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) upstreams: Upstreams,
}

/// How the body of a response is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseFormat {
    /// By its content type: JSON, text, or an artifact for everything else.
    #[default]
    Auto,
    /// JSON, whatever its content type.
    Json,
    /// Text.
    Text,
    /// An artifact.
    Binary,
}

/// Which redirects are followed. The address guard checks every hop; redirects from https to http are refused, and credentials are
/// dropped as soon as scheme, host or port change.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Redirects {
    /// None.
    Never,
    /// Those to the same host.
    #[default]
    SameHost,
    /// Those to the same host, or to one of these.
    To(Vec<String>),
}

/// Default maximum size of a response, before and after decompression.
const MAX_RESPONSE: usize = 8 * 1024 * 1024;

impl Rest {
    /// A request with a method such as `"GET"`.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self { url: Some(url.into()), ..Self::empty(method) }
    }

    /// A GET request.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// A POST request.
    pub fn post(url: impl Into<String>) -> Self {
        Self::new("POST", url)
    }

    /// A PUT request.
    pub fn put(url: impl Into<String>) -> Self {
        Self::new("PUT", url)
    }

    /// A PATCH request.
    pub fn patch(url: impl Into<String>) -> Self {
        Self::new("PATCH", url)
    }

    /// A DELETE request.
    pub fn delete(url: impl Into<String>) -> Self {
        Self::new("DELETE", url)
    }

    /// A request to a path below a base URL: `Rest::at("GET", "https://api.example/v1", "/users/{id}")`.
    pub fn at(method: impl Into<String>, base_url: impl Into<String>, path: impl Into<String>) -> Self {
        Self { base_url: Some(base_url.into()), path: Some(path.into()), ..Self::empty(method) }
    }

    fn empty(method: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: None,
            base_url: None,
            path: None,
            query: Vec::new(),
            headers: Vec::new(),
            secret_headers: Vec::new(),
            cookies: Vec::new(),
            secret_texts: Vec::new(),
            parameters: Vec::new(),
            body: None,
            auth: None,
            connection: ConnectionStateConfig::default(),
            retry: None,
            select: None,
            response_format: ResponseFormat::Auto,
            allow_hosts: Vec::new(),
            redirects: Redirects::SameHost,
            session: false,
            health_url: None,
            max_response: MAX_RESPONSE,
            max_unpacked: MAX_RESPONSE,
            ca_file: None,
            upstreams: Upstreams::default(),
        }
    }

    /// Adds a query parameter; the value is a template.
    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds a header; the value is a template.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a header whose value is a secret. Like other credentials, it is dropped on cross-origin redirects.
    #[must_use]
    pub fn secret_header(mut self, name: impl Into<String>, value: Secret) -> Self {
        self.secret_headers.push((name.into(), value));
        self
    }

    /// Says that a text in the request is secret, such as a key that is part of the path. It is masked in results, errors and the
    /// description of the tool. Values of query parameters, headers, cookies and fields with secret names need not be named.
    #[must_use]
    pub fn secret_text(mut self, text: impl Into<Arc<str>>) -> Self {
        self.secret_texts.push(SecretText::new(text));
        self
    }

    /// Adds a cookie; the value is a template.
    #[must_use]
    pub fn cookie(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.cookies.push((name.into(), value.into()));
        self
    }

    /// Maps an argument to a location, with a serialization style of OpenAPI.
    #[must_use]
    pub fn parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// Sets a JSON body whose strings are templates.
    #[must_use]
    pub fn json(self, template: impl Into<Value>) -> Self {
        self.body(Body::Json(template.into()))
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: Body) -> Self {
        self.body = Some(body);
        self
    }

    /// Sets the authentication.
    #[must_use]
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = Some(auth);
        self
    }

    /// Sets pool size, timeouts and retries.
    #[must_use]
    pub fn connection(mut self, config: ConnectionStateConfig) -> Self {
        self.connection = config;
        self
    }

    /// Sets the retry policy of the tool. Default: that of the connection settings, if it differs from the default.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Selects the part of a JSON response that is the result, by a JSON pointer: `/current/temperature`.
    #[must_use]
    pub fn select(mut self, pointer: impl Into<String>) -> Self {
        self.select = Some(pointer.into());
        self
    }

    /// Sets how the body of a response is interpreted.
    #[must_use]
    pub fn response_format(mut self, format: ResponseFormat) -> Self {
        self.response_format = format;
        self
    }

    /// Exempts a host from the address guard, which refuses private, loopback and other non-public addresses: `localhost`,
    /// `10.0.0.7` or, for one port only, `[::1]:8080`.
    #[must_use]
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.allow_hosts.push(host.into());
        self
    }

    /// Sets which redirects are followed.
    #[must_use]
    pub fn redirects(mut self, redirects: Redirects) -> Self {
        self.redirects = redirects;
        self
    }

    /// Sets whether the service's cookies are stored, separately for each thread. Tools with a session in the same thread and for the
    /// same host share them. Without this, cookies are never stored.
    #[must_use]
    pub fn session(mut self, enabled: bool) -> Self {
        self.session = enabled;
        self
    }

    /// Sets a health check URL, which responds to a GET with 2xx when the service works. It is probed while the tool is withheld, so
    /// that the tool recovers without a trial call.
    #[must_use]
    pub fn health_url(mut self, url: impl Into<String>) -> Self {
        self.health_url = Some(url.into());
        self
    }

    /// Sets the maximum size of a response in bytes. Default: 8 MiB.
    #[must_use]
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.max_response = bytes;
        self
    }

    /// Sets the maximum size of a response after decompression, in bytes. Default: 8 MiB.
    #[must_use]
    pub fn max_unpacked(mut self, bytes: usize) -> Self {
        self.max_unpacked = bytes;
        self
    }

    /// Sets a PEM file with CA certificates to trust in addition to those of the system.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Sets the connection pools to use. Default: those of the whole process.
    #[must_use]
    pub fn upstreams(mut self, upstreams: &Upstreams) -> Self {
        self.upstreams = upstreams.clone();
        self
    }

    /// The arguments that templates and parameters use, sorted.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let mut names: HashSet<String> = self.parameters.iter().map(|parameter| parameter.argument.clone()).collect();
        let pairs = self.query.iter().chain(&self.headers).chain(&self.cookies).map(|(_, value)| value);
        let form: &[(String, String)] = if let Some(Body::Form(fields)) = &self.body { fields } else { &[] };
        let text = if let Some(Body::Text(text)) = &self.body { Some(text) } else { None };
        let texts = [&self.url, &self.base_url, &self.path].into_iter().flatten().chain(pairs);
        for template in texts.chain(form.iter().map(|(_, value)| value)).chain(text) {
            if let Ok(template) = Template::parse(template) {
                names.extend(template.argument_names().map(str::to_owned));
            }
        }
        match &self.body {
            Some(Body::Json(value)) => {
                if let Ok(template) = JsonTemplate::parse(value) {
                    template.collect_argument_names(&mut names);
                }
            }
            Some(Body::FormFromArgument { argument, .. }) => drop(names.insert(argument.clone())),
            _ => {}
        }
        let mut names = Vec::from_iter(names);
        names.sort_unstable();
        names
    }

    /// All problems of the settings.
    #[must_use]
    pub fn problems(&self) -> Vec<RestError> {
        Plan::new(self).err().unwrap_or_default()
    }

    /// The request for display, without anything that may be secret. Null if the settings are invalid.
    #[cfg(feature = "mcp")]
    pub(crate) fn description(&self) -> Value {
        Plan::new(self).map_or(Value::Null, |plan| plan.description())
    }

    /// What the request does depends on this, except for its secrets.
    #[cfg(feature = "mcp")]
    pub(crate) fn implementation(&self) -> Value {
        plan::implementation(self)
    }

    /// The executor, for a tool that assembles the arguments first.
    pub(crate) fn executor(&self) -> Arc<dyn Executor> {
        Arc::new(RestExecutor::new(Plan::new(self)))
    }

    /// Builds the tool, with its parameters inferred from a type.
    pub fn tool<A: Arguments>(self, name: &str) -> ToolBuilder {
        let parameters = schema::infer::<A>();
        self.tool_with(name, parameters)
    }

    /// Builds the tool, with its parameters as a JSON Schema. Problems of the request are reported when the tool is registered.
    ///
    /// GET, HEAD and OPTIONS are marked read-only, PUT and DELETE idempotent; override that on the builder where it is not true.
    pub fn tool_with(self, name: &str, parameters: Value) -> ToolBuilder {
        let plan = Plan::new(&self);
        let config = plan.as_ref().map_or(Value::Null, Plan::description);
        let timeout = self.connection.timeout;
        let mut tool = ToolBuilder::new(name, "rest")
            .parameters(parameters)
            .config(config)
            .implementation(&plan::implementation(&self))
            .executor(Arc::new(RestExecutor::new(plan)));
        // Defaults are not set on the tool, because its own settings override the policies that match it by name.
        let from_connection = Some(self.connection.retry()).filter(|retry| *retry != Retry::default());
        if let Some(retry) = self.retry.or(from_connection) {
            tool = tool.retry(retry);
        }
        if timeout > Limits::default().timeout {
            tool = tool.timeout(timeout);
        }
        match self.method.to_ascii_uppercase().as_str() {
            "GET" | "HEAD" | "OPTIONS" => tool.read_only(),
            "PUT" | "DELETE" => tool.idempotent(),
            _ => tool,
        }
    }
}
