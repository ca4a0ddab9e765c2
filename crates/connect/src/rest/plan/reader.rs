//! Reads one setting after the other, and notes what is wrong with each.
//!
//! In: a [`Rest`]. Out: the shape of its requests, the origin they go to, and every problem on the way.

use std::{collections::HashSet, time::Duration};

use hyper::{Method, header::HeaderName};
use toolhub_net::Origin;

use super::{OURS, join};
use crate::rest::{
    Auth, Body, KeyPlace, Parameter, Place, Rest, RestError, Style, address, encode, header_name,
    leaf::Leaf,
    request::{Content, Hole, PathPiece, Segment, Shape, Source},
    template::{Piece, Template},
};

pub(super) struct Reader<'a> {
    rest: &'a Rest,
    pub(super) problems: Vec<RestError>,
    named: HashSet<String>,
    taken: HashSet<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(rest: &'a Rest) -> Self {
        Self { rest, problems: Vec::new(), named: HashSet::new(), taken: HashSet::new() }
    }

    pub(super) fn wrong<T>(&mut self, setting: impl Into<String>, problem: impl Into<String>) -> Option<T> {
        self.problems.push(RestError::new(setting, problem));
        None
    }

    /// The origin, the template of the path and the text of the query.
    pub(super) fn address(&mut self) -> Option<(Origin, Template, String)> {
        let rest = self.rest;
        let (setting, text) = match (&rest.url, &rest.base_url) {
            (Some(url), None) => ("url", url.clone()),
            (None, Some(base)) => {
                if base.contains(['?', '#', '{', '}']) {
                    return self.wrong("base_url", "holds `?`, `#` or a brace; say queries and arguments with `path`");
                }
                ("base_url", join(base, rest.path.as_deref()))
            }
            _ => return self.wrong("url", "either `url` or `base_url` with `path` is needed, and only one of them"),
        };
        let begin = text.find("://").map_or(0, |at| at + 3);
        let end = text[begin..].find(['/', '?', '#']).map_or(text.len(), |at| begin + at);
        let (head, tail) = text.split_at(end);
        if head.contains(['{', '}']) {
            let shown = address::without_user(head);
            return self.wrong(setting, format!("`{shown}`: scheme, host and port may not depend on an argument"));
        }
        let origin = match address::parse(head) {
            Ok((origin, _)) => origin,
            Err(why) => return self.wrong(setting, format!("`{}` {why}", address::without_user(head))),
        };
        let setting = if rest.path.is_some() { "path" } else { setting };
        if tail.contains('#') {
            return self.wrong(setting, "has a part behind `#`, which is never sent; leave it out, or write %23");
        }
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        match Template::parse(path) {
            Ok(path) => Some((origin, path, query.to_owned())),
            Err(why) => self.wrong(setting, format!("the path {why}")),
        }
    }

    pub(super) fn shape(&mut self, address: Option<(&Template, &str)>) -> Option<Shape> {
        let rest = self.rest;
        let method = self.method();
        let (path, in_url) = address.unzip();
        let path = path.map(|path| self.path(path)).unwrap_or_default();
        let mut query = self.query_of_url(in_url.unwrap_or_default());
        for (name, text) in &rest.query {
            let template = self.template(format!("query.{name}"), text);
            query.push((name.clone(), Source::Template(template)));
        }
        let (mut headers, mut cookies) = (Vec::new(), Vec::new());
        for (name, text) in &rest.headers {
            let (template, name) = (self.template(format!("headers.{name}"), text), self.header(name));
            headers.extend(name.map(|name| (name, Source::Template(template))));
        }
        for (name, _) in &rest.secret_headers {
            self.header(name);
        }
        for (name, text) in &rest.cookies {
            let template = self.template(format!("cookies.{name}"), text);
            cookies.push((name.clone(), Source::Template(template)));
        }
        for parameter in &rest.parameters {
            let source = Source::Hole(self.hole(parameter));
            match parameter.place {
                Place::Path => {}
                Place::Query => query.push((parameter.name.clone(), source)),
                Place::Header => headers.extend(self.header(&parameter.name).map(|name| (name, source))),
                Place::Cookie => cookies.push((parameter.name.clone(), source)),
            }
        }
        self.taken.extend(query.iter().map(|(name, _)| name.clone()));
        let auth = rest.auth.as_ref().and_then(Auth::pair);
        self.key_alone(auth, KeyPlace::Query, "query", &query);
        self.key_alone(auth, KeyPlace::Cookie, "cookies", &cookies);
        self.taken.extend(auth.filter(|(place, _)| *place == KeyPlace::Query).map(|(_, name)| name.to_owned()));
        let mut taken_cookies: HashSet<String> = cookies.iter().map(|(name, _)| name.clone()).collect();
        taken_cookies.extend(auth.filter(|(place, _)| *place == KeyPlace::Cookie).map(|(_, name)| name.to_owned()));
        let body = self.body(method.as_ref());
        let (named, taken) = (std::mem::take(&mut self.named), std::mem::take(&mut self.taken));
        Some(Shape { method: method?, path, query, headers, cookies, body, named, taken, taken_cookies })
    }

    /// Two values under one name would be sent, and the service might take the one that is no key.
    fn key_alone(&mut self, auth: Option<(KeyPlace, &str)>, place: KeyPlace, word: &str, said: &[(String, Source)]) {
        if let Some((_, key)) = auth.filter(|(at, key)| *at == place && said.iter().any(|(name, _)| name == key)) {
            self.wrong::<()>("auth", format!("the key `{key}` stands in the {word} already; leave one of them out"));
        }
    }

    fn method(&mut self) -> Option<Method> {
        let word = self.rest.method.to_ascii_uppercase();
        match word.as_str() {
            "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => word.parse().ok(),
            _ => self.wrong("method", format!("`{word}` is none of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")),
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
                                .expect("there is a first one")
                                .push(PathPiece::Text(encode::literal(part)));
                        }
                    }
                }
                Piece::Argument(name) => {
                    let own = |said: &&Parameter| said.place == Place::Path && said.name == *name;
                    let hole = match self.rest.parameters.iter().find(own) {
                        Some(said) => self.hole(said),
                        None => {
                            self.named.insert(name.clone());
                            let argument = name.clone();
                            Hole { name: argument.clone(), argument, style: Style::Simple, explode: false }
                        }
                    };
                    segments.last_mut().expect("there is a first one").push(PathPiece::Hole(hole));
                }
            }
        }
        let names: HashSet<&str> = template.names().collect();
        for said in self.rest.parameters.iter().filter(|said| said.place == Place::Path) {
            if !names.contains(said.name.as_str()) {
                self.wrong::<()>(
                    "parameters",
                    format!("`{}` is to stand in the path, which has no `{{{0}}}`", said.name),
                );
            }
        }
        let dots = |segment: &Segment| match &segment[..] {
            [PathPiece::Text(text)] => matches!(encode::decoded(text).as_str(), "." | ".."),
            _ => false,
        };
        if segments.iter().any(dots) {
            self.wrong::<()>("path", "has a segment `.` or `..`; write the path it leads to");
        }
        // What stands before the first slash.
        segments.remove(0);
        if segments.is_empty() { vec![Vec::new()] } else { segments }
    }

    fn query_of_url(&mut self, text: &str) -> Vec<(String, Source)> {
        let mut all = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if name.contains(['{', '}']) {
                self.wrong::<()>("url", format!("the name `{name}` in the query may not depend on an argument"));
                continue;
            }
            let mut template = self.template("url".into(), value);
            for piece in &mut template.0 {
                if let Piece::Text(text) = piece {
                    *text = encode::decoded(text);
                }
            }
            all.push((encode::decoded(name), Source::Template(template)));
        }
        all
    }

    /// A text of the owner's; a broken one is not repeated.
    fn template(&mut self, setting: String, text: &str) -> Template {
        match Template::parse(text) {
            Ok(template) => {
                self.named.extend(template.names().map(str::to_owned));
                template
            }
            Err(why) => {
                // What it says may be a secret.
                self.wrong::<()>(setting, why);
                Template::default()
            }
        }
    }

    fn hole(&mut self, said: &Parameter) -> Hole {
        let Parameter { place, name, argument, style, explode } = said.clone();
        let fits = match style {
            Style::Json => true,
            Style::Simple => matches!(place, Place::Path | Place::Header),
            Style::Label | Style::Matrix => place == Place::Path,
            Style::Form => matches!(place, Place::Query | Place::Cookie),
            Style::SpaceDelimited | Style::PipeDelimited | Style::DeepObject => place == Place::Query,
        };
        if !fits {
            self.wrong::<()>("parameters", format!("`{name}`: the style {style:?} is not for a {place:?}"));
        }
        self.named.insert(argument.clone());
        Hole { argument, name, style, explode }
    }

    fn header(&mut self, name: &str) -> Option<HeaderName> {
        match header_name(name) {
            Ok(name) if OURS.contains(&name.as_str()) => {
                let help = if name == "cookie" {
                    "; say a key that is a cookie with `auth`, and in code others with `cookies`"
                } else {
                    ""
                };
                self.wrong(format!("headers.{name}"), format!("this header is set by HTTP itself{help}"))
            }
            Ok(name) => Some(name),
            Err(()) => self.wrong(format!("headers.{name}"), "is no name of a header"),
        }
    }

    fn body(&mut self, method: Option<&Method>) -> Option<Content> {
        let said = self.rest.body.as_ref()?;
        if matches!(method, Some(&Method::GET | &Method::HEAD)) {
            return self.wrong("body", "a GET or HEAD has no body; use `query`, or another method");
        }
        Some(match said {
            Body::Json(template) => match Leaf::parse(template) {
                Ok(leaf) => {
                    leaf.names(&mut self.named);
                    Content::Json(leaf)
                }
                Err(why) => return self.wrong("body", why),
            },
            Body::Form(fields) => Content::Form(
                fields.iter().map(|(name, text)| (name.clone(), self.template(format!("body.{name}"), text))).collect(),
            ),
            Body::FormOf { argument, fields } => {
                self.named.insert(argument.clone());
                Content::FormOf(argument.clone(), fields.clone())
            }
            Body::Text(text) => Content::Text(self.template("body".into(), text)),
        })
    }

    /// What else may be wrong.
    pub(super) fn settings(&mut self) {
        let rest = self.rest;
        self.problems.extend(rest.auth.iter().flat_map(Auth::problems));
        for (name, secret) in &rest.secret_headers {
            if let Err(error) = secret.read() {
                self.wrong::<()>(format!("headers.{name}"), error.to_string());
            }
        }
        if let Some(pointer) = rest.select.as_deref().filter(|pointer| !pointer.is_empty() && !pointer.starts_with('/'))
        {
            self.wrong::<()>(
                "select",
                format!("`{pointer}` is no JSON pointer; one begins with a slash: `/{pointer}`"),
            );
        }
        let connection = &rest.connection;
        if connection.pool_size.saturating_add(connection.max_overflow) == 0 {
            self.wrong::<()>("connection.pool_size", "with `max_overflow` it is 0, so no request could ever be made");
        }
        let times = [
            ("timeout", connection.timeout),
            ("connect_timeout", connection.connect_timeout),
            ("read_timeout", connection.read_timeout),
            ("write_timeout", connection.write_timeout),
        ];
        for (name, _) in times.into_iter().filter(|(_, time)| *time == Duration::ZERO) {
            self.wrong::<()>(format!("connection.{name}"), "is 0, so no request could ever be made");
        }
        for host in &rest.allow_hosts {
            if host.is_empty() || host.contains(['/', '*', '@']) || host.contains(char::is_whitespace) {
                self.wrong::<()>(
                    "allow_hosts",
                    format!("`{host}` is no host; write `10.0.0.7`, `localhost` or `box.local:8080`"),
                );
            }
        }
    }
}
