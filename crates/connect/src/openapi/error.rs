//! Why a document is not imported, and what was left out of one that is.

use std::{fmt, path::PathBuf};

/// Why nothing of a document is imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{} cannot be read: {why}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What the system says.
        why: String,
    },
    /// The document cannot be fetched.
    #[error("the document cannot be fetched: {why}")]
    Fetch {
        /// What happened.
        why: String,
    },
    /// The text is too long.
    #[error("the document has {bytes} bytes, at most {most} are read")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The longest that is read.
        most: usize,
    },
    /// The text is neither JSON nor YAML.
    #[error("the document is no {format}: {why}")]
    Syntax {
        /// What it was read as.
        format: &'static str,
        /// Where that ended.
        why: String,
    },
    /// It is a document of the version before.
    #[error(
        "the document is Swagger {0}, and OpenAPI 3.0 or 3.1 is needed; convert it first, for example with `npx swagger2openapi old.json -o new.json`"
    )]
    Swagger(String),
    /// It is a version nobody here has read about.
    #[error("the document says `openapi: {0}`; this importer reads 3.0 and 3.1")]
    Version(String),
    /// It is something else.
    #[error("this is no OpenAPI document: {0}")]
    NotOpenApi(&'static str),
    /// No operation knows where to send its requests.
    #[error("the document does not say where its server is ({0}); say it with `base_url`")]
    NoServer(String),
    /// A setting cannot be used.
    #[error("`{setting}` cannot be used: {why}")]
    Setting {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// Something that was left out or changed, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The operation, as `GET /pets/{id}`; `None` where the whole document is meant.
    pub operation: Option<String>,
    /// What happened.
    pub text: String,
    /// Whether the operation became no tool.
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
