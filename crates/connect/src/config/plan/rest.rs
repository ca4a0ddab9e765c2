//! Resolves the config of a REST tool.
//!
//! In: the raw keys. Out: plain values that can be compared, and the `rest::Rest` built from them. `rest` itself finds the problems of
//! a request; this module maps them to config keys.

use std::path::PathBuf;

use serde_json::Value;
use toolhub_core::{ConnectionStateConfig, redact::is_secret_setting};
use toolhub_net::{AddressPolicy, Secret, SecretText, Url};

use crate::{
    config::{
        Diagnostics, KeyPath, Problem, SecretSource,
        raw::{self, Method, ResultFormat},
    },
    rest::{self, Body, ResponseFormat, RestError},
};

/// The resolved config of a REST tool.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RestPlan {
    raw: raw::Rest,
    /// The key of `raw.url`.
    url_key: &'static str,
    headers: Vec<(String, Header)>,
    auth: Option<rest::Auth>,
    ca_file: Option<PathBuf>,
    connection: ConnectionStateConfig,
    secret_texts: Vec<SecretText>,
}

/// The value of a header.
#[derive(Debug, Clone, PartialEq)]
enum Header {
    /// A template, or a value that need not be redacted; not printed either.
    Public(SecretText),
    Secret(Secret),
}

/// The userinfo of an address: `user`, often with `:password`.
fn url_userinfo(address: &str) -> Option<&str> {
    let host = address.split_once("://")?.1.split(['/', '?', '#']).next()?;
    host.rsplit_once('@').map(|(user, _)| user).filter(|user| !user.is_empty())
}

