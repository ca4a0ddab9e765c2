//! Reads the content blocks of a result.
//!
//! In: the `content` of a result. Out: the blocks that are understood, and a text that names the others by their types.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toolhub_core::{Content, EmbeddedResource, ResourceContents, ResourceLink};

use crate::truncate::truncate;

/// Longest type of a block in the text about it.
const MAX_TYPE_CHARS: usize = 40;
/// How many types are named.
const MAX_TYPES: usize = 5;
const MAX_MIME_TYPE_LEN: usize = 100;

/// The content of a result.
pub(super) struct Blocks {
    pub(super) content: Vec<Content>,
    /// Names the blocks that were not understood.
    pub(super) left_out: Option<String>,
}

impl Blocks {
    pub(super) fn read(content: Value) -> Self {
        let blocks = match content {
            Value::Array(blocks) => blocks,
            Value::Null => Vec::new(),
            // Some servers send a single block without the list.
            other => vec![other],
        };
        let mut content = Vec::with_capacity(blocks.len());
        let mut unknown: BTreeMap<String, usize> = BTreeMap::new();
        for block in blocks {
            let kind = block.get("type").and_then(Value::as_str).map(|kind| truncate(kind, MAX_TYPE_CHARS));
            match read_block(block) {
                Some(block) => content.push(block),
                None => *unknown.entry(kind.unwrap_or_default()).or_default() += 1,
            }
        }
        Self { content, left_out: describe(&unknown) }
    }
}

fn read_block(block: Value) -> Option<Content> {
    let Value::Object(mut block) = block else { return None };
    let kind = text(&mut block, "type")?;
    Some(match kind.as_str() {
        "text" => Content::Text { text: text(&mut block, "text")? },
        "image" => {
            let (data, mime_type) = (base64(&mut block, "data")?, mime_type(&mut block)?);
            Content::Image { data, mime_type }
        }
        "audio" => {
            let (data, mime_type) = (base64(&mut block, "data")?, mime_type(&mut block)?);
            Content::Audio { data, mime_type }
        }
        "resource_link" => {
            let uri = text(&mut block, "uri")?;
            Content::ResourceLink(Box::new(ResourceLink {
                name: text(&mut block, "name").unwrap_or_else(|| uri.clone()),
                uri,
                title: text(&mut block, "title"),
                description: text(&mut block, "description"),
                mime_type: mime_type(&mut block),
                size: block.get("size").and_then(Value::as_u64),
            }))
        }
        "resource" => {
            let Some(Value::Object(mut resource)) = block.remove("resource") else { return None };
            let contents = match text(&mut resource, "text") {
                Some(text) => ResourceContents::Text(text),
                None => ResourceContents::Blob(base64(&mut resource, "blob")?),
            };
            let (uri, mime_type) = (text(&mut resource, "uri")?, mime_type(&mut resource));
            Content::Resource { resource: Box::new(EmbeddedResource { uri, mime_type, contents }) }
        }
        _ => return None,
    })
}

fn text(members: &mut Map<String, Value>, name: &str) -> Option<String> {
    match members.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

fn mime_type(members: &mut Map<String, Value>) -> Option<String> {
    text(members, "mimeType").filter(|kind| kind.contains('/') && kind.len() <= MAX_MIME_TYPE_LEN)
}

/// Bytes in base64, without line ends and with padding. Anything else would make a provider refuse the whole conversation.
fn base64(members: &mut Map<String, Value>, name: &str) -> Option<String> {
    let mut data = text(members, name)?;
    data.retain(|c| !c.is_ascii_whitespace());
    data.truncate(data.trim_end_matches('=').len());
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    if data.len() % 4 == 1 || !data.bytes().all(is_digit) {
        return None;
    }
    while !data.len().is_multiple_of(4) {
        data.push('=');
    }
    Some(data)
}

/// `1 content block of type `x` was left out: not understood`, one line per type.
fn describe(unknown: &BTreeMap<String, usize>) -> Option<String> {
    let line = |(kind, count): (&String, &usize)| {
        let kind = if kind.is_empty() { "without a type".to_owned() } else { format!("of type `{kind}`") };
        match count {
            1 => format!("1 content block {kind} was left out: not understood"),
            count => format!("{count} content blocks {kind} were left out: not understood"),
        }
    };
    let mut lines: Vec<String> = unknown.iter().take(MAX_TYPES).map(line).collect();
    let others: usize = unknown.values().skip(MAX_TYPES).sum();
    if others > 0 {
        lines.push(format!("{others} content blocks of other types were left out"));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}
