//! Selects the media type of a request body, and determines whether its members can be separate arguments.
//!
//! In: a `requestBody`. Out: one supported media type with its schema, or an error if there is none.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    document::{Document, is_true, member_text},
    schema::is_read_only,
};
use crate::rest::{FormField, Style};

/// Maximum nesting of `allOf` whose members are merged.
const MAX_ALL_OF_DEPTH: usize = 6;
/// Maximum number of schemas visited for that.
const MAX_VISITS: usize = 100;
/// With more members, the body stays one argument, so that the other arguments remain visible.
const MAX_MEMBERS: usize = 150;

/// How a body is serialized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// JSON.
    Json,
    /// Fields of a form, as `a=1&b=2`.
    Form,
    /// Plain text.
    Text,
}

/// The selected media type of a body.
pub(super) struct SelectedBody<'d> {
    pub(super) media_type: String,
    pub(super) format: Format,
    pub(super) schema: Option<&'d Value>,
    pub(super) fields: Vec<FormField>,
    pub(super) required: bool,
    pub(super) description: Option<&'d str>,
}

/// The members of a body that can be separate arguments.
#[derive(Default)]
pub(super) struct Members<'d> {
    pub(super) schemas: BTreeMap<&'d str, &'d Value>,
    pub(super) required: BTreeSet<&'d str>,
    visits: usize,
}

/// Selects the media type: JSON before a form before text.
pub(super) fn select_media_type<'d>(
    document: Document<'d>,
    body: &'d Value,
) -> Result<Option<SelectedBody<'d>>, String> {
    let body = document.resolve(body)?;
    let Some(content) = body.get("content").and_then(Value::as_object).filter(|content| !content.is_empty()) else {
        return Ok(None);
    };
    let mut best: Option<(u8, &str, Format, &Value)> = None;
    for (media_type, content) in content {
        let Some((rank, format)) = media_format(media_type) else { continue };
        if best.is_none_or(|(known, ..)| rank < known) {
            best = Some((rank, media_type, format, content));
        }
    }
    let Some((_, media_type, format, content)) = best else {
        let offered = content.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return Err(format!("its body is {offered}; only JSON, forms and text are supported"));
    };
    // For a wildcard, services expect JSON.
    let media_type = if media_type.contains('*') { "application/json" } else { media_type };
    Ok(Some(SelectedBody {
        media_type: media_type.to_owned(),
        format,
        schema: content.get("schema"),
        fields: if format == Format::Form { form_fields(content) } else { Vec::new() },
        required: is_true(body, "required"),
        description: member_text(body, "description"),
    }))
}

fn media_format(media_type: &str) -> Option<(u8, Format)> {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Some((0, Format::Json)),
        "application/merge-patch+json" => Some((1, Format::Json)),
        "*/*" | "application/*" => Some((3, Format::Json)),
        "application/x-www-form-urlencoded" => Some((4, Format::Form)),
        "text/plain" => Some((5, Format::Text)),
        json if json.ends_with("+json") => Some((2, Format::Json)),
        text if text.starts_with("text/") => Some((6, Format::Text)),
        _ => None,
    }
}

/// The form fields whose style the document sets.
fn form_fields(content: &Value) -> Vec<FormField> {
    let encoding = content.get("encoding").and_then(Value::as_object);
    let field = |(name, encoding): (&String, &Value)| {
        let style = match member_text(encoding, "style") {
            Some("spaceDelimited") => Style::SpaceDelimited,
            Some("pipeDelimited") => Style::PipeDelimited,
            Some("deepObject") => Style::DeepObject,
            Some(_) => Style::Form,
            None if encoding.get("explode").is_some() => Style::Form,
            None if member_text(encoding, "contentType").is_some_and(|kind| kind.contains("json")) => Style::Json,
            None => return None,
        };
        let default = matches!(style, Style::Form | Style::DeepObject);
        let explode = encoding.get("explode").and_then(Value::as_bool).unwrap_or(default);
        Some(FormField { name: name.clone(), style, explode })
    };
    encoding.into_iter().flatten().filter_map(field).collect()
}

/// The members of a body whose schema is a plain object, possibly composed with `allOf`.
pub(super) fn members<'d>(document: Document<'d>, schema: &'d Value) -> Option<Members<'d>> {
    let mut members = Members::default();
    collect(document, schema, MAX_ALL_OF_DEPTH, &mut members)?;
    let is_described = |name: &&str| members.schemas.contains_key(name);
    // A required member without a schema could not be passed as an argument.
    let all_described = members.required.iter().all(is_described);
    members.schemas.retain(|_, schema| !is_read_only(document, schema));
    members.required.retain(|name| members.schemas.contains_key(name));
    (all_described && !members.schemas.is_empty() && members.schemas.len() <= MAX_MEMBERS).then_some(members)
}

fn collect<'d>(document: Document<'d>, schema: &'d Value, depth: usize, members: &mut Members<'d>) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    members.visits += 1;
    if members.visits > MAX_VISITS {
        return None;
    }
    if !document.is_v3_0
        && schema.get("$ref").is_some()
        && schema.as_object()?.keys().any(|keyword| is_assertion_keyword(keyword))
    {
        return None;
    }
    let schema = document.resolve(schema).ok()?.as_object()?;
    for (keyword, value) in schema {
        match keyword.as_str() {
            "type" if value == "object" => {}
            "additionalProperties" if *value == Value::Bool(false) => {}
            "properties" => {
                for (name, schema) in value.as_object()? {
                    // Two schemas for one member would both have to hold.
                    if members.schemas.insert(name, schema).is_some() {
                        return None;
                    }
                }
            }
            "required" => members.required.extend(value.as_array()?.iter().filter_map(Value::as_str)),
            "allOf" => value.as_array()?.iter().try_for_each(|part| collect(document, part, depth, members))?,
            "nullable" if *value == Value::Bool(false) => {}
            keyword if !is_assertion_keyword(keyword) => {}
            _ => return None,
        }
    }
    Some(())
}

/// Whether a keyword constrains values; others are annotations.
fn is_assertion_keyword(keyword: &str) -> bool {
    let annotations =
        ["$ref", "title", "description", "example", "examples", "deprecated", "externalDocs", "xml", "default"];
    !annotations.contains(&keyword) && !keyword.starts_with("x-")
}