/// Resolves a request. Reports problems; the plan must not be used then.
pub(super) fn resolve(raw: &raw::Rest, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> RestPlan {
    resolve_with_guide(raw, "url", "docs/guide/rest.md has examples", at, diagnostics)
}

/// Resolves the address of an MCP server, which has this key in the config.
pub(super) fn resolve_server(
    raw: &raw::Rest,
    url_key: &'static str,
    at: &KeyPath,
    diagnostics: &mut Diagnostics<'_>,
) -> RestPlan {
    resolve_with_guide(raw, url_key, "docs/guide/mcp.md has examples", at, diagnostics)
}

fn resolve_with_guide(
    raw: &raw::Rest,
    url_key: &'static str,
    guide: &str,
    at: &KeyPath,
    diagnostics: &mut Diagnostics<'_>,
) -> RestPlan {
    let before = diagnostics.problems().len();
    check_address(raw, at, diagnostics);
    let has_address = diagnostics.problems().len() == before;
    if raw.body.is_some() && !raw.form.is_empty() {
        diagnostics.report(&at.key("form"), "`body` and `form` exclude each other", "keep either `body` or `form`");
    }
    if raw.follow_redirects == Some(false) && !raw.redirect_hosts.is_empty() {
        let help = "remove `redirect_hosts`, or `follow_redirects = false`";
        diagnostics.report(
            &at.key("redirect_hosts"),
            "`redirect_hosts` has no effect with `follow_redirects = false`",
            help,
        );
    }
    let mut headers = Vec::new();
    for (name, value) in &raw.headers {
        let Some(text) = value.fetch(&at.key("headers").key(name), diagnostics) else { continue };
        // A fetched value is never a template, even if it contains braces.
        let fetched = !matches!(value, SecretSource::Text(_));
        let header = if fetched || is_secret_setting(name) && !text.reveal().contains('{') {
            Header::Secret(text.into())
        } else {
            Header::Public(text)
        };
        headers.push((name.clone(), header));
    }
    let auth = raw.auth.as_ref().and_then(|auth| auth.fetch(&at.key("auth"), diagnostics));
    let ca_file = raw.ca_file.as_deref().map(|file| diagnostics.resolve_path(&at.key("ca_file"), file));
    let connection = raw.connection.as_ref().map(ConnectionStateConfig::from).unwrap_or_default();
    let secret_texts = diagnostics.env().secret_texts(at);
    let plan = RestPlan { raw: raw.clone(), url_key, headers, auth, ca_file, connection, secret_texts };
    let secrets = plan.secrets_to_redact();
    for RestError { setting, problem, .. } in plan.request().problems() {
        // `check_address` has already reported a missing or a second address.
        if setting == "url" && !has_address {
            continue;
        }
        let problem = secrets.iter().fold(problem, |problem, text| problem.replace(text, "••••"));
        let path = plan.setting_key(at, &setting);
        let message = if problem.starts_with("is ") || problem.starts_with("has ") {
            format!("`{}` {problem}", path.last_key())
        } else {
            problem
        };
        diagnostics.report(&path, message, guide);
    }
    plan
}

fn check_address(raw: &raw::Rest, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) {
    match (&raw.url, &raw.base_url, &raw.path) {
        (Some(_), None, None) | (None, Some(_), _) => {}
        (Some(_), ..) => {
            let help = "write either `url`, or `base_url` with `path`";
            diagnostics.report(&at.key("url"), "the address is given twice", help);
        }
        (None, None, _) => {
            diagnostics.report(at, "the tool has no address", "add `url = \"https://…\"`, or `base_url` with `path`");
        }
    }
}

impl RestPlan {
    /// Whether its method is a safe one, which only reads.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.raw.method, None | Some(Method::Get | Method::Head | Method::Options))
    }

    /// Secrets written as literals in headers and addresses, which no message may repeat.
    fn secrets_to_redact(&self) -> Vec<&str> {
        let headers = self.headers.iter().filter_map(|(name, value)| match value {
            Header::Public(text) if is_secret_setting(name) => Some(text.reveal()),
            _ => None,
        });
        let token_url = match &self.auth {
            Some(rest::Auth::ClientCredentials { token_url, .. }) => Some(token_url),
            _ => None,
        };
        let addresses =
            [&self.raw.url, &self.raw.base_url, &self.raw.health_url].into_iter().flatten().chain(token_url);
        headers.chain(addresses.filter_map(|address| url_userinfo(address))).filter(|text| !text.is_empty()).collect()
    }

    /// The config key of a setting of the request.
    fn setting_key(&self, at: &KeyPath, setting: &str) -> KeyPath {
        let raw = &self.raw;
        let (section, inside) =
            setting.split_once('.').map_or((setting, None), |(section, inside)| (section, Some(inside)));
        let section = match section {
            "select" | "max_unpacked" => return at.key("result").key(section),
            "max_response" => return at.key("result").key("max_bytes"),
            "redirects" => return at.key("redirect_hosts"),
            "path" if raw.path.is_none() => return at.key(if raw.url.is_some() { self.url_key } else { "base_url" }),
            "body" if raw.body.is_none() => "form",
            "url" => self.url_key,
            other => other,
        };
        match (section, inside) {
            (_, None) => at.key(section),
            // Header and field names are single keys, even if they contain dots.
            ("headers", Some(name)) => {
                let key = raw.headers.keys().find(|key| key.eq_ignore_ascii_case(name));
                at.key(section).key(key.map_or(name, String::as_str))
            }
            ("query" | "form", Some(name)) => at.key(section).key(name),
            (_, Some(inside)) => at.key(section).key(inside.split('.').next().unwrap_or(inside)),
        }
    }

    /// What makes every call fail: an address that the guard refuses, as far as that is known without a DNS lookup.
    pub(super) fn obstacles(&self, at: &KeyPath) -> Vec<Problem> {
        let raw = &self.raw;
        let policy = AddressPolicy::PublicOrHosts(raw.allow_hosts.clone());
        let addresses = [(self.url_key, &raw.url), ("base_url", &raw.base_url), ("health_url", &raw.health_url)];
        let refused = addresses.into_iter().filter_map(|(key, address)| {
            let url = Url::parse(address.as_deref()?).ok()?;
            let (host, range) = (url.host_str()?.to_owned(), policy.refusal_without_lookup(&url)?);
            let message = format!("requests to `{host}` are refused, because it is {range}");
            Some(Problem { key: at.key(key), message, help: format!("add allow_hosts = [\"{host}\"]") })
        });
        refused.collect()
    }

    /// Exempts more hosts from the address guard.
    pub(super) fn allow_hosts(&mut self, hosts: &[String]) {
        self.raw.allow_hosts.extend_from_slice(hosts);
    }

    /// Builds the request.
    pub(super) fn request(&self) -> rest::Rest {
        let raw = &self.raw;
        let method = match raw.method.unwrap_or(Method::Get) {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
        };
        let mut request = match (&raw.url, &raw.base_url) {
            (None, Some(base)) => rest::Rest::at(method, base, raw.path.as_deref().unwrap_or_default()),
            (url, _) => rest::Rest::new(method, url.as_deref().unwrap_or_default()),
        };
        request = raw.query.iter().fold(request, |request, (name, value)| request.query(name, value));
        for (name, value) in &self.headers {
            request = match value {
                Header::Public(text) => request.header(name, text.reveal()),
                Header::Secret(secret) => request.secret_header(name, secret.clone()),
            };
        }
        if let Some(body) = &raw.body {
            request = request.json(body.clone());
        } else if !raw.form.is_empty() {
            let fields = raw.form.iter().map(|(name, value)| (name.clone(), value.clone()));
            request = request.body(Body::Form(fields.collect()));
        }
        if let Some(auth) = &self.auth {
            request = request.auth(auth.clone());
        }
        request = self.secret_texts.iter().cloned().fold(request, rest::Rest::secret_text);
        request = request.connection(self.connection.clone()).session(raw.session == Some(true));
        if let Some(retry) = raw.connection.as_ref().and_then(raw::Connection::retry) {
            request = request.retry(retry);
        }
        request = raw.allow_hosts.iter().fold(request, rest::Rest::allow_host);
        request = request.redirects(match raw.redirect_hosts.as_slice() {
            _ if raw.follow_redirects == Some(false) => rest::Redirects::Never,
            [] => rest::Redirects::SameHost,
            hosts => rest::Redirects::To(hosts.to_vec()),
        });
        if let Some(url) = &raw.health_url {
            request = request.health_url(url);
        }
        if let Some(file) = &self.ca_file {
            request = request.ca_file(file);
        }
        self.with_result(request)
    }

    fn with_result(&self, mut request: rest::Rest) -> rest::Rest {
        let result = &self.raw.result;
        if let Some(pointer) = &result.select {
            request = request.select(pointer);
        }
        if let Some(format) = result.format {
            request = request.response_format(match format {
                ResultFormat::Json => ResponseFormat::Json,
                ResultFormat::Text => ResponseFormat::Text,
                ResultFormat::Binary => ResponseFormat::Binary,
            });
        }
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        if let Some(size) = result.max_bytes {
            request = request.max_response(bytes(size.0));
        }
        if let Some(size) = result.max_unpacked {
            request = request.max_unpacked(bytes(size.0));
        }
        request
    }

    /// The default parameters: a string for each argument used in a template.
    pub(super) fn parameters(&self) -> Value {
        let names = self.request().arguments();
        let properties = names.iter().map(|name| (name.clone(), serde_json::json!({ "type": "string" })));
        let properties: serde_json::Map<String, Value> = properties.collect();
        serde_json::json!({ "type": "object", "properties": properties, "required": names })
    }
}
