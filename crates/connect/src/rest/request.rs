//! Makes a request of the arguments of a call.
//!
//! In: a shape, made once by `plan.rs`, and arguments. Out: what goes over the wire, without what shows who we are. No value can
//! change where the request goes, how many segments its path has, or which headers it has.

use std::collections::HashSet;

use hyper::{
    HeaderMap, Method,
    body::Bytes,
    header::{CONTENT_TYPE, COOKIE, HeaderName, HeaderValue},
};
use serde_json::{Map, Value};

use super::{
    FormField, Style,
    encode::{check_header, check_segment, percent_encode},
    json_template::JsonTemplate,
    style,
    template::{Arguments, Template, present_argument, to_text},
};

/// A request with holes.
#[derive(Debug)]
pub(crate) struct RequestTemplate {
    pub(crate) method: Method,
    pub(crate) path: Vec<Segment>,
    pub(crate) query: Vec<(String, ValueSource)>,
    pub(crate) headers: Vec<(HeaderName, ValueSource)>,
    pub(crate) cookies: Vec<(String, ValueSource)>,
    pub(crate) body: Option<BodyTemplate>,
    /// Arguments that have a place.
    pub(crate) named_arguments: HashSet<String>,
    /// Names in the query that no argument may take.
    pub(crate) reserved_query: HashSet<String>,
    /// Names of cookies that none may take.
    pub(crate) reserved_cookies: HashSet<String>,
}

/// One segment of a path.
pub(crate) type Segment = Vec<PathPiece>;

#[derive(Debug)]
pub(crate) enum PathPiece {
    /// Encoded already.
    Text(String),
    Placeholder(Placeholder),
}

/// An argument that is written in a style.
#[derive(Debug, Clone)]
pub(crate) struct Placeholder {
    pub(crate) argument: String,
    pub(crate) name: String,
    pub(crate) style: Style,
    pub(crate) explode: bool,
}

impl Placeholder {
    /// Its pairs in a query or among cookies. Members that are spread there may not be called like what the request says itself.
    fn pairs(&self, name: &str, value: &Value, taken: &HashSet<String>) -> Result<Vec<style::Pair>, BadArgument> {
        let spread = self.explode && !matches!(self.style, Style::Json | Style::DeepObject);
        let mut members = value.as_object().filter(|_| spread).into_iter().flat_map(Map::keys);
        match members.find(|key| taken.contains(*key)) {
            Some(key) => {
                Err(bad_argument(&self.argument, format!("may not have a member `{key}`; the request sets it itself")))
            }
            None => Ok(style::pairs(name, value, self.style, self.explode)),
        }
    }
}

#[derive(Debug)]
pub(crate) enum ValueSource {
    Template(Template),
    Placeholder(Placeholder),
}

#[derive(Debug)]
pub(crate) enum BodyTemplate {
    Json(JsonTemplate),
    Form(Vec<(String, Template)>),
    FormFromArgument(String, Vec<FormField>),
    Text(Template),
}

/// What goes over the wire.
#[derive(Debug, Clone)]
pub(crate) struct OutgoingRequest {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl OutgoingRequest {
    /// Adds a pair to the query.
    pub(crate) fn add_query(&mut self, name: &str, value: &str) {
        self.target.push(if self.target.contains('?') { '&' } else { '?' });
        self.target.push_str(&format!("{}={}", percent_encode(name), percent_encode(value)));
    }

