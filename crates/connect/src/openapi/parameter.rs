//! Parses a parameter of an operation: its location and style.
//!
//! In: a parameter of the document. Out: the parameter of a request, or that it is omitted because the caller cannot set it.

use serde_json::Value;

use super::document::{is_true, member_text};
use crate::rest::{Parameter, ParameterLocation, Style};

/// A parsed parameter.
pub(super) enum ParsedParameter<'d> {
    /// It becomes an argument.
    Argument(ParameterSpec<'d>),
    /// It is omitted, with a warning if that matters.
    Omitted(Option<String>),
}

/// A parameter of a request, with its schema and its definition in the document.
pub(super) struct ParameterSpec<'d> {
    pub(super) parameter: Parameter,
    pub(super) schema: Option<&'d Value>,
    pub(super) definition: &'d Value,
}

/// The name of a location in documents.
pub(super) fn location_name(location: ParameterLocation) -> &'static str {
    match location {
        ParameterLocation::Path => "path",
        ParameterLocation::Query => "query",
        ParameterLocation::Header => "header",
        ParameterLocation::Cookie => "cookie",
    }
}

/// Parses a parameter whose reference is resolved.
pub(super) fn parse<'d>(definition: &'d Value) -> Result<ParsedParameter<'d>, String> {
    let Some(name) = member_text(definition, "name") else {
        return Err("a parameter has no name".into());
    };
    let location = match member_text(definition, "in") {
        Some("path") => ParameterLocation::Path,
        Some("query") => ParameterLocation::Query,
        Some("header") => ParameterLocation::Header,
        Some("cookie") => ParameterLocation::Cookie,
        other => {
            return Err(format!("its parameter `{name}` has the unknown location `{}`", other.unwrap_or_default()));
        }
    };
    if location == ParameterLocation::Header {
        match name.to_ascii_lowercase().as_str() {
            // OpenAPI ignores these as parameters: media types and security schemes define them.
            "accept" | "content-type" | "authorization" => return Ok(ParsedParameter::Omitted(None)),
            _ if is_sendable_header(name) => {}
            _ if is_true(definition, "required") => {
                return Err(format!("it needs the header `{name}`, which cannot be sent"));
            }
            _ => {
                return Ok(ParsedParameter::Omitted(Some(format!(
                    "the header `{name}` cannot be sent and is ignored"
                ))));
            }
        }
    }
    let mut parameter = Parameter::new(location, name);
    let content = definition.get("content").and_then(Value::as_object).and_then(|content| content.iter().next());
    let schema = match content {
        Some((media_type, content)) => {
            if media_type.contains("json") {
                parameter = parameter.style(Style::Json);
            }
            content.get("schema")
        }
        None => {
            if let Some(style) = member_text(definition, "style").and_then(|style| parse_style(style, location)) {
                parameter = parameter.style(style);
            }
            if let Some(explode) = definition.get("explode").and_then(Value::as_bool) {
                parameter = parameter.explode(explode);
            }
            definition.get("schema")
        }
    };
    Ok(ParsedParameter::Argument(ParameterSpec { parameter, schema, definition }))
}

/// Parses a style; `None` if it is not valid for the location.
fn parse_style(style: &str, location: ParameterLocation) -> Option<Style> {
    match (style, location) {
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

/// Whether a caller may set a header: its name is valid, and the HTTP client does not set it itself.
fn is_sendable_header(name: &str) -> bool {
    let is_token_char = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let reserved = [
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
    name.chars().all(is_token_char) && !reserved.contains(&name.to_ascii_lowercase().as_str())
}
