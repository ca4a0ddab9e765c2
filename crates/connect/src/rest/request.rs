//! Builds a request from a template and the arguments of a call.
//!
//! In: a template, compiled once by `plan.rs`, and arguments. Out: the request, without credentials. No value can change the target
//! host, the number of path segments, or the set of headers.

use std::collections::HashSet;

use hyper::{
    HeaderMap, Method,
    body::Bytes,
    header::{CONTENT_TYPE, COOKIE, HeaderName, HeaderValue},
};
use serde_json::{Map, Value};

use super::{
    FormField, Style,
    encode::{check_header, check_segment},
    json_template::JsonTemplate,
    style,
    template::{Arguments, Template, present_argument, to_text},
};
use crate::percent_encode::percent_encode;

/// A request with placeholders.
#[derive(Debug)]
pub(crate) struct RequestTemplate {
    pub(crate) method: Method,
    pub(crate) path: Vec<Segment>,
    pub(crate) query: Vec<(String, ValueSource)>,
    pub(crate) headers: Vec<(HeaderName, ValueSource)>,
    pub(crate) cookies: Vec<(String, ValueSource)>,
    pub(crate) body: Option<BodyTemplate>,
    /// Arguments that a template or parameter uses.
    pub(crate) named_arguments: HashSet<String>,
    /// Query names that no argument may override.
    pub(crate) reserved_query: HashSet<String>,
    /// Cookie names that no argument may override.
    pub(crate) reserved_cookies: HashSet<String>,
}

/// One segment of a path.
pub(crate) type Segment = Vec<PathPiece>;

#[derive(Debug)]
pub(crate) enum PathPiece {
    /// Already encoded.
    Text(String),
    Placeholder(Placeholder),
}

/// An argument with its serialization style.
#[derive(Debug, Clone)]
pub(crate) struct Placeholder {
    pub(crate) argument: String,
    pub(crate) name: String,
    pub(crate) style: Style,
    pub(crate) explode: bool,
}