    /// Adds cookies to those that are there.
    pub(crate) fn add_cookies(&mut self, more: &str) {
        if more.is_empty() {
            return;
        }
        let before = self.headers.get(COOKIE).and_then(|value| value.to_str().ok()).map(|old| format!("{old}; "));
        if let Ok(value) = HeaderValue::from_str(&format!("{}{more}", before.unwrap_or_default())) {
            self.headers.insert(COOKIE, value);
        }
    }
}

/// Why arguments make no request: which one, and what is wrong with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadArgument(pub(crate) String);

const ALREADY_SET: &str = "is not one of this tool's; the request sets it itself";

fn bad_argument(argument: &str, why: impl std::fmt::Display) -> BadArgument {
    BadArgument(format!("the argument `{argument}` {why}"))
}

impl RequestTemplate {
    pub(crate) fn fill(&self, arguments: &Arguments) -> Result<OutgoingRequest, BadArgument> {
        let mut target = self.fill_path(arguments)?;
        let mut pairs = self.fill_query(arguments)?;
        let mut headers = self.fill_headers(arguments)?;
        let mut left: Vec<(&String, &Value)> = arguments
            .iter()
            .filter(|(name, value)| !value.is_null() && !self.named_arguments.contains(*name))
            .collect();
        if self.spills_into_query() {
            for (name, value) in left.drain(..) {
                if self.reserved_query.contains(name) {
                    return Err(bad_argument(name, ALREADY_SET));
                }
                pairs.extend(default_pairs(name, value));
            }
        }
        let (kind, body) = self.fill_body(arguments, left)?;
        if let Some(kind) = kind {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(kind));
        }
        for (at, (name, value)) in pairs.iter().enumerate() {
            target.push(if at == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            target.push_str(value);
        }
        Ok(OutgoingRequest { method: self.method.clone(), target, headers, body: body.into() })
    }

    /// Whether what has no place goes into the query.
    fn spills_into_query(&self) -> bool {
        matches!(self.method, Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS)
    }

    fn fill_path(&self, arguments: &Arguments) -> Result<String, BadArgument> {
        let mut path = String::new();
        for segment in &self.path {
            path.push('/');
            let (begin, mut values, mut last) = (path.len(), Vec::new(), None);
            for piece in segment {
                match piece {
                    PathPiece::Text(text) => path.push_str(text),
                    PathPiece::Placeholder(hole) => {
                        let value = present_argument(arguments, &hole.argument).ok_or_else(|| {
                            bad_argument(&hole.argument, "is missing; the path of the request needs it")
                        })?;
                        path.push_str(&style::format_path(&hole.name, value, hole.style, hole.explode));
                        collect_texts(value, &mut values);
                        last = Some(&hole.argument);
                    }
                }
            }
            if let Some(argument) = last {
                let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
                check_segment(&path[begin..], &values).map_err(|why| bad_argument(argument, why))?;
            }
        }
        Ok(path)
    }

    fn fill_query(&self, arguments: &Arguments) -> Result<Vec<style::Pair>, BadArgument> {
        let mut pairs = Vec::new();
        for (name, source) in &self.query {
            match source {
                ValueSource::Template(template) => pairs.extend(template_pairs(name, template, arguments)),
                ValueSource::Placeholder(hole) => {
                    let Some(value) = present_argument(arguments, &hole.argument) else { continue };
                    pairs.extend(hole.pairs(name, value, &self.reserved_query)?);
                }
            }
        }
        Ok(pairs)
    }

    fn fill_headers(&self, arguments: &Arguments) -> Result<HeaderMap, BadArgument> {
        let mut headers = HeaderMap::with_capacity(self.headers.len() + 8);
        for (name, source) in &self.headers {
            let (text, argument) = match source {
                ValueSource::Template(template) => {
                    (template.fill(arguments), template.argument_names().last().unwrap_or_default())
                }
                ValueSource::Placeholder(hole) => {
                    let value = present_argument(arguments, &hole.argument);
                    (value.map(|value| style::format_header(value, hole.style, hole.explode)), hole.argument.as_str())
                }
            };
            let Some(text) = text else { continue };
            check_header(&text).map_err(|why| bad_argument(argument, why))?;
            let value = HeaderValue::from_bytes(text.as_bytes())
                .map_err(|_| bad_argument(argument, "cannot stand in a header"))?;
            headers.append(name, value);
        }
        let mut cookies = Vec::new();
        for (name, source) in &self.cookies {
            match source {
                ValueSource::Template(template) => {
                    cookies.extend(template.fill(arguments).map(|text| (percent_encode(name), percent_encode(&text))));
                }
                ValueSource::Placeholder(hole) => {
                    let Some(value) = present_argument(arguments, &hole.argument) else { continue };
                    cookies.extend(hole.pairs(name, value, &self.reserved_cookies)?);
                }
            }
        }
        let cookies: Vec<String> = cookies.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        // Percent-encoded, they have only letters that a header may have; what a style puts between them too.
        if let Some(value) = HeaderValue::from_str(&cookies.join("; ")).ok().filter(|value| !value.is_empty()) {
            headers.insert(COOKIE, value);
        }
        Ok(headers)
    }

