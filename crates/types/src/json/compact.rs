//! `CompactJson`: a JSON value kept as text while it is not read, to save memory.
//!
//! In: a value. Out: the same value. A small one is kept as it is; a large one is kept as text, shared by all clones, and
//! parsed when it is read.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, value::RawValue};

use super::{JsonLimits, memory};

/// A value that takes more than this is kept as text.
const MAX_PARSED_BYTES: usize = 16 << 10;

/// A JSON value in compact form.
#[derive(Clone)]
pub struct CompactJson(Form);

#[derive(Clone)]
enum Form {
    Parsed(Value),
    Text(Arc<LargeText>),
}

struct LargeText {
    text: Box<RawValue>,
    parsed_bytes: usize,
}

impl CompactJson {
    /// The value; a large one is parsed for this call.
    #[must_use]
    pub fn to_value(&self) -> Cow<'_, Value> {
        match &self.0 {
            Form::Parsed(value) => Cow::Borrowed(value),
            Form::Text(large) => Cow::Owned(large.parse()),
        }
    }

    /// The value; a large one is parsed.
    #[must_use]
    pub fn into_value(self) -> Value {
        match self.0 {
            Form::Parsed(value) => value,
            Form::Text(large) => large.parse(),
        }
    }

    /// The memory that the parsed value takes, if it is large enough to be kept as text.
    #[must_use]
    pub fn large_bytes(&self) -> Option<usize> {
        match &self.0 {
            Form::Parsed(_) => None,
            Form::Text(large) => Some(large.parsed_bytes),
        }
    }

    /// The text, if it is kept as text.
    #[must_use]
    pub fn large_text(&self) -> Option<&str> {
        match &self.0 {
            Form::Parsed(_) => None,
            Form::Text(large) => Some(large.text.get()),
        }
    }

    /// The memory that it takes in this form.
    #[must_use]
    pub fn compact_bytes(&self) -> usize {
        match &self.0 {
            Form::Parsed(value) => memory::estimated_bytes(value),
            Form::Text(large) => large.text.get().len(),
        }
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.0, Form::Parsed(Value::Null))
    }
}

impl LargeText {
    fn parse(&self) -> Value {
        // The text was written from a value, so it can be parsed.
        serde_json::from_str(self.text.get()).unwrap_or_default()
    }
}

impl From<Value> for CompactJson {
    fn from(value: Value) -> Self {
        // A text that is nested deeper could not be parsed again.
        if memory::exceeds(&value, MAX_PARSED_BYTES)
            && is_depth_within(&value, JsonLimits::MAX_DEPTH)
            && let Ok(text) = serde_json::value::to_raw_value(&value)
        {
            let parsed_bytes = memory::estimated_bytes(&value);
            return Self(Form::Text(Arc::new(LargeText { text, parsed_bytes })));
        }
        Self(Form::Parsed(value))
    }
}

/// Whether a value is nested at most `depth` levels; the recursion itself goes no deeper.
fn is_depth_within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| is_depth_within(item, depth - 1)),
        Value::Object(members) => depth > 0 && members.values().all(|member| is_depth_within(member, depth - 1)),
        _ => true,
    }
}

impl PartialEq for CompactJson {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            // Both were written by the same serializer, so equal values have equal texts.
            (Form::Text(one), Form::Text(other)) => one.text.get() == other.text.get(),
            (Form::Parsed(one), Form::Parsed(other)) => one == other,
            _ => false,
        }
    }
}

impl Serialize for CompactJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Form::Parsed(value) => value.serialize(serializer),
            Form::Text(large) => large.text.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for CompactJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

impl fmt::Debug for CompactJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Parsed(value) => value.fmt(f),
            Form::Text(large) => write!(f, "JSON of {} bytes", large.text.get().len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_large_value_is_kept_as_text_and_is_the_same_value() {
        let wide: Value = (0..5_000).map(|n| json!({"n": n, "f": f64::from(n) / 3.0})).collect();
        for (value, is_large) in [(json!({"a": [1, null, "x"]}), false), (wide, true)] {
            let compact = CompactJson::from(value.clone());
            assert_eq!(compact.large_bytes().is_some(), is_large);
            assert_eq!(*compact.to_value(), value);
            assert_eq!(serde_json::to_string(&compact).unwrap(), value.to_string());
            assert_eq!(serde_json::from_str::<CompactJson>(&value.to_string()).unwrap(), compact);
            assert_eq!(compact.clone().into_value(), value);
        }
    }

    #[test]
    fn a_value_that_no_text_could_hold_stays_parsed() {
        for (depth, is_text) in [(JsonLimits::MAX_DEPTH, true), (JsonLimits::MAX_DEPTH + 1, false), (300, false)] {
            let inner = json!("x".repeat(MAX_PARSED_BYTES));
            let deep = (0..depth).fold(inner, |inner, _| Value::Array(vec![inner]));
            let compact = CompactJson::from(deep.clone());
            assert_eq!(compact.large_bytes().is_some(), is_text, "{depth}");
            assert_eq!(compact.into_value(), deep);
        }
    }

    #[test]
    fn the_text_takes_a_fraction_of_the_parsed_value() {
        let wide: Value = (0..30_000).map(|_| json!({"a": 0})).collect();
        let compact = CompactJson::from(wide);
        assert!(compact.large_bytes().unwrap() > 50 * compact.compact_bytes(), "{:?}", compact.large_bytes());
    }
}
