//! Resolves unions to what Gemini's dialect can express.
//!
//! In: the keywords of a schema. Out: the same without the `null` branch, or the branches as separate schemas.
//! Branches that are string enums are merged into one enum.

use serde_json::{Map, Value, json};

use crate::export::{
    append_description,
    flatten::{self, fixed_values},
    merge::intersect,
};
use crate::walk;

/// The keywords without the `null` branch or type, and whether there was one.
pub(super) fn split_off_null(keywords: Map<String, Value>) -> (Map<String, Value>, bool) {
    let mut keywords = merge_all_of(keywords);
    let mut nullable = keywords.remove("nullable") == Some(Value::Bool(true));
    if let Some(Value::Array(kinds)) = keywords.get_mut("type") {
        let before = kinds.len();
        kinds.retain(|kind| kind != "null");
        nullable |= kinds.len() < before;
    }
    if let Some(Value::Array(values)) = keywords.get_mut("enum") {
        let before = values.len();
        values.retain(|value| !value.is_null());
        nullable |= values.len() < before;
    }
    for keyword in ["anyOf", "oneOf"] {
        let Some(Value::Array(mut branches)) = keywords.remove(keyword) else { continue };
        let before = branches.len();
        branches.retain(|branch| !is_null(branch));
        nullable |= branches.len() < before;
        match (branches.len(), merge_string_enums(&branches)) {
            (0, _) => {}
            (1, _) => {
                if let Some(Value::Object(single)) = branches.pop() {
                    let (single, inner_nullable) = split_off_null(single);
                    nullable |= inner_nullable;
                    keywords = intersect(keywords, single);
                }
            }
            (_, Some((merged, descriptions))) => {
                keywords = intersect(keywords, merged);
                if !descriptions.is_empty() {
                    append_description(&mut keywords, &descriptions.join("\n"));
                }
            }
            _ => {
                keywords.insert(keyword.into(), branches.into());
            }
        }
    }
    (keywords, nullable)
}

/// The branches of a schema that is still a union.
pub(super) fn branches(keywords: &Map<String, Value>) -> Option<Vec<Value>> {
    let branches = ["anyOf", "oneOf"].into_iter().find_map(|keyword| keywords.get(keyword)?.as_array())?;
    // A union beside `properties` describes their valid combinations. Repeating the properties in every branch would
    // grow the schema exponentially with its depth, so they become one object, as at the root.
    if keywords.contains_key("properties") {
        let mut flattened = flatten::object(&Value::Object(keywords.clone()));
        flattened.remove("description");
        return Some(vec![flattened.into()]);
    }
    if keywords.contains_key("items") {
        let array =
            keywords.iter().filter(|(keyword, _)| !["anyOf", "oneOf", "description"].contains(&keyword.as_str()));
        return Some(vec![Value::Object(array.map(|(keyword, value)| (keyword.clone(), value.clone())).collect())]);
    }
    let shared: Map<String, Value> = keywords
        .iter()
        .filter(|(keyword, _)| !["title", "description", "default"].contains(&keyword.as_str()))
        .filter(|(keyword, _)| !walk::holds_schemas(keyword))
        .map(|(keyword, value)| (keyword.clone(), value.clone()))
        .collect();
    let combined = branches.iter().map(|branch| match branch {
        Value::Object(branch) => Value::Object(intersect(branch.clone(), shared.clone())),
        other => other.clone(),
    });
    Some(combined.collect())
}

/// The keywords intersected with all schemas in `allOf`.
fn merge_all_of(mut keywords: Map<String, Value>) -> Map<String, Value> {
    let Some(Value::Array(parts)) = keywords.remove("allOf") else { return keywords };
    let parts = parts.into_iter().filter_map(|part| match part {
        Value::Object(part) => Some(merge_all_of(part)),
        _ => None,
    });
    parts.fold(keywords, intersect)
}

fn is_null(branch: &Value) -> bool {
    branch["type"] == "null" || fixed_values(branch).is_some_and(|values| values.iter().all(Value::is_null))
}

/// Merges branches that are all string enums into one, with the descriptions of single values; `None` if any is not.
fn merge_string_enums(branches: &[Value]) -> Option<(Map<String, Value>, Vec<String>)> {
    let mut values: Vec<Value> = Vec::new();
    let mut descriptions = Vec::new();
    for branch in branches {
        let branch_values = fixed_values(branch).filter(|values| values.iter().all(Value::is_string))?;
        if let (Some(text), [value]) = (branch["description"].as_str(), &branch_values[..]) {
            descriptions.push(format!("{value}: {text}"));
        }
        values.extend(branch_values);
    }
    let mut merged = Map::new();
    merged.insert("type".into(), "string".into());
    merged.insert("enum".into(), json!(values));
    Some((merged, descriptions))
}
