//! What an owner says about a request, in any order.
//!
//! In: words. Out: a [`ToolBuilder`], or every problem with what was said. Nothing is checked before [`Rest::problems`] or the
//! registration of the tool; `plan.rs` does the checking.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use serde_json::Value;
use toolhub_core::{Arguments, ConnectionStateConfig, Executor, Limits, Retry, ToolBuilder, schema};

use super::{
    Auth, Body, Parameter, RestError, Secret, Upstreams, executor::RestExecutor, json_template::JsonTemplate,
    plan::Plan, template::Template,
};

/// A request that is a tool.
///
/// Texts are templates: `{city}` stands for the argument `city`, and is encoded for its place, so that no value can change
/// the host, the number of path segments or the headers. `{{` and `}}` are braces. An argument that is absent or `null` takes its pair
/// of the query, its header or its member of the body with it; in a path it must be there. What no template names goes into the
/// query (GET, HEAD, DELETE, OPTIONS) or into the JSON body (others).
///
/// ```
/// use serde_json::json;
/// use toolhub_connect::rest::{Auth, Rest, Secret};
///
/// let weather = Rest::get("https://api.weather.example/v1/{country}/current?city={city}")
///     .auth(Auth::bearer(Secret::plain("…")))
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
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
    pub(super) auth: Option<Auth>,
    pub(super) connection: ConnectionStateConfig,
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

/// What is made of the body of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseFormat {
    /// What its content type says: JSON, text, or an artifact for everything else.
    #[default]
    Auto,
    /// JSON, whatever the service calls it.
    Json,
    /// Text.
    Text,
    /// An artifact.
    Binary,
}

/// Which redirects are followed. Each address on the way is looked at like the first one; none leads from https to http, and
/// what shows who we are stays behind as soon as scheme, host or port are others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Redirects {
    /// None.
    Never,
    /// Those that stay on the host.
    #[default]
    SameHost,
    /// Those that stay on the host, or lead to one of these.
    To(Vec<String>),
}

/// How many bytes of an answer are read, and how many it may become when it is unpacked.
const MAX_RESPONSE: usize = 8 * 1024 * 1024;

impl Rest {
    /// A request to an address with a method such as `"GET"`.
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

    /// A request to a path below a fixed address: `Rest::at("GET", "https://api.example/v1", "/users/{id}")`.
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
            parameters: Vec::new(),
            body: None,
            auth: None,
            connection: ConnectionStateConfig::default(),
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

    /// A pair of the query; the value is a template.
    #[must_use]
    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// A header; the value is a template.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// A header whose value is a secret. Like all that shows who we are, it stays behind when a redirect leads elsewhere.
    #[must_use]
    pub fn secret_header(mut self, name: impl Into<String>, value: Secret) -> Self {
        self.secret_headers.push((name.into(), value));
        self
    }

    /// A cookie; the value is a template.
    #[must_use]
    pub fn cookie(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.cookies.push((name.into(), value.into()));
        self
    }

    /// An argument that goes to a place, written in a style of OpenAPI.
    #[must_use]
    pub fn parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// A JSON body whose texts are templates.
    #[must_use]
    pub fn json(self, template: impl Into<Value>) -> Self {
        self.body(Body::Json(template.into()))
    }

    /// The body.
    #[must_use]
    pub fn body(mut self, body: Body) -> Self {
        self.body = Some(body);
        self
    }

