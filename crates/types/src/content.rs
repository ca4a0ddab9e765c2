//! What a tool gives back beside its structured output: text, pictures, sound, or a pointer to more.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::ArtifactId;

/// One piece of a tool's answer, in the shape models are given it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// The bytes, in base64.
        data: String,
        /// What they are, such as `image/png`.
        mime_type: String,
    },
    /// Sound.
    Audio {
        /// The bytes, in base64.
        data: String,
        /// What they are, such as `audio/wav`.
        mime_type: String,
    },
    /// Something too long for the model, kept to be fetched.
    Artifact {
        /// What to ask for.
        id: ArtifactId,
        /// What it is, such as `text/plain`.
        mime_type: String,
        /// How large it is.
        bytes: usize,
    },
}

impl Content {
    /// How many bytes its texts take. An artifact's own bytes lie elsewhere.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        match self {
            Self::Text { text } => text.capacity(),
            Self::Image { data, mime_type } | Self::Audio { data, mime_type } => data.capacity() + mime_type.capacity(),
            Self::Artifact { id, mime_type, .. } => id.as_str().len() + mime_type.capacity(),
        }
    }

    /// A piece of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}