    /// The body and its type.
    fn fill_body(
        &self,
        arguments: &Arguments,
        left: Vec<(&String, &Value)>,
    ) -> Result<(Option<&'static str>, Vec<u8>), BadArgument> {
        const JSON: Option<&str> = Some("application/json");
        const FORM: Option<&str> = Some("application/x-www-form-urlencoded");
        let nowhere = |left: &[(&String, &Value)]| match left.first() {
            Some((name, _)) => Err(bad_argument(name, "is not one of this tool's: the request has no place for it")),
            None => Ok(()),
        };
        match &self.body {
            None if left.is_empty() => Ok((None, Vec::new())),
            None => Ok((JSON, json_text(&Value::Object(to_object(&left))))),
            Some(BodyTemplate::Json(leaf @ JsonTemplate::Object(_))) => {
                let Some(Value::Object(mut object)) = leaf.fill(arguments) else { return Ok((JSON, b"{}".to_vec())) };
                for (name, value) in to_object(&left) {
                    if object.contains_key(&name) {
                        return Err(bad_argument(&name, ALREADY_SET));
                    }
                    object.insert(name, value);
                }
                Ok((JSON, json_text(&Value::Object(object))))
            }
            Some(BodyTemplate::Json(leaf)) => {
                nowhere(&left)?;
                Ok(leaf.fill(arguments).map_or((None, Vec::new()), |value| (JSON, json_text(&value))))
            }
            Some(BodyTemplate::Form(fields)) => {
                if let Some((name, _)) = left.iter().find(|(name, _)| fields.iter().any(|(field, _)| field == *name)) {
                    return Err(bad_argument(name, ALREADY_SET));
                }
                let mut pairs: Vec<_> =
                    fields.iter().flat_map(|(name, template)| template_pairs(name, template, arguments)).collect();
                pairs.extend(left.into_iter().flat_map(|(name, value)| default_pairs(name, value)));
                Ok((FORM, form_text(pairs)))
            }
            Some(BodyTemplate::FormFromArgument(argument, fields)) => {
                nowhere(&left)?;
                let Some(value) = present_argument(arguments, argument) else { return Ok((None, Vec::new())) };
                let members = value
                    .as_object()
                    .ok_or_else(|| bad_argument(argument, "must be an object: it is sent as a form"))?;
                let pairs = members.iter().filter(|(_, value)| !value.is_null()).flat_map(|(name, value)| match fields
                    .iter()
                    .find(|field| field.name == *name)
                {
                    Some(field) => style::pairs(name, value, field.style, field.explode),
                    None => default_pairs(name, value),
                });
                Ok((FORM, form_text(pairs.collect())))
            }
            Some(BodyTemplate::Text(template)) => {
                nowhere(&left)?;
                let text = template.fill(arguments);
                Ok(text.map_or((None, Vec::new()), |text| (Some("text/plain; charset=utf-8"), text.into_bytes())))
            }
        }
    }
}

fn to_object(left: &[(&String, &Value)]) -> Map<String, Value> {
    left.iter().map(|(name, value)| ((*name).clone(), (*value).clone())).collect()
}

/// The pairs of a template under a name; none where an argument is absent.
fn template_pairs(name: &str, template: &Template, arguments: &Arguments) -> Vec<style::Pair> {
    match template.sole_argument() {
        Some(argument) => {
            present_argument(arguments, argument).map_or_else(Vec::new, |value| default_pairs(name, value))
        }
        None => {
            template.fill(arguments).map(|text| (percent_encode(name), percent_encode(&text))).into_iter().collect()
        }
    }
}

/// A value under a name: a list is many pairs, an object is JSON.
fn default_pairs(name: &str, value: &Value) -> Vec<style::Pair> {
    let style = if value.is_object() { Style::Json } else { Style::Form };
    style::pairs(name, value, style, true)
}

/// All texts in a value.
fn collect_texts<'a>(value: &'a Value, all: &mut Vec<std::borrow::Cow<'a, str>>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, all)),
        Value::Object(members) => members.iter().for_each(|(name, item)| {
            all.push(name.into());
            collect_texts(item, all);
        }),
        leaf => all.push(to_text(leaf)),
    }
}

fn json_text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn form_text(pairs: Vec<style::Pair>) -> Vec<u8> {
    pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&").into_bytes()
}
