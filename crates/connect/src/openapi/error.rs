//! Errors of an import, and warnings about what was omitted.

use std::{fmt, path::PathBuf};

/// Why a document cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{} cannot be read: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// The document cannot be fetched.
    #[error("the document cannot be fetched: {reason}")]
    Fetch {
        /// The cause.
        reason: String,
    },
    /// The document is too large.
    #[error("the document has {bytes} bytes, which exceeds the limit of {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The maximum size.
        limit: usize,
    },
    /// The text is neither JSON nor YAML.
    #[error("the document is not valid {format}: {reason}")]
    Syntax {
        /// The format it was parsed as.
        format: &'static str,
        /// The error of the parser, with its position.
        reason: String,
    },
    /// It is a Swagger 2.0 document.
    #[error(
        "the document is Swagger {0}, but OpenAPI 3.0 or 3.1 is required; convert it first, for example with `npx swagger2openapi old.json -o new.json`"
    )]
    Swagger(String),
    /// It is an unsupported version.
    #[error("the document is OpenAPI {0}; supported versions are 3.0 and 3.1")]
    Version(String),
    /// It is something else.
    #[error("not an OpenAPI document: {0}")]
    NotOpenApi(&'static str),
    /// No operation has a usable server URL.
    #[error("the document has no usable server URL ({0}); set `base_url`")]
    NoServer(String),
    /// An option is invalid.
    #[error("`{setting}` is invalid: {reason}")]
    Setting {
        /// The option.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// Something that was omitted or changed, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The operation, as `GET /pets/{id}`; `None` if the warning is about the whole document.
    pub operation: Option<String>,
    /// What happened.
    pub text: String,
    /// Whether the operation was skipped.
    pub skipped: bool,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = &self.operation {
            write!(f, "{operation}: ")?;
        }
        f.write_str(&self.text)?;
        f.write_str(if self.skipped { "; skipped" } else { "" })
    }
}
