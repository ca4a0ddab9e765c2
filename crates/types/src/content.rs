//! Content blocks of a tool result: text, images, audio, resources, and references to artifacts.
//!
//! They have the form of MCP content blocks. Structured output is separate; see `outcome`.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::ArtifactId;

/// One content block of a tool result, in the form that models receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// The bytes, in base64.
        data: String,
        /// The MIME type, such as `image/png`.
        mime_type: String,
    },
    /// Audio.
    Audio {
        /// The bytes, in base64.
        data: String,
        /// The MIME type, such as `audio/wav`.
        mime_type: String,
    },
    /// A reference to a resource that is not part of the result.
    ResourceLink(Box<ResourceLink>),
    /// A resource that is part of the result.
    Resource {
        /// The resource.
        resource: Box<EmbeddedResource>,
    },
    /// Content too long for the model, stored as an artifact that can be fetched.
    Artifact {
        /// The id to fetch it by.
        id: ArtifactId,
        /// The MIME type, such as `text/plain`.
        mime_type: String,
        /// The size in bytes.
        bytes: usize,
    },
}

/// A reference to a resource, such as a file, that the tool's server can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceLink {
    /// Its URI.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// A display name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub title: Option<String>,
    /// What it contains.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub description: Option<String>,
    /// Its MIME type.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mime_type: Option<String>,
    /// Its size in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size: Option<u64>,
}

/// A resource, such as a file, and its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedResource {
    /// Its URI.
    pub uri: String,
    /// Its MIME type.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mime_type: Option<String>,
    /// Its contents.
    #[serde(flatten)]
    pub contents: ResourceContents,
}

/// The contents of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ResourceContents {
    /// Text.
    Text(String),
    /// Bytes, in base64.
    Blob(String),
}

impl Content {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// The text that a model gets for this block; `None` if the block is not text.
    #[must_use]
    pub fn model_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text { text } => Some(Cow::Borrowed(text)),
            Self::ResourceLink(link) => Some(Cow::Owned(link.to_text())),
            Self::Resource { resource } => match &resource.contents {
                ResourceContents::Text(text) => Some(Cow::Owned(format!("Resource {}:\n{text}", resource.uri))),
                ResourceContents::Blob(_) => None,
            },
            Self::Image { .. } | Self::Audio { .. } | Self::Artifact { .. } => None,
        }
    }

    /// The bytes of a binary block in base64, and their MIME type.
    #[must_use]
    pub fn binary(&self) -> Option<(&str, &str)> {
        match self {
            Self::Image { data, mime_type } | Self::Audio { data, mime_type } => Some((data, mime_type)),
            Self::Resource { resource } => match &resource.contents {
                ResourceContents::Blob(data) => Some((data, resource.mime_type.as_deref().unwrap_or(UNKNOWN_TYPE))),
                ResourceContents::Text(_) => None,
            },
            Self::Text { .. } | Self::ResourceLink(_) | Self::Artifact { .. } => None,
        }
    }

    /// The bytes of a binary block in base64, to be changed.
    pub fn base64_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Image { data, .. } | Self::Audio { data, .. } => Some(data),
            Self::Resource { resource } => match &mut resource.contents {
                ResourceContents::Blob(data) => Some(data),
                ResourceContents::Text(_) => None,
            },
            Self::Text { .. } | Self::ResourceLink(_) | Self::Artifact { .. } => None,
        }
    }

    /// Names a binary block for people and models: `audio (audio/wav)`.
    #[must_use]
    pub fn binary_label(&self) -> Option<String> {
        let (_, mime_type) = self.binary()?;
        let what = match self {
            Self::Image { .. } => "image".into(),
            Self::Resource { resource } => format!("resource {}", shorten(&resource.uri)),
            _ => "audio".to_owned(),
        };
        Some(format!("{what} ({})", shorten(mime_type)))
    }

    /// All texts that its source wrote, except bytes in base64 and MIME types.
    pub fn texts_mut(&mut self) -> Vec<&mut String> {
        match self {
            Self::Text { text } => vec![text],
            Self::ResourceLink(link) => {
                let ResourceLink { uri, name, title, description, .. } = &mut **link;
                [uri, name].into_iter().chain(title).chain(description).collect()
            }
            Self::Resource { resource } => match &mut resource.contents {
                ResourceContents::Text(text) => vec![&mut resource.uri, text],
                ResourceContents::Blob(_) => vec![&mut resource.uri],
            },
            Self::Image { .. } | Self::Audio { .. } | Self::Artifact { .. } => Vec::new(),
        }
    }

    /// The memory its texts take, in bytes. An artifact's own bytes are stored elsewhere and not counted.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let optional = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        match self {
            Self::Text { text } => text.capacity(),
            Self::Image { data, mime_type } | Self::Audio { data, mime_type } => data.capacity() + mime_type.capacity(),
            Self::ResourceLink(link) => {
                let optional = optional(&link.title) + optional(&link.description) + optional(&link.mime_type);
                size_of::<ResourceLink>() + link.uri.capacity() + link.name.capacity() + optional
            }
            Self::Resource { resource } => {
                let (ResourceContents::Text(data) | ResourceContents::Blob(data)) = &resource.contents;
                let texts = resource.uri.capacity() + optional(&resource.mime_type) + data.capacity();
                size_of::<EmbeddedResource>() + texts
            }
            Self::Artifact { id, mime_type, .. } => id.as_str().len() + mime_type.capacity(),
        }
    }
}

