//! Finds rules with a condition on an argument that none of their tools has. Such a rule matches no call.
//!
//! In: the rules of a config and the hub built from it. Out: a warning for each such condition.

use serde_json::Value;
use toolhub::{Rule, ToolFilter, ToolHub, Toolset};

/// A warning for each condition on an argument that no tool of its rule has. A rule without tools gets none, nor does one for all
/// tools: the tools it is meant for may come later.
pub(super) fn find_unknown(rules: &[Rule], hub: &ToolHub) -> Vec<String> {
    let tools = hub.list(&ToolFilter::default());
    let mut warnings = Vec::new();
    for rule in rules {
        let Ok(matched) = Toolset::from_patterns([rule.tool.as_str()]) else { continue };
        let schemas = || {
            let matched = tools.iter().filter(|tool| matched.contains(&tool.definition.name));
            matched.map(|tool| &tool.definition.parameters)
        };
        if rule.tool == "*" || schemas().next().is_none() {
            continue;
        }
        for condition in &rule.arguments {
            if !schemas().any(|schema| may_have(schema, &condition.pointer)) {
                warnings.push(format!(
                    "the rule for `{}` has a condition on the argument `{}`, which no such tool has in its `parameters`",
                    rule.tool, condition.pointer
                ));
            }
        }
    }
    warnings
}

/// Whether arguments by this schema may have a value at this pointer.
fn may_have(mut schema: &Value, pointer: &str) -> bool {
    for segment in pointer.split('/').skip(1) {
        let name = segment.replace("~1", "/").replace("~0", "~");
        let composed = ["$ref", "allOf", "anyOf", "oneOf", "patternProperties"];
        if composed.iter().any(|keyword| schema.get(keyword).is_some()) {
            return true;
        }
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return true };
        // `additionalProperties` must be there: most schemas only forget to forbid it.
        let open = schema.get("additionalProperties").is_some_and(|more| *more != Value::Bool(false));
        match properties.get(&name) {
            Some(inner) => schema = inner,
            None => return open,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pointer_is_followed_as_far_as_the_schema_tells() {
        let schema = json!({"type": "object", "properties": {"folder": {"type": "string"},
            "to": {"type": "object", "properties": {"a/b": {}}}, "list": {"type": "array"}}});
        for known in ["", "/folder", "/to", "/to/a~1b", "/list/0"] {
            assert!(may_have(&schema, known), "{known}");
        }
        for unknown in ["/path", "/to/b", "/Folder"] {
            assert!(!may_have(&schema, unknown), "{unknown}");
        }
        assert!(may_have(&json!({}), "/any") && may_have(&json!({"properties": {}, "$ref": "#/x"}), "/any"));
        assert!(may_have(&json!({"properties": {}, "additionalProperties": {}}), "/any"));
    }
}
