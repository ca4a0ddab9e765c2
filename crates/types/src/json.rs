//! JSON from foreign sources: parses it within limits, and keeps large values as text.
//!
//! In: bytes that a client, a service or a program sent. Out: a value, or the limit that it exceeds. A few bytes of JSON
//! can take a hundred times their size once parsed, so that a limit on bytes alone does not bound the memory.

mod compact;
mod memory;
mod scan;

pub use compact::CompactJson;
pub use memory::{estimated_bytes, parsed_bytes};
pub use scan::count_values;

use serde::de::DeserializeOwned;

/// Limits on a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLimits {
    /// Largest number of values: objects, arrays and scalars, at any depth.
    pub values: usize,
    /// Deepest nesting.
    pub depth: usize,
}

impl JsonLimits {
    /// The default number of values. Parsed, so many take at most about 40 MiB.
    pub const MAX_VALUES: usize = 100_000;
    /// The default depth, which is the deepest nesting that `serde_json` parses.
    pub const MAX_DEPTH: usize = 127;
}

impl Default for JsonLimits {
    fn default() -> Self {
        Self { values: Self::MAX_VALUES, depth: Self::MAX_DEPTH }
    }
}

/// Why a JSON text was not parsed.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// It has more values than the limit.
    #[error("the JSON has more than {limit} values")]
    TooManyValues {
        /// The limit.
        limit: usize,
    },
    /// It is nested deeper than the limit.
    #[error("the JSON is nested deeper than {limit} levels")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
    /// It is not JSON, or does not fit the type.
    #[error(transparent)]
    Invalid(#[from] serde_json::Error),
}

impl JsonError {
    /// Whether the text ends before its value does.
    #[must_use]
    pub fn is_eof(&self) -> bool {
        matches!(self, Self::Invalid(error) if error.is_eof())
    }
}

/// Parses a JSON text. The limits are checked first, without allocating.
///
/// # Errors
/// When the text exceeds a limit, is not JSON, or does not fit the type.
pub fn parse<T: DeserializeOwned>(text: &[u8], limits: JsonLimits) -> Result<T, JsonError> {
    count_values(text, limits)?;
    Ok(serde_json::from_slice(text)?)
}
