//! Parses the text of a document.
//!
//! In: JSON or YAML, from a text or a file. Out: one JSON value, or a syntax error with its position. Bounded in size, nesting, and
//! expansion of YAML aliases. Does not interpret the document.

use std::path::Path;

use serde_json::Value;

use super::{ImportError, yaml};

/// Twice the size of the largest public documents.
pub(super) const MAX_DOCUMENT_BYTES: usize = 96 * 1024 * 1024;

/// Parses a text: JSON if it begins with `{`, else YAML.
///
/// # Errors
/// When it is neither, or too large.
pub fn parse(text: &str) -> Result<Value, ImportError> {
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(ImportError::TooLarge { bytes: text.len(), limit: MAX_DOCUMENT_BYTES });
    }
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|error| ImportError::Syntax { format: "JSON", reason: error.to_string() });
    }
    yaml::parse(text).map_err(|reason| ImportError::Syntax { format: "YAML", reason })
}

/// Loads and parses a file.
///
/// # Errors
/// When the file cannot be read, or as [`parse`].
pub fn load(file: &Path) -> Result<Value, ImportError> {
    let failed = |reason: String| ImportError::File { file: file.to_owned(), reason };
    let size = std::fs::metadata(file).map_err(|error| failed(error.to_string()))?.len();
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > MAX_DOCUMENT_BYTES {
        return Err(ImportError::TooLarge { bytes: size, limit: MAX_DOCUMENT_BYTES });
    }
    let bytes = std::fs::read(file).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".into()))?;
    parse(&text)
}
