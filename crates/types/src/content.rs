//! Content blocks of a tool result: text, images, audio, and references to artifacts.
//!
//! Structured output is separate; see `outcome`.

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

impl Content {
    /// The memory its texts take, in bytes. An artifact's own bytes are stored elsewhere and not counted.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Text { text } => text.capacity(),
            Self::Image { data, mime_type } | Self::Audio { data, mime_type } => data.capacity() + mime_type.capacity(),
            Self::Artifact { id, mime_type, .. } => id.as_str().len() + mime_type.capacity(),
        }
    }

    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}