    /// How requests show who they are from.
    #[must_use]
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = Some(auth);
        self
    }

    /// How many requests at once, how long each step may take, how often to try again.
    #[must_use]
    pub fn connection(mut self, config: ConnectionStateConfig) -> Self {
        self.connection = config;
        self
    }

    /// The part of a JSON answer that is the result, as a JSON pointer: `/current/temperature`.
    #[must_use]
    pub fn select(mut self, pointer: impl Into<String>) -> Self {
        self.select = Some(pointer.into());
        self
    }

    /// What is made of the body of an answer.
    #[must_use]
    pub fn response_format(mut self, answer: ResponseFormat) -> Self {
        self.response_format = answer;
        self
    }

    /// A host that may be reached although its address is private, a loopback one or otherwise not of the open internet:
    /// `localhost`, `10.0.0.7` or, for one port only, `[::1]:8080`.
    #[must_use]
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.allow_hosts.push(host.into());
        self
    }

    /// Which redirects are followed.
    #[must_use]
    pub fn redirects(mut self, redirects: Redirects) -> Self {
        self.redirects = redirects;
        self
    }

    /// Whether the service's cookies are kept, for each thread apart. Tools with a session in the same thread and on the same
    /// host share them. Without this, no cookie is ever kept.
    #[must_use]
    pub fn session(mut self, keep: bool) -> Self {
        self.session = keep;
        self
    }

    /// An address that answers a GET with 2xx when the service is well. While the tool is withheld it is asked now and then, so
    /// that the tool comes back without a call that has to be risked.
    #[must_use]
    pub fn health_url(mut self, url: impl Into<String>) -> Self {
        self.health_url = Some(url.into());
        self
    }

    /// How many bytes of an answer are read; 8 MiB where nothing is said.
    #[must_use]
    pub fn max_response(mut self, bytes: usize) -> Self {
        self.max_response = bytes;
        self
    }

    /// How many bytes an answer may become when it is unpacked; 8 MiB where nothing is said.
    #[must_use]
    pub fn max_unpacked(mut self, bytes: usize) -> Self {
        self.max_unpacked = bytes;
        self
    }

    /// A file with certificates, in PEM, of those who may vouch for the service beside those the system trusts.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// The connections it shares with others; those of the whole process where nothing is said.
    #[must_use]
    pub fn upstreams(mut self, upstreams: &Upstreams) -> Self {
        self.upstreams = upstreams.clone();
        self
    }

    /// The arguments that are named somewhere in the request, sorted. Those that nothing names are not among them.
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
                if let Ok(leaf) = JsonTemplate::parse(value) {
                    leaf.collect_argument_names(&mut names);
                }
            }
            Some(Body::FormFromArgument { argument, .. }) => drop(names.insert(argument.clone())),
            _ => {}
        }
        let mut names = Vec::from_iter(names);
        names.sort_unstable();
        names
    }

    /// Everything that is wrong with what was said.
    #[must_use]
    pub fn problems(&self) -> Vec<RestError> {
        Plan::new(self).err().unwrap_or_default()
    }

    /// What sends the requests, for a tool that puts their arguments together first.
    pub(crate) fn executor(&self) -> Arc<dyn Executor> {
        Arc::new(RestExecutor::new(Plan::new(self)))
    }

    /// The tool, with its parameters taken from a type.
    pub fn tool<A: Arguments>(self, name: &str) -> ToolBuilder {
        let parameters = schema::infer::<A>();
        self.tool_with(name, parameters)
    }

    /// The tool, with its parameters as a JSON Schema. What is wrong with the request is told when the tool is registered.
    ///
    /// A GET or HEAD is taken for read-only, a PUT or DELETE for idempotent; say otherwise on the builder where that is not so.
    pub fn tool_with(self, name: &str, parameters: Value) -> ToolBuilder {
        let plan = Plan::new(&self);
        let config = plan.as_ref().map_or(Value::Null, Plan::description);
        let time = self.connection.timeout;
        let mut tool = ToolBuilder::new(name, "rest")
            .parameters(parameters)
            .config(config)
            .executor(Arc::new(RestExecutor::new(plan)));
        // Only what was said is said of the tool: it would weigh more than what is said about tools by name.
        if self.connection.retry() != Retry::default() {
            tool = tool.retry(self.connection.retry());
        }
        if time > Limits::default().timeout {
            tool = tool.timeout(time);
        }
        match self.method.to_ascii_uppercase().as_str() {
            "GET" | "HEAD" | "OPTIONS" => tool.read_only(),
            "PUT" | "DELETE" => tool.idempotent(),
            _ => tool,
        }
    }
}
