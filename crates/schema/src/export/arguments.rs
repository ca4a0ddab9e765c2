//! Moves arguments with names that a provider rejects from `properties` to the description.
//!
//! In: the argument schema and the provider's rule for names. Out: the same schema with only legal names in `properties`.
//! Renaming is not possible: it would have to be undone when the call comes in, and an exporter sees no calls. Only top-level names are
//! checked, as the providers do.

use serde_json::{Map, Value};

use super::append_description;

/// Removes arguments with illegal names from `properties` and mentions them in the description instead.
pub(super) fn unlist_illegal_names(schema: &mut Map<String, Value>, is_legal: fn(&str) -> bool) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    let (legal, illegal): (Map<_, _>, Map<_, _>) =
        std::mem::take(properties).into_iter().partition(|(name, _)| is_legal(name));
    *properties = legal;
    if illegal.is_empty() {
        return;
    }
    let mut unlisted_required = Vec::new();
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| {
            let keep = name.as_str().is_some_and(is_legal);
            unlisted_required.extend((!keep).then(|| name.clone()));
            keep
        });
    }
    // The model can still send them, but only if additional properties are allowed.
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        schema.remove("additionalProperties");
    }
    let mentions = illegal.iter().map(|(name, argument)| {
        let suffix = if unlisted_required.contains(&Value::from(name.as_str())) { " (required)" } else { "" };
        match argument.get("description").and_then(Value::as_str) {
            Some(text) => format!("`{name}`{suffix}: {text}"),
            None => format!("`{name}`{suffix}"),
        }
    });
    let mentions = mentions.collect::<Vec<_>>().join("\n- ");
    append_description(schema, &format!("Also takes these arguments, whose names cannot be listed:\n- {mentions}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check(schema: Value, expected: Value) {
        let mut schema = schema.as_object().cloned().unwrap();
        unlist_illegal_names(&mut schema, |name| !name.contains('$'));
        assert_eq!(Value::Object(schema), expected);
    }

    #[test]
    fn refused_names_are_mentioned_and_may_still_be_sent() {
        check(
            json!({
                "properties": {"top": {}, "$filter": {"type": "string", "description": "An OData filter."}, "$skip": true},
                "required": ["top", "$filter"],
                "additionalProperties": false,
            }),
            json!({
                "properties": {"top": {}},
                "required": ["top"],
                "description": "Also takes these arguments, whose names cannot be listed:\n- `$filter` (required): An OData filter.\n- `$skip`",
            }),
        );
    }

    #[test]
    fn legal_names_stay_untouched() {
        let schema = json!({"properties": {"a": {}}, "required": ["a"], "additionalProperties": false});
        check(schema.clone(), schema);
    }
}
