//! Moves arguments whose names a provider refuses out of the list and into words.
//!
//! In: the schema of all arguments and the provider's rule for names. Out: the same schema, listing only legal ones.
//! Renaming would need a way back when the call comes in, and an exporter sees no calls. Looks only at the top, as
//! the providers do.

use serde_json::{Map, Value};

use super::append_description;

/// Takes arguments with refused names out of the list and mentions them in the description instead.
pub(super) fn unlist_illegal_names(schema: &mut Map<String, Value>, legal: fn(&str) -> bool) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    let (listed, refused): (Map<_, _>, Map<_, _>) =
        std::mem::take(properties).into_iter().partition(|(name, _)| legal(name));
    *properties = listed;
    if refused.is_empty() {
        return;
    }
    let mut needed = Vec::new();
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| {
            let keep = name.as_str().is_some_and(legal);
            needed.extend((!keep).then(|| name.clone()));
            keep
        });
    }
    // They can still be sent, but only if unlisted arguments are allowed.
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        schema.remove("additionalProperties");
    }
    let mentions = refused.iter().map(|(name, argument)| {
        let needed = if needed.contains(&Value::from(name.as_str())) { " (required)" } else { "" };
        match argument.get("description").and_then(Value::as_str) {
            Some(text) => format!("`{name}`{needed}: {text}"),
            None => format!("`{name}`{needed}"),
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
