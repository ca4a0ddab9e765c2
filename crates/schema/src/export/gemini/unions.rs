//! Resolves unions to what Gemini's schema can say of them.
//!
//! In: the keywords of a schema. Out: the same without `null` among its alternatives, or its alternatives as schemas
//! of their own. Alternatives that only list strings become one list.

use serde_json::{Map, Value, json};

use crate::export::{
    append_description,
    flatten::{self, fixed_values},
    merge::intersect,
    walk,
};

/// The keywords without the alternative `null`, and whether there was one.
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
                if let Some(Value::Object(only)) = branches.pop() {
                    let (only, inner) = split_off_null(only);
                    nullable |= inner;
                    keywords = intersect(keywords, only);
                }
            }
            (_, Some((listed, words))) => {
                keywords = intersect(keywords, listed);
                if !words.is_empty() {
                    append_description(&mut keywords, &words.join("\n"));
                }
            }
            _ => {
                keywords.insert(keyword.into(), branches.into());
            }
        }
    }
    (keywords, nullable)
}

/// The alternatives of a schema that is still a union.
pub(super) fn branches(keywords: &Map<String, Value>) -> Option<Vec<Value>> {
    let branches = ["anyOf", "oneOf"].into_iter().find_map(|keyword| keywords.get(keyword)?.as_array())?;
    // Next to properties of its own a union says which of them go together. Repeating them in every branch would
    // multiply the schema with each level, so they become one object, as at the root.
    if keywords.contains_key("properties") {
        let mut one = flatten::object(&Value::Object(keywords.clone()));
        one.remove("description");
        return Some(vec![one.into()]);
    }
    if keywords.contains_key("items") {
        let plain =
            keywords.iter().filter(|(keyword, _)| !["anyOf", "oneOf", "description"].contains(&keyword.as_str()));
        return Some(vec![Value::Object(plain.map(|(k, v)| (k.clone(), v.clone())).collect())]);
    }
    let shared: Map<String, Value> = keywords
        .iter()
        .filter(|(keyword, _)| !["title", "description", "default"].contains(&keyword.as_str()))
        .filter(|(keyword, _)| !walk::holds_schemas(keyword))
        .map(|(keyword, value)| (keyword.clone(), value.clone()))
        .collect();
    let each = branches.iter().map(|branch| match branch {
        Value::Object(branch) => Value::Object(intersect(branch.clone(), shared.clone())),
        other => other.clone(),
    });
    Some(each.collect())
}

/// The keywords with everything under `allOf` joined in.
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

/// Alternatives that each list strings, as one list, and what is said of each value.
fn merge_string_enums(branches: &[Value]) -> Option<(Map<String, Value>, Vec<String>)> {
    let mut values: Vec<Value> = Vec::new();
    let mut words = Vec::new();
    for branch in branches {
        let listed = fixed_values(branch).filter(|values| values.iter().all(Value::is_string))?;
        if let (Some(text), [value]) = (branch["description"].as_str(), &listed[..]) {
            words.push(format!("{value}: {text}"));
        }
        values.extend(listed);
    }
    let mut listed = Map::new();
    listed.insert("type".into(), "string".into());
    listed.insert("enum".into(), json!(values));
    Some((listed, words))
}
