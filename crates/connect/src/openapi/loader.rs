//! Reads the text of a document.
//!
//! In: JSON or YAML, from a text or a file. Out: one JSON value, or where the text cannot be read. Bounded: the size of the text,
//! how deep it goes, and what the aliases of YAML may multiply to. Knows nothing about what the document says.

use std::path::Path;

use serde_json::Value;

use super::{ImportError, yaml};

/// The largest public documents have half of that.
pub(super) const MAX_DOCUMENT_BYTES: usize = 96 * 1024 * 1024;
/// The value a text stands for: JSON where it begins with `{`, else YAML.
///
/// # Errors
/// When it is neither, or too large.
pub fn parse(text: &str) -> Result<Value, ImportError> {
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(ImportError::TooLarge { bytes: text.len(), most: MAX_DOCUMENT_BYTES });
    }
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|error| ImportError::Syntax { format: "JSON", why: error.to_string() });
    }
    yaml::parse(text).map_err(|why| ImportError::Syntax { format: "YAML", why })
}

/// The value in a file.
///
/// # Errors
/// When the file cannot be read, or as [`parse`].
pub fn load(file: &Path) -> Result<Value, ImportError> {
    let lost = |why: String| ImportError::File { file: file.to_owned(), why };
    let size = std::fs::metadata(file).map_err(|error| lost(error.to_string()))?.len();
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    if size > MAX_DOCUMENT_BYTES {
        return Err(ImportError::TooLarge { bytes: size, most: MAX_DOCUMENT_BYTES });
    }
    let bytes = std::fs::read(file).map_err(|error| lost(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| lost("it is not UTF-8".into()))?;
    parse(&text)
}
