//! JSON Merge Patch (RFC 7396): members of the patch replace those of the target, null deletes, objects are merged.
//!
//! In: the target and the patch. Out: the merged object. Arrays are replaced whole, as the standard requires.

use serde_json::{Map, Value};

/// Applies a patch to an object.
pub(crate) fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, change) in patch {
        match change {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(inner) => {
                // An object replaces a value of another type, and its null members are still dropped.
                let mut merged = match target.remove(name) {
                    Some(Value::Object(members)) => members,
                    _ => Map::new(),
                };
                merge(&mut merged, inner);
                target.insert(name.clone(), Value::Object(merged));
            }
            leaf => {
                target.insert(name.clone(), leaf.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(target: &Value, patch: &Value, expected: &Value) {
        let (Value::Object(mut target), Value::Object(patch)) = (target.clone(), patch) else { panic!("objects only") };
        merge(&mut target, patch);
        assert_eq!(&Value::Object(target), expected);
    }

    #[test]
    fn patches_of_the_standard_give_what_the_standard_says() {
        check(&json!({"a": "b"}), &json!({"a": "c"}), &json!({"a": "c"}));
        check(&json!({"a": "b"}), &json!({"b": "c"}), &json!({"a": "b", "b": "c"}));
        check(&json!({"a": "b"}), &json!({"a": null}), &json!({}));
        check(&json!({"a": "b", "b": "c"}), &json!({"a": null}), &json!({"b": "c"}));
        check(&json!({"a": ["b"]}), &json!({"a": "c"}), &json!({"a": "c"}));
        check(&json!({"a": "c"}), &json!({"a": ["b"]}), &json!({"a": ["b"]}));
        check(&json!({"a": {"b": "c"}}), &json!({"a": {"b": "d", "c": null}}), &json!({"a": {"b": "d"}}));
        check(&json!({"a": [{"b": "c"}]}), &json!({"a": [1]}), &json!({"a": [1]}));
        check(&json!({"e": null}), &json!({"a": 1}), &json!({"e": null, "a": 1}));
        check(&json!({}), &json!({"a": {"bb": {"ccc": null}}}), &json!({"a": {"bb": {}}}));
    }
}
