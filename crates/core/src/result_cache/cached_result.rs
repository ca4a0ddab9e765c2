//! A cached result, and an estimate of its memory.
//!
//! In: what a tool returned. Out: its estimated size, without serializing it.

use serde_json::Value;

use toolhub_types::content::Content;

/// What a tool returned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CachedResult {
    pub(crate) output: Value,
    pub(crate) content: Vec<Content>,
}

/// Memory of a member of an object beside its name and its value.
const MEMBER_OVERHEAD_BYTES: usize = size_of::<String>() + 16;

impl CachedResult {
    /// Estimated size in bytes; `None` if it exceeds `limit`, in which case the scan stops early.
    pub(crate) fn bytes_within(&self, limit: usize) -> Option<usize> {
        let mut bytes = self.content.iter().map(content_bytes).sum::<usize>();
        // Iterative, because an output may be nested deeper than the stack allows.
        let mut stack = vec![&self.output];
        while let Some(value) = stack.pop() {
            bytes += size_of::<Value>();
            match value {
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
                Value::String(text) => bytes += text.capacity(),
                Value::Array(items) => stack.extend(items),
                Value::Object(members) => {
                    for (name, value) in members {
                        bytes += MEMBER_OVERHEAD_BYTES + name.capacity();
                        stack.push(value);
                    }
                }
            }
            if bytes > limit {
                return None;
            }
        }
        Some(bytes)
    }
}

fn content_bytes(content: &Content) -> usize {
    size_of::<Content>() + content.text_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(output: Value, content: Vec<Content>, at_least: usize, at_most: usize) {
        let bytes = CachedResult { output, content }.bytes_within(usize::MAX).unwrap();
        assert!((at_least..=at_most).contains(&bytes), "{bytes} is not within {at_least} and {at_most}");
    }

    #[test]
    fn texts_names_and_nodes_are_counted() {
        let long = "x".repeat(1_000);
        check(json!(null), vec![], 1, 100);
        check(json!(long), vec![], 1_000, 1_100);
        check(json!({ long.clone(): 1 }), vec![], 1_000, 1_200);
        check(json!([[long], { "a": long }]), vec![], 2_000, 2_400);
        check(json!(vec![0; 100]), vec![], 100 * size_of::<Value>(), 101 * size_of::<Value>());
        check(json!(null), vec![Content::text(long.clone()), Content::text(long)], 2_000, 2_300);
    }

    #[test]
    fn what_is_too_large_or_very_deep_is_noticed() {
        let result = CachedResult { output: json!(vec![0; 1_000]), content: vec![] };
        assert_eq!(result.bytes_within(1_000), None);
        let mut deep = json!(1);
        for _ in 0..1_000 {
            deep = json!([deep]);
        }
        assert!(CachedResult { output: deep, content: vec![] }.bytes_within(usize::MAX).is_some());
    }
}