impl Placeholder {
    /// Its pairs in the query or the cookies. Members of an exploded object may not use the names that the request sets itself.
    fn pairs(&self, name: &str, value: &Value, reserved: &HashSet<String>) -> Result<Vec<style::Pair>, BadArgument> {
        let exploded = self.explode && !matches!(self.style, Style::Json | Style::DeepObject);
        let mut members = value.as_object().filter(|_| exploded).into_iter().flat_map(Map::keys);
        match members.find(|key| reserved.contains(*key)) {
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

/// A request ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct OutgoingRequest {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl OutgoingRequest {
    /// Adds a query parameter.
    pub(crate) fn add_query(&mut self, name: &str, value: &str) {
        self.target.push(if self.target.contains('?') { '&' } else { '?' });
        self.target.push_str(&format!("{}={}", percent_encode(name), percent_encode(value)));
    }

    /// Appends to the `Cookie` header.
    pub(crate) fn add_cookies(&mut self, cookies: &str) {
        if cookies.is_empty() {
            return;
        }
        let existing = self.headers.get(COOKIE).and_then(|value| value.to_str().ok()).map(|old| format!("{old}; "));
        if let Ok(value) = HeaderValue::from_str(&format!("{}{cookies}", existing.unwrap_or_default())) {
            self.headers.insert(COOKIE, value);
        }
    }
}

/// Why no request can be built: which argument is invalid, and why. Shown to the model.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadArgument(pub(crate) String);

const ALREADY_SET: &str = "is not one of this tool's; the request sets it itself";

fn bad_argument(argument: &str, reason: impl std::fmt::Display) -> BadArgument {
    BadArgument(format!("the argument `{argument}` {reason}"))
}

impl RequestTemplate {
    pub(crate) fn fill(&self, arguments: &Arguments) -> Result<OutgoingRequest, BadArgument> {
        let mut target = self.fill_path(arguments)?;
        let mut pairs = self.fill_query(arguments)?;
        let mut headers = self.fill_headers(arguments)?;
        let mut unnamed: Vec<(&String, &Value)> = arguments
            .iter()
            .filter(|(name, value)| !value.is_null() && !self.named_arguments.contains(*name))
            .collect();
        if self.spills_into_query() {
            for (name, value) in unnamed.drain(..) {
                if self.reserved_query.contains(name) {
                    return Err(bad_argument(name, ALREADY_SET));
                }
                pairs.extend(default_pairs(name, value));
            }
        }
        let (content_type, body) = self.fill_body(arguments, unnamed)?;
        if let Some(content_type) = content_type {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
        }
        for (index, (name, value)) in pairs.iter().enumerate() {
            target.push(if index == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            target.push_str(value);
        }
        Ok(OutgoingRequest { method: self.method.clone(), target, headers, body: body.into() })
    }

    /// Whether arguments that no template uses go into the query instead of the body.
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
                    PathPiece::Placeholder(Placeholder { argument, name, style, explode }) => {
                        let value = present_argument(arguments, argument)
                            .ok_or_else(|| bad_argument(argument, "is missing; the path of the request needs it"))?;
                        path.push_str(&style::format_path(name, value, *style, *explode));
                        collect_texts(value, &mut values);
                        last = Some(argument);
                    }
                }
            }
            if let Some(argument) = last {
                let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
                check_segment(&path[begin..], &values).map_err(|reason| bad_argument(argument, reason))?;
            }
        }
        Ok(path)
    }

    fn fill_query(&self, arguments: &Arguments) -> Result<Vec<style::Pair>, BadArgument> {
        let mut pairs = Vec::new();
        for (name, source) in &self.query {
            match source {
                ValueSource::Template(template) => pairs.extend(template_pairs(name, template, arguments)),
                ValueSource::Placeholder(placeholder) => {
                    let Some(value) = present_argument(arguments, &placeholder.argument) else { continue };
                    pairs.extend(placeholder.pairs(name, value, &self.reserved_query)?);
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
                ValueSource::Placeholder(Placeholder { argument, style, explode, .. }) => {
                    let value = present_argument(arguments, argument);
                    (value.map(|value| style::format_header(value, *style, *explode)), argument.as_str())
                }
            };
            let Some(text) = text else { continue };
            check_header(&text).map_err(|reason| bad_argument(argument, reason))?;
            let value = HeaderValue::from_bytes(text.as_bytes())
                .map_err(|_| bad_argument(argument, "cannot be sent in a header"))?;
            headers.append(name, value);
        }
        let mut cookies = Vec::new();
        for (name, source) in &self.cookies {
            match source {
                ValueSource::Template(template) => {
                    cookies.extend(template.fill(arguments).map(|text| (percent_encode(name), percent_encode(&text))));
                }
                ValueSource::Placeholder(placeholder) => {
                    let Some(value) = present_argument(arguments, &placeholder.argument) else { continue };
                    cookies.extend(placeholder.pairs(name, value, &self.reserved_cookies)?);
                }
            }
        }
        let cookies: Vec<String> = cookies.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        // Percent-encoded names and values, and the separators of all styles, are valid in a header.
        if let Some(value) = HeaderValue::from_str(&cookies.join("; ")).ok().filter(|value| !value.is_empty()) {
            headers.insert(COOKIE, value);
        }
        Ok(headers)
    }

    /// The content type and the body.
    fn fill_body(
        &self,
        arguments: &Arguments,
        unnamed: Vec<(&String, &Value)>,
    ) -> Result<(Option<&'static str>, Vec<u8>), BadArgument> {
        const JSON: Option<&str> = Some("application/json");
        const FORM: Option<&str> = Some("application/x-www-form-urlencoded");
        let refuse_unnamed = |unnamed: &[(&String, &Value)]| match unnamed.first() {
            Some((name, _)) => Err(bad_argument(name, "is not one of this tool's: the request has no place for it")),
            None => Ok(()),
        };
        match &self.body {
            None if unnamed.is_empty() => Ok((None, Vec::new())),
            None => Ok((JSON, json_text(&Value::Object(to_object(&unnamed))))),
            Some(BodyTemplate::Json(template @ JsonTemplate::Object(_))) => {
                let Some(Value::Object(mut object)) = template.fill(arguments) else {
                    return Ok((JSON, b"{}".to_vec()));
                };
                for (name, value) in to_object(&unnamed) {
                    if object.contains_key(&name) {
                        return Err(bad_argument(&name, ALREADY_SET));
                    }
                    object.insert(name, value);
                }
                Ok((JSON, json_text(&Value::Object(object))))
            }
            Some(BodyTemplate::Json(template)) => {
                refuse_unnamed(&unnamed)?;
                Ok(template.fill(arguments).map_or((None, Vec::new()), |value| (JSON, json_text(&value))))
            }
            Some(BodyTemplate::Form(fields)) => {
                let is_field = |name: &String| fields.iter().any(|(field, _)| field == name);
                if let Some((name, _)) = unnamed.iter().find(|(name, _)| is_field(name)) {
                    return Err(bad_argument(name, ALREADY_SET));
                }
                let mut pairs: Vec<_> =
                    fields.iter().flat_map(|(name, template)| template_pairs(name, template, arguments)).collect();
                pairs.extend(unnamed.into_iter().flat_map(|(name, value)| default_pairs(name, value)));
                Ok((FORM, form_text(pairs)))
            }
            Some(BodyTemplate::FormFromArgument(argument, fields)) => {
                refuse_unnamed(&unnamed)?;
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
                refuse_unnamed(&unnamed)?;
                let text = template.fill(arguments);
                Ok(text.map_or((None, Vec::new()), |text| (Some("text/plain; charset=utf-8"), text.into_bytes())))
            }
        }
    }
}

fn to_object(members: &[(&String, &Value)]) -> Map<String, Value> {
    members.iter().map(|(name, value)| ((*name).clone(), (*value).clone())).collect()
}

/// The pairs of a template under a name; none if an argument is absent.
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

/// The default serialization: a list becomes several pairs, an object JSON.
fn default_pairs(name: &str, value: &Value) -> Vec<style::Pair> {
    let style = if value.is_object() { Style::Json } else { Style::Form };
    style::pairs(name, value, style, true)
}

/// Collects the texts of all member names and scalars in a value.
fn collect_texts<'a>(value: &'a Value, texts: &mut Vec<std::borrow::Cow<'a, str>>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(members) => members.iter().for_each(|(name, item)| {
            texts.push(name.into());
            collect_texts(item, texts);
        }),
        scalar => texts.push(to_text(scalar)),
    }
}

fn json_text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn form_text(pairs: Vec<style::Pair>) -> Vec<u8> {
    pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&").into_bytes()
}
