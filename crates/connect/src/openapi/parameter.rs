//! A parameter of an operation: where it goes, and how it is written there.
//!
//! In: a parameter as the document has it. Out: the same for a request, or that it is none of the caller's business.

use serde_json::Value;

use super::document::{is_true, member_text};
use crate::rest::{Parameter, ParameterLocation, Style};

/// What becomes of a parameter.
pub(super) enum ParsedParameter<'d> {
    /// It is an argument.
    Argument(ParameterSpec<'d>),
    /// It is not, for a reason that may be worth a word.
    Omitted(Option<String>),
}

/// A parameter of a request and what the document says about it.
pub(super) struct ParameterSpec<'d> {
    pub(super) parameter: Parameter,
    pub(super) schema: Option<&'d Value>,
    pub(super) definition: &'d Value,
}

/// The word of the document for a place.
pub(super) fn location_name(place: ParameterLocation) -> &'static str {
    match place {
        ParameterLocation::Path => "path",
        ParameterLocation::Query => "query",
        ParameterLocation::Header => "header",
        ParameterLocation::Cookie => "cookie",
    }
}

/// Reads a parameter that was resolved already.
pub(super) fn parse<'d>(written: &'d Value) -> Result<ParsedParameter<'d>, String> {
    let Some(name) = member_text(written, "name") else {
        return Err("a parameter has no name".into());
    };
    let place = match member_text(written, "in") {
        Some("path") => ParameterLocation::Path,
        Some("query") => ParameterLocation::Query,
        Some("header") => ParameterLocation::Header,
        Some("cookie") => ParameterLocation::Cookie,
        other => return Err(format!("its parameter `{name}` is in `{}`", other.unwrap_or_default())),
    };
    if place == ParameterLocation::Header {
        match name.to_ascii_lowercase().as_str() {
            // The standard says that these are said elsewhere: by media types and by security schemes.
            "accept" | "content-type" | "authorization" => return Ok(ParsedParameter::Omitted(None)),
            _ if is_sendable_header(name) => {}
            _ if is_true(written, "required") => {
                return Err(format!("it needs the header `{name}`, which cannot be sent"));
            }
            _ => {
                return Ok(ParsedParameter::Omitted(Some(format!(
                    "the header `{name}` cannot be sent and is left out"
                ))));
            }
        }
    }
    let mut parameter = Parameter::new(place, name);
    let content = written.get("content").and_then(Value::as_object).and_then(|content| content.iter().next());
    let schema = match content {
        Some((media_type, content)) => {
            if media_type.contains("json") {
                parameter = parameter.style(Style::Json);
            }
            content.get("schema")
        }
        None => {
            if let Some(style) = member_text(written, "style").and_then(|style| parse_style(style, place)) {
                parameter = parameter.style(style);
            }
            if let Some(explode) = written.get("explode").and_then(Value::as_bool) {
                parameter = parameter.explode(explode);
            }
            written.get("schema")
        }
    };
    Ok(ParsedParameter::Argument(ParameterSpec { parameter, schema, definition: written }))
}

/// A style that the place can have; another one says nothing.
fn parse_style(style: &str, place: ParameterLocation) -> Option<Style> {
    match (style, place) {
        ("simple", ParameterLocation::Path | ParameterLocation::Header) => Some(Style::Simple),
        ("label", ParameterLocation::Path) => Some(Style::Label),
        ("matrix", ParameterLocation::Path) => Some(Style::Matrix),
        ("form", ParameterLocation::Query | ParameterLocation::Cookie) => Some(Style::Form),
        ("spaceDelimited", ParameterLocation::Query) => Some(Style::SpaceDelimited),
        ("pipeDelimited", ParameterLocation::Query) => Some(Style::PipeDelimited),
        ("deepObject", ParameterLocation::Query) => Some(Style::DeepObject),
        _ => None,
    }
}

/// Whether a caller may decide about a header: it is a name at all, and none that the connection itself is about.
fn is_sendable_header(name: &str) -> bool {
    let sort = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let ours = [
        "accept-encoding",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    name.chars().all(sort) && !ours.contains(&name.to_ascii_lowercase().as_str())
}
