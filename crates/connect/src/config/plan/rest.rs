//! What holds for a tool that is an HTTP request.
//!
//! In: what is said. Out: plain values that can be compared, and the request made of them. What is wrong with a request is found by
//! whoever makes it, and told at the key it stands at.

use std::path::PathBuf;

use serde_json::Value;
use toolhub_core::ConnectionStateConfig;

use super::auth::{AuthMethod, ResolvedAuth, to_secret};
use crate::{
    config::{
        Diagnostics, KeyPath, SecretSource, SecretString,
        raw::{self, AnswerForm, Method},
    },
    rest::{self, Body, ResponseFormat, RestError},
};

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RestPlan {
    raw: raw::Rest,
    headers: Vec<(String, Header)>,
    auth: Option<ResolvedAuth>,
    ca_file: Option<PathBuf>,
    connection: ConnectionStateConfig,
}

/// The value of a header.
#[derive(Debug, Clone, PartialEq)]
enum Header {
    /// With arguments in it, or nothing to hide from whoever reads about the tool; not printed all the same.
    Public(SecretString),
    Secret(SecretString),
}

/// A header of such a name is a secret, whatever it says.
const SECRET_NAMES: [&str; 7] = ["auth", "key", "token", "secret", "password", "cookie", "session"];

fn is_secret(header: &str) -> bool {
    let lower = header.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|word| lower.contains(word))
}

/// What stands before the host in an address: a user, often with a password.
fn url_userinfo(address: &str) -> Option<&str> {
    let host = address.split_once("://")?.1.split(['/', '?', '#']).next()?;
    host.rsplit_once('@').map(|(user, _)| user).filter(|user| !user.is_empty())
}

/// Works out a request. What is wrong is told the desk, and nothing is made of it then.
pub(super) fn resolve(said: &raw::Rest, at: &KeyPath, desk: &mut Diagnostics<'_>) -> RestPlan {
    let before = desk.problems().len();
    check_address(said, at, desk);
    let has_address = desk.problems().len() == before;
    if said.body.is_some() && !said.form.is_empty() {
        desk.report(&at.key("form"), "a request has one body, and this one has two", "keep either `body` or `form`");
    }
    if said.follow_redirects == Some(false) && !said.redirect_hosts.is_empty() {
        let help = "remove `redirect_hosts`, or `follow_redirects = false`";
        desk.report(&at.key("redirect_hosts"), "no redirect is followed, and here are hosts for them", help);
    }
    let mut headers = Vec::new();
    for (name, value) in &said.headers {
        let Some(text) = value.fetch(&at.key("headers").key(name), desk) else { continue };
        // What comes from elsewhere is no template, whatever it holds.
        let fetched = !matches!(value, SecretSource::Text(_));
        let header = if fetched || is_secret(name) && !text.reveal().contains('{') {
            Header::Secret(text)
        } else {
            Header::Public(text)
        };
        headers.push((name.clone(), header));
    }
    let auth = said.auth.as_ref().and_then(|auth| auth.fetch(&at.key("auth"), desk));
    let ca_file = said.ca_file.as_deref().map(|file| desk.resolve_path(&at.key("ca_file"), file));
    let connection = said.connection.as_ref().map(ConnectionStateConfig::from).unwrap_or_default();
    let found = RestPlan { raw: said.clone(), headers, auth, ca_file, connection };
    let hidden = found.secrets_to_redact();
    for RestError { setting, problem, .. } in found.request().problems() {
        // That of the two addresses, or of none, is told already.
        if setting == "url" && !has_address {
            continue;
        }
        let problem = hidden.iter().fold(problem, |problem, text| problem.replace(text, "••••"));
        let path = found.setting_key(at, &setting);
        let message = if problem.starts_with("is ") || problem.starts_with("has ") {
            format!("`{}` {problem}", path.last_key())
        } else {
            problem
        };
        desk.report(&path, message, "docs/guide/rest.md has examples");
    }
    found
}

fn check_address(said: &raw::Rest, at: &KeyPath, desk: &mut Diagnostics<'_>) {
    match (&said.url, &said.base_url, &said.path) {
        (Some(_), None, None) | (None, Some(_), _) => {}
        (Some(_), ..) => {
            let help = "write either `url`, or `base_url` with `path`";
            desk.report(&at.key("url"), "the address is said twice", help);
        }
        (None, None, _) => {
            desk.report(at, "the tool has no address", "add `url = \"https://…\"`, or `base_url` with `path`");
        }
    }
}

impl RestPlan {
    /// Whether it only reads, by its method.
    pub(super) fn is_read_only(&self) -> bool {
        matches!(self.raw.method, None | Some(Method::Get | Method::Head | Method::Options))
    }

