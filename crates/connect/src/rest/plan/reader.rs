//! Parses the settings one after the other, and collects their problems.
//!
//! In: a [`Rest`]. Out: the template of its requests, their origin, and all problems.

use std::{collections::HashSet, time::Duration};

use hyper::{Method, header::HeaderName};
use toolhub_net::Origin;

use super::{RESERVED_HEADERS, join_url};
use crate::rest::{
    Auth, Body, KeyLocation, Parameter, ParameterLocation, Rest, RestError, Style, encode, fixed_url,
    json_template::JsonTemplate,
    parse_header_name,
    request::{BodyTemplate, PathPiece, Placeholder, RequestTemplate, Segment, ValueSource},
    template::{Piece, Template},
};

pub(super) struct Reader<'a> {
    rest: &'a Rest,
    pub(super) problems: Vec<RestError>,
    named_arguments: HashSet<String>,
    reserved_query: HashSet<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a Rest) -> Self {
        Self { rest, problems: Vec::new(), named_arguments: HashSet::new(), reserved_query: HashSet::new() }
    }

    pub(super) fn report<T>(&mut self, setting: impl Into<String>, problem: impl Into<String>) -> Option<T> {
        self.problems.push(RestError::new(setting, problem));
        None
    }

    /// Parses the address into origin, path template and query text.
    pub(super) fn parse_address(&mut self) -> Option<(Origin, Template, String)> {
        let rest = self.rest;
        let (setting, text) = match (&rest.url, &rest.base_url) {
            (Some(url), None) => ("url", url.clone()),
            (None, Some(base)) => {
                if base.contains(['?', '#', '{', '}']) {
                    return self.report("base_url", "has a `?`, `#` or brace; put query and arguments into `path`");
                }
                ("base_url", join_url(base, rest.path.as_deref()))
            }
            _ => return self.report("url", "set either `url`, or `base_url` with `path`"),
        };
        let begin = text.find("://").map_or(0, |at| at + 3);
        let end = text[begin..].find(['/', '?', '#']).map_or(text.len(), |at| begin + at);
        let (head, tail) = text.split_at(end);
        if head.contains(['{', '}']) {
            let head = fixed_url::redact_url(head);
            return self.report(setting, format!("`{head}`: scheme, host and port may not depend on an argument"));
        }
        let origin = match fixed_url::parse(head) {
            Ok((origin, _)) => origin,
            Err(reason) => return self.report(setting, format!("`{}` {reason}", fixed_url::redact_url(head))),
        };
        let setting = if rest.path.is_some() { "path" } else { setting };
        if tail.contains('#') {
            return self.report(setting, "has a fragment (`#`), which is never sent; remove it, or write %23");
        }
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        match Template::parse(path) {
            Ok(path) => Some((origin, path, query.to_owned())),
            Err(reason) => self.report(setting, format!("the path {reason}")),
        }
    }

    pub(super) fn request_template(&mut self, address: Option<(&Template, &str)>) -> Option<RequestTemplate> {
        let rest = self.rest;
        let method = self.method();
        let (path, url_query) = address.unzip();
        let path = path.map(|path| self.path(path)).unwrap_or_default();
        let mut query = self.url_query(url_query.unwrap_or_default());
        for (name, text) in &rest.query {
            let template = self.template(format!("query.{name}"), text);
            query.push((name.clone(), ValueSource::Template(template)));
        }
        let (mut headers, mut cookies) = (Vec::new(), Vec::new());
        for (name, text) in &rest.headers {
            let setting = format!("headers.{name}");
            let (template, name) = (self.template(setting.clone(), text), self.header(name));
            // The value is not quoted, because it may be a secret.
            if let Some(reason) = template.literal_texts().find_map(|text| encode::check_header(text).err()) {
                self.report::<()>(setting, format!("the value {reason}"));
            }
            headers.extend(name.map(|name| (name, ValueSource::Template(template))));
        }
        for (name, _) in &rest.secret_headers {
            self.header(name);
        }
        for (name, text) in &rest.cookies {
            let template = self.template(format!("cookies.{name}"), text);
            cookies.push((name.clone(), ValueSource::Template(template)));
        }
        for parameter in &rest.parameters {
            let source = ValueSource::Placeholder(self.placeholder(parameter));
            match parameter.location {
                ParameterLocation::Path => {}
                ParameterLocation::Query => query.push((parameter.name.clone(), source)),
                ParameterLocation::Header => headers.extend(self.header(&parameter.name).map(|name| (name, source))),
                ParameterLocation::Cookie => cookies.push((parameter.name.clone(), source)),
            }
        }
        self.reserved_query.extend(query.iter().map(|(name, _)| name.clone()));
        let auth = rest.auth.as_ref().and_then(Auth::key_parameter);
        self.check_key_conflict(auth, KeyLocation::Query, "query", &query);
        self.check_key_conflict(auth, KeyLocation::Cookie, "cookies", &cookies);
        self.reserved_query
            .extend(auth.filter(|(location, _)| *location == KeyLocation::Query).map(|(_, name)| name.to_owned()));
        let mut reserved_cookies: HashSet<String> = cookies.iter().map(|(name, _)| name.clone()).collect();
        reserved_cookies
            .extend(auth.filter(|(location, _)| *location == KeyLocation::Cookie).map(|(_, name)| name.to_owned()));
        let body = self.body(method.as_ref());
        Some(RequestTemplate {
            method: method?,
            path,
            query,
            headers,
            cookies,
            body,
            named_arguments: std::mem::take(&mut self.named_arguments),
            reserved_query: std::mem::take(&mut self.reserved_query),
            reserved_cookies,
        })
    }

    /// Refuses an API key whose name is already used: two values would be sent, and the service might use the one that is not the key.
    fn check_key_conflict(
        &mut self,
        auth: Option<(KeyLocation, &str)>,
        location: KeyLocation,
        part: &str,
        values: &[(String, ValueSource)],
    ) {
        let conflict = auth.filter(|(at, key)| *at == location && values.iter().any(|(name, _)| name == key));
        if let Some((_, key)) = conflict {
            self.report::<()>("auth", format!("the key `{key}` is already set in the {part}; remove one of them"));
        }
    }

    fn method(&mut self) -> Option<Method> {
        let method = self.rest.method.to_ascii_uppercase();
        match method.as_str() {
            "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => method.parse().ok(),
            _ => {
                self.report("method", format!("`{method}` is not one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"))
            }
        }
    }

    /// The segments of a path.
    fn path(&mut self, template: &Template) -> Vec<Segment> {
        let mut segments: Vec<Segment> = vec![Vec::new()];
        for piece in &template.0 {
            match piece {
                Piece::Text(text) => {
                    for (at, part) in text.split('/').enumerate() {
                        if at > 0 {
                            segments.push(Vec::new());
                        }
                        if !part.is_empty() {
                            segments
                                .last_mut()
                                .expect("never empty")
                                .push(PathPiece::Text(encode::encode_literal(part)));
                        }
                    }
                }
                Piece::Argument(name) => {
                    let is_own = |parameter: &&Parameter| {
                        parameter.location == ParameterLocation::Path && parameter.name == *name
                    };
                    let placeholder = match self.rest.parameters.iter().find(is_own) {
                        Some(parameter) => self.placeholder(parameter),
                        None => {
                            self.named_arguments.insert(name.clone());
                            let argument = name.clone();
                            Placeholder { name: argument.clone(), argument, style: Style::Simple, explode: false }
                        }
                    };
                    segments.last_mut().expect("never empty").push(PathPiece::Placeholder(placeholder));
                }
            }
        }
        let names: HashSet<&str> = template.argument_names().collect();
        for parameter in self.rest.parameters.iter().filter(|parameter| parameter.location == ParameterLocation::Path) {
            if !names.contains(parameter.name.as_str()) {
                self.report::<()>(
                    "parameters",
                    format!("path parameter `{}` has no placeholder `{{{0}}}` in the path", parameter.name),
                );
            }
        }
        let is_dots = |segment: &Segment| match &segment[..] {
            [PathPiece::Text(text)] => matches!(encode::decode(text).as_str(), "." | ".."),
            _ => false,
        };
        if segments.iter().any(is_dots) {
            self.report::<()>("path", "has a segment `.` or `..`; write the normalized path");
        }
        // The first element is the text before the first slash.
        segments.remove(0);
        if segments.is_empty() { vec![Vec::new()] } else { segments }
    }

    fn url_query(&mut self, text: &str) -> Vec<(String, ValueSource)> {
        let mut query = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if name.contains(['{', '}']) {
                self.report::<()>("url", format!("the query name `{name}` may not depend on an argument"));
                continue;
            }
            let mut template = self.template("url".into(), value);
            for piece in &mut template.0 {
                if let Piece::Text(text) = piece {
                    *text = encode::decode(text);
                }
            }
            query.push((encode::decode(name), ValueSource::Template(template)));
        }
        query
    }

    /// Parses a template.
    fn template(&mut self, setting: String, text: &str) -> Template {
        match Template::parse(text) {
            Ok(template) => {
                self.named_arguments.extend(template.argument_names().map(str::to_owned));
                template
            }
            Err(reason) => {
                // The problem must not quote the text, which may be a secret.
                self.report::<()>(setting, reason);
                Template::default()
            }
        }
    }

    fn placeholder(&mut self, parameter: &Parameter) -> Placeholder {
        let Parameter { location, name, argument, style, explode } = parameter.clone();
        let is_valid = match style {
            Style::Json => true,
            Style::Simple => matches!(location, ParameterLocation::Path | ParameterLocation::Header),
            Style::Label | Style::Matrix => location == ParameterLocation::Path,
            Style::Form => matches!(location, ParameterLocation::Query | ParameterLocation::Cookie),
            Style::SpaceDelimited | Style::PipeDelimited | Style::DeepObject => location == ParameterLocation::Query,
        };
        if !is_valid {
            self.report::<()>(
                "parameters",
                format!("`{name}`: style {style:?} is not valid for location {location:?}"),
            );
        }
        self.named_arguments.insert(argument.clone());
        Placeholder { argument, name, style, explode }
    }

    fn header(&mut self, name: &str) -> Option<HeaderName> {
        match parse_header_name(name) {
            Ok(name) if RESERVED_HEADERS.contains(&name.as_str()) => {
                let help = if name == "cookie" {
                    "; use `auth` for a key in a cookie, or in code `cookies` for others"
                } else {
                    ""
                };
                self.report(format!("headers.{name}"), format!("this header is set by the HTTP client itself{help}"))
            }
            Ok(name) => Some(name),
            Err(()) => self.report(format!("headers.{name}"), "is not a valid header name"),
        }
    }

    fn body(&mut self, method: Option<&Method>) -> Option<BodyTemplate> {
        let body = self.rest.body.as_ref()?;
        if matches!(method, Some(&Method::GET | &Method::HEAD)) {
            return self.report("body", "a GET or HEAD has no body; use `query`, or another method");
        }
        Some(match body {
            Body::Json(template) => match JsonTemplate::parse(template) {
                Ok(template) => {
                    template.collect_argument_names(&mut self.named_arguments);
                    BodyTemplate::Json(template)
                }
                Err(reason) => return self.report("body", reason),
            },
            Body::Form(fields) => BodyTemplate::Form(
                fields.iter().map(|(name, text)| (name.clone(), self.template(format!("body.{name}"), text))).collect(),
            ),
            Body::FormFromArgument { argument, fields } => {
                self.named_arguments.insert(argument.clone());
                BodyTemplate::FormFromArgument(argument.clone(), fields.clone())
            }
            Body::Text(text) => BodyTemplate::Text(self.template("body".into(), text)),
        })
    }

    /// Checks the settings that are not part of the request template.
    pub(super) fn check_settings(&mut self) {
        let rest = self.rest;
        self.problems.extend(rest.auth.iter().flat_map(Auth::problems));
        for (name, secret) in &rest.secret_headers {
            if let Err(error) = secret.read() {
                self.report::<()>(format!("headers.{name}"), error.to_string());
            }
        }
        if let Some(pointer) = rest.select.as_deref().filter(|pointer| !pointer.is_empty() && !pointer.starts_with('/'))
        {
            self.report::<()>(
                "select",
                format!("`{pointer}` is not a JSON pointer; it must begin with a slash: `/{pointer}`"),
            );
        }
        let connection = &rest.connection;
        if connection.pool_size.saturating_add(connection.max_overflow) == 0 {
            self.report::<()>(
                "connection.pool_size",
                "`pool_size` plus `max_overflow` is 0, so no request could be sent",
            );
        }
        let timeouts = [
            ("timeout", connection.timeout),
            ("connect_timeout", connection.connect_timeout),
            ("read_timeout", connection.read_timeout),
            ("write_timeout", connection.write_timeout),
        ];
        for (name, _) in timeouts.into_iter().filter(|(_, timeout)| *timeout == Duration::ZERO) {
            self.report::<()>(format!("connection.{name}"), "is 0, so no request could be sent");
        }
        for host in &rest.allow_hosts {
            if host.is_empty() || host.contains(['/', '*', '@']) || host.contains(char::is_whitespace) {
                self.report::<()>(
                    "allow_hosts",
                    format!("`{host}` is not a host; write `10.0.0.7`, `localhost` or `box.local:8080`"),
                );
            }
        }
    }
}
