//! The body of an operation: in which format it is sent, and whether its members can be arguments of their own.
//!
//! In: a `requestBody`. Out: one of its media types that can be written here, with its schema; or that there is none.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    document::{Document, is_true, member_text},
    schema::is_read_only,
};
use crate::rest::{FormField, Style};

/// Schemas of `allOf` inside each other that are laid together.
const MAX_ALL_OF_DEPTH: usize = 6;
/// Such schemas in all.
const MAX_VISITS: usize = 100;
/// More arguments than this would drown the others.
const MAX_MEMBERS: usize = 150;

/// How a body is written.
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

/// The one media type of a body that is used.
pub(super) struct SelectedBody<'d> {
    pub(super) media_type: String,
    pub(super) format: Format,
    pub(super) schema: Option<&'d Value>,
    pub(super) fields: Vec<FormField>,
    pub(super) required: bool,
    pub(super) description: Option<&'d str>,
}

/// The members of a body, as far as each can stand for itself.
#[derive(Default)]
pub(super) struct Members<'d> {
    pub(super) schemas: BTreeMap<&'d str, &'d Value>,
    pub(super) required: BTreeSet<&'d str>,
    visits: usize,
}

/// Chooses how a body is sent: JSON before a form before text.
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
        let all = content.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return Err(format!("its body is {all}; JSON, forms and text can be sent"));
    };
    // Where anything goes, JSON is what services mean.
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
    let plain = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match plain.as_str() {
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

/// How fields of a form are written where the document says so.
fn form_fields(content: &Value) -> Vec<FormField> {
    let encoding = content.get("encoding").and_then(Value::as_object);
    let field = |(name, said): (&String, &Value)| {
        let style = match member_text(said, "style") {
            Some("spaceDelimited") => Style::SpaceDelimited,
            Some("pipeDelimited") => Style::PipeDelimited,
            Some("deepObject") => Style::DeepObject,
            Some(_) => Style::Form,
            None if said.get("explode").is_some() => Style::Form,
            None if member_text(said, "contentType").is_some_and(|kind| kind.contains("json")) => Style::Json,
            None => return None,
        };
        let usual = matches!(style, Style::Form | Style::DeepObject);
        let explode = said.get("explode").and_then(Value::as_bool).unwrap_or(usual);
        Some(FormField { name: name.clone(), style, explode })
    };
    encoding.into_iter().flatten().filter_map(field).collect()
}

/// The members of a body whose schema is an object and nothing else, also in several layers.
pub(super) fn members<'d>(document: Document<'d>, schema: &'d Value) -> Option<Members<'d>> {
    let mut members = Members::default();
    collect(document, schema, MAX_ALL_OF_DEPTH, &mut members)?;
    let known = |name: &&str| members.schemas.contains_key(name);
    // What is required and described nowhere could not be given.
    let whole = members.required.iter().all(known);
    members.schemas.retain(|_, schema| !is_read_only(document, schema));
    members.required.retain(|name| members.schemas.contains_key(name));
    (whole && !members.schemas.is_empty() && members.schemas.len() <= MAX_MEMBERS).then_some(members)
}

fn collect<'d>(document: Document<'d>, schema: &'d Value, layers: usize, into: &mut Members<'d>) -> Option<()> {
    let layers = layers.checked_sub(1)?;
    into.visits += 1;
    if into.visits > MAX_VISITS {
        return None;
    }
    if !document.is_v3_0
        && schema.get("$ref").is_some()
        && schema.as_object()?.keys().any(|word| is_assertion_keyword(word))
    {
        return None;
    }
    let schema = document.resolve(schema).ok()?.as_object()?;
    for (word, value) in schema {
        match word.as_str() {
            "type" if value == "object" => {}
            "additionalProperties" if *value == Value::Bool(false) => {}
            "properties" => {
                for (name, one) in value.as_object()? {
                    // Described twice: both would have to hold.
                    if into.schemas.insert(name, one).is_some() {
                        return None;
                    }
                }
            }
            "required" => into.required.extend(value.as_array()?.iter().filter_map(Value::as_str)),
            "allOf" => value.as_array()?.iter().try_for_each(|layer| collect(document, layer, layers, into))?,
            "nullable" if *value == Value::Bool(false) => {}
            word if !is_assertion_keyword(word) => {}
            _ => return None,
        }
    }
    Some(())
}

/// Whether a word says something about values; others only speak to people.
fn is_assertion_keyword(word: &str) -> bool {
    let for_people =
        ["$ref", "title", "description", "example", "examples", "deprecated", "externalDocs", "xml", "default"];
    !for_people.contains(&word) && !word.starts_with("x-")
}