/// The MIME type of bytes of unknown type.
pub const UNKNOWN_TYPE: &str = "application/octet-stream";
/// Longest URI or MIME type in a label.
const MAX_LABEL_CHARS: usize = 200;

fn shorten(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_LABEL_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

impl ResourceLink {
    /// One line, such as `Resource report.csv: file:///report.csv (text/csv, 120 bytes). Sales of the year`.
    fn to_text(&self) -> String {
        let name = self.title.as_ref().unwrap_or(&self.name);
        let size = self.size.map(|size| format!("{size} bytes"));
        let facts: Vec<&str> = self.mime_type.as_deref().into_iter().chain(size.as_deref()).collect();
        let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
        let description = self.description.as_ref().map_or(String::new(), |text| format!(". {text}"));
        format!("Resource {name}: {}{facts}{description}", self.uri)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(block: &Value) -> Content {
        serde_json::from_value(block.clone()).unwrap()
    }

    #[test]
    fn blocks_have_the_form_of_mcp() {
        for block in [
            json!({"type": "text", "text": "hi"}),
            json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}),
            json!({"type": "audio", "data": "aGk=", "mimeType": "audio/wav"}),
            json!({"type": "resource_link", "uri": "file:///a", "name": "a"}),
            json!({"type": "resource_link", "uri": "file:///a", "name": "a", "title": "A", "description": "An a",
                   "mimeType": "text/plain", "size": 3}),
            json!({"type": "resource", "resource": {"uri": "file:///a", "text": "abc"}}),
            json!({"type": "resource", "resource": {"uri": "file:///a", "mimeType": "image/png", "blob": "aGk="}}),
        ] {
            assert_eq!(serde_json::to_value(parse(&block)).unwrap(), block);
        }
        for odd in [
            json!({"type": "resource", "resource": {"uri": "file:///a"}}),
            json!({"type": "resource_link", "name": "a"}),
            json!({"type": "video", "data": ""}),
        ] {
            assert!(serde_json::from_value::<Content>(odd.clone()).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_model_reads_links_and_embedded_text_and_bytes_are_named() {
        let link = json!({"type": "resource_link", "uri": "file:///a.csv", "name": "a.csv", "title": "Sales",
            "description": "Of the year", "mimeType": "text/csv", "size": 120});
        let text = json!({"type": "resource", "resource": {"uri": "file:///a", "text": "abc"}});
        let blob = json!({"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}});
        let texts = [&link, &text, &blob].map(|block| parse(block).model_text().map(Cow::into_owned));
        assert_eq!(texts[0].as_deref(), Some("Resource Sales: file:///a.csv (text/csv, 120 bytes). Of the year"));
        assert_eq!(texts[1].as_deref(), Some("Resource file:///a:\nabc"));
        assert_eq!(texts[2], None);
        assert_eq!(parse(&blob).binary(), Some(("aGk=", "application/octet-stream")));
        assert_eq!(parse(&blob).binary_label().as_deref(), Some("resource file:///b (application/octet-stream)"));
        let audio = Content::Audio { data: String::new(), mime_type: "audio/wav".into() };
        assert_eq!(audio.binary_label().as_deref(), Some("audio (audio/wav)"));
    }
}
