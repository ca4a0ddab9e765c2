//! A parameter of an operation: where it goes, and how it is written there.
//!
//! In: a parameter as the document has it. Out: the same for a request, or that it is none of the caller's business.

use serde_json::Value;

use super::document::{says, text};
use crate::rest::{Parameter, Place, Style};

/// What becomes of a parameter.
pub(super) enum Sent<'d> {
    /// It is an argument.
    Parameter(Found<'d>),
    /// It is not, for a reason that may be worth a word.
    LeftOut(Option<String>),
}

/// A parameter of a request and what the document says about it.
pub(super) struct Found<'d> {
    pub(super) parameter: Parameter,
    pub(super) schema: Option<&'d Value>,
    pub(super) written: &'d Value,
}

/// The word of the document for a place.
pub(super) fn word(place: Place) -> &'static str {
    match place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
        Place::Cookie => "cookie",
    }
}

/// Reads a parameter that was resolved already.
pub(super) fn of<'d>(written: &'d Value) -> Result<Sent<'d>, String> {
    let Some(name) = text(written, "name") else {
        return Err("a parameter has no name".into());
    };
    let place = match text(written, "in") {
        Some("path") => Place::Path,
        Some("query") => Place::Query,
        Some("header") => Place::Header,
        Some("cookie") => Place::Cookie,
        other => return Err(format!("its parameter `{name}` is in `{}`", other.unwrap_or_default())),
    };
    if place == Place::Header {
        match name.to_ascii_lowercase().as_str() {
            // The standard says that these are said elsewhere: by media types and by security schemes.
            "accept" | "content-type" | "authorization" => return Ok(Sent::LeftOut(None)),
            _ if may_be_sent(name) => {}
            _ if says(written, "required") => {
                return Err(format!("it needs the header `{name}`, which cannot be sent"));
            }
            _ => return Ok(Sent::LeftOut(Some(format!("the header `{name}` cannot be sent and is left out")))),
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
            if let Some(style) = text(written, "style").and_then(|style| read(style, place)) {
                parameter = parameter.style(style);
            }
            if let Some(explode) = written.get("explode").and_then(Value::as_bool) {
                parameter = parameter.explode(explode);
            }
            written.get("schema")
        }
    };
    Ok(Sent::Parameter(Found { parameter, schema, written }))
}

/// A style that the place can have; another one says nothing.
fn read(style: &str, place: Place) -> Option<Style> {
    match (style, place) {
        ("simple", Place::Path | Place::Header) => Some(Style::Simple),
        ("label", Place::Path) => Some(Style::Label),
        ("matrix", Place::Path) => Some(Style::Matrix),
        ("form", Place::Query | Place::Cookie) => Some(Style::Form),
        ("spaceDelimited", Place::Query) => Some(Style::SpaceDelimited),
        ("pipeDelimited", Place::Query) => Some(Style::PipeDelimited),
        ("deepObject", Place::Query) => Some(Style::DeepObject),
        _ => None,
    }
}

/// Whether a caller may decide about a header: it is a name at all, and none that the connection itself is about.
fn may_be_sent(name: &str) -> bool {
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
