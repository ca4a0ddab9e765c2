//! Counts the values of a JSON text without parsing it.
//!
//! In: bytes and limits. Out: the number of values, or the exceeded limit. Does not check that the text is valid JSON:
//! the parser does, and for a valid text the count is exact.

use super::{JsonError, JsonLimits};

/// The number of values in a JSON text.
///
/// # Errors
/// When the text exceeds a limit.
pub fn count_values(text: &[u8], limits: JsonLimits) -> Result<usize, JsonError> {
    count(text, limits).map(|counts| counts.values)
}

/// What a JSON text consists of.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) values: usize,
    /// Arrays that are not empty.
    pub(super) arrays: usize,
    /// Objects that are not empty.
    pub(super) objects: usize,
}

pub(super) fn count(text: &[u8], limits: JsonLimits) -> Result<Counts, JsonError> {
    let mut counts = Counts { values: 1, ..Counts::default() };
    let text = text.trim_ascii_start();
    // Anything else is a single scalar, or not JSON.
    if !matches!(text.first(), Some(b'[' | b'{')) {
        return Ok(counts);
    }
    let (mut depth, mut opened) = (0_usize, None);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => continue,
            b']' | b'}' => {
                depth = depth.saturating_sub(1);
                opened = None;
                continue;
            }
            _ => {}
        }
        // Each container that is not empty has one value more than it has commas.
        match opened.take() {
            Some(b'[') => (counts.values, counts.arrays) = (counts.values + 1, counts.arrays + 1),
            Some(_) => (counts.values, counts.objects) = (counts.values + 1, counts.objects + 1),
            None => counts.values += usize::from(*byte == b','),
        }
        if counts.values > limits.values {
            return Err(JsonError::TooManyValues { limit: limits.values });
        }
        if matches!(byte, b'[' | b'{') {
            opened = Some(*byte);
            depth += 1;
            if depth > limits.depth {
                return Err(JsonError::TooDeep { limit: limits.depth });
            }
        }
        if *byte == b'"' {
            skip_string(&mut bytes);
        }
    }
    Ok(counts)
}

/// Skips to the end of a string whose opening quote was read.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'"' => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn count_parsed(value: &Value) -> usize {
        1 + match value {
            Value::Array(items) => items.iter().map(count_parsed).sum(),
            Value::Object(members) => members.values().map(count_parsed).sum(),
            _ => 0,
        }
    }

    #[test]
    fn every_value_is_counted_once() {
        for value in [
            json!(null),
            json!("a, [b] \\ \" {c}"),
            json!([]),
            json!({}),
            json!([[], {}, [[]], "x,y", 1.5]),
            json!({"a,": {"[": []}, "b\\\"": [1, 2, {"c": null}]}),
        ] {
            let expected = count_parsed(&value);
            for text in [value.to_string(), format!(" {value:#}\n")] {
                assert_eq!(count_values(text.as_bytes(), JsonLimits::default()).unwrap(), expected, "{text}");
            }
        }
    }

    #[test]
    fn a_limit_is_exceeded_by_the_first_value_beyond_it() {
        let limits = JsonLimits { values: 5, depth: 3 };
        let refused = |text: &str| count_values(text.as_bytes(), limits).err().map(|error| error.to_string());
        assert_eq!(refused("[0,0,0,0]"), None);
        assert_eq!(refused("[0,0,0,0,0]").as_deref(), Some("the JSON has more than 5 values"));
        assert_eq!(refused(r#"{"a":{"b":[0,0]}}"#), None);
        assert_eq!(refused("[[[[").as_deref(), Some("the JSON is nested deeper than 3 levels"));
        assert_eq!(refused("[[[]],[]]"), None);
        assert_eq!(refused("1, 2, 3, 4, 5, 6, 7"), None, "not JSON, which the parser finds out");
    }
}