    /// What no message may repeat, though it is written where it can be seen.
    fn secrets_to_redact(&self) -> Vec<&str> {
        let headers = self.headers.iter().filter_map(|(name, value)| match value {
            Header::Public(text) if is_secret(name) => Some(text.reveal()),
            _ => None,
        });
        let token = match &self.auth {
            Some(ResolvedAuth(AuthMethod::ClientCredentials { token_url, .. })) => Some(token_url),
            _ => None,
        };
        let addresses = [&self.raw.url, &self.raw.base_url, &self.raw.health_url].into_iter().flatten().chain(token);
        headers.chain(addresses.filter_map(|address| url_userinfo(address))).filter(|text| !text.is_empty()).collect()
    }

    /// Where a setting of the request stands in a config.
    fn setting_key(&self, at: &KeyPath, setting: &str) -> KeyPath {
        let said = &self.raw;
        let (section, inside) =
            setting.split_once('.').map_or((setting, None), |(section, inside)| (section, Some(inside)));
        let section = match section {
            "select" | "max_unpacked" => return at.key("result").key(section),
            "max_response" => return at.key("result").key("max_bytes"),
            "redirects" => return at.key("redirect_hosts"),
            "path" if said.path.is_none() => return at.key(if said.url.is_some() { "url" } else { "base_url" }),
            "body" if said.body.is_none() => "form",
            other => other,
        };
        match (section, inside) {
            (_, None) => at.key(section),
            // Names that the owner chose are whole keys, dots and all.
            ("headers", Some(name)) => {
                let written = said.headers.keys().find(|written| written.eq_ignore_ascii_case(name));
                at.key(section).key(written.map_or(name, String::as_str))
            }
            ("query" | "form", Some(name)) => at.key(section).key(name),
            (_, Some(inside)) => at.key(section).key(inside.split('.').next().unwrap_or(inside)),
        }
    }

    /// More hosts that may be reached.
    pub(super) fn allow_hosts(&mut self, hosts: &[String]) {
        self.raw.allow_hosts.extend_from_slice(hosts);
    }

    /// The request.
    pub(super) fn request(&self) -> rest::Rest {
        let said = &self.raw;
        let method = match said.method.unwrap_or(Method::Get) {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
        };
        let mut request = match (&said.url, &said.base_url) {
            (None, Some(base)) => rest::Rest::at(method, base, said.path.as_deref().unwrap_or_default()),
            (url, _) => rest::Rest::new(method, url.as_deref().unwrap_or_default()),
        };
        request = said.query.iter().fold(request, |request, (name, value)| request.query(name, value));
        for (name, value) in &self.headers {
            request = match value {
                Header::Public(text) => request.header(name, text.reveal()),
                Header::Secret(hidden) => request.secret_header(name, to_secret(hidden)),
            };
        }
        if let Some(body) = &said.body {
            request = request.json(body.clone());
        } else if !said.form.is_empty() {
            let fields = said.form.iter().map(|(name, value)| (name.clone(), value.clone()));
            request = request.body(Body::Form(fields.collect()));
        }
        if let Some(auth) = &self.auth {
            request = request.auth(auth.to_rest());
        }
        request = request.connection(self.connection.clone()).session(said.session == Some(true));
        request = said.allow_hosts.iter().fold(request, rest::Rest::allow_host);
        request = request.redirects(match said.redirect_hosts.as_slice() {
            _ if said.follow_redirects == Some(false) => rest::Redirects::Never,
            [] => rest::Redirects::SameHost,
            hosts => rest::Redirects::To(hosts.to_vec()),
        });
        if let Some(url) = &said.health_url {
            request = request.health_url(url);
        }
        if let Some(file) = &self.ca_file {
            request = request.ca_file(file);
        }
        self.with_result(request)
    }

    fn with_result(&self, mut request: rest::Rest) -> rest::Rest {
        let said = &self.raw.result;
        if let Some(pointer) = &said.select {
            request = request.select(pointer);
        }
        if let Some(form) = said.form {
            request = request.response_format(match form {
                AnswerForm::Json => ResponseFormat::Json,
                AnswerForm::Text => ResponseFormat::Text,
                AnswerForm::Binary => ResponseFormat::Binary,
            });
        }
        let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        if let Some(size) = said.max_bytes {
            request = request.max_response(bytes(size.0));
        }
        if let Some(size) = said.max_unpacked {
            request = request.max_unpacked(bytes(size.0));
        }
        request
    }

    /// The parameters where nobody described them: a text for each argument that a template names.
    pub(super) fn parameters(&self) -> Value {
        let names = self.request().arguments();
        let properties = names.iter().map(|name| (name.clone(), serde_json::json!({ "type": "string" })));
        let properties: serde_json::Map<String, Value> = properties.collect();
        serde_json::json!({ "type": "object", "properties": properties, "required": names })
    }
}
