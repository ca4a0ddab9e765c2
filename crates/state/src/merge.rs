//! Three-way merge of JSON values.
//!
//! In: the common ancestor and the two changed values. Out: a value with both changes, or the location of the conflict.
//! Objects are merged member by member; all other values, arrays included, are atomic.

use serde_json::{Map, Value};

/// A value with both changes; or the JSON pointer of a value that both changed.
pub fn three_way(base: &Value, mine: &Value, theirs: &Value) -> Result<Value, String> {
    if mine == theirs || base == theirs {
        return Ok(mine.clone());
    }
    if base == mine {
        return Ok(theirs.clone());
    }
    match (base, mine, theirs) {
        (Value::Object(base), Value::Object(mine), Value::Object(theirs)) => merge_members(base, mine, theirs),
        _ => Err(String::new()),
    }
}

/// Describes the location of a conflict in words.
pub fn describe_conflict(at: &str) -> String {
    format!("both changed {}", if at.is_empty() { "the whole value" } else { at })
}

type Members = Map<String, Value>;

fn merge_members(base: &Members, mine: &Members, theirs: &Members) -> Result<Value, String> {
    let mut merged = Members::new();
    let added = theirs.keys().filter(|name| !mine.contains_key(*name));
    for name in mine.keys().chain(added) {
        let (was, my, their) = (base.get(name), mine.get(name), theirs.get(name));
        let member = match (was, my, their) {
            (Some(was), Some(my), Some(their)) => {
                Some(three_way(was, my, their).map_err(|at| prepend_segment(name, &at))?)
            }
            // One side added or removed the member, and the other left it unchanged.
            _ if my == their || was == their => my.cloned(),
            _ if was == my => their.cloned(),
            _ => return Err(prepend_segment(name, "")),
        };
        merged.extend(member.map(|member| (name.clone(), member)));
    }
    Ok(Value::Object(merged))
}

fn prepend_segment(name: &str, at: &str) -> String {
    format!("/{}{at}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_of_different_members_are_put_together() {
        let base = json!({"a": 1, "b": {"c": 1, "d": 1}, "gone": 1, "list": [1]});
        let mine = json!({"a": 2, "b": {"c": 2, "d": 1}, "gone": 1, "list": [1], "new": 1});
        let theirs = json!({"a": 1, "b": {"c": 1, "d": 2}, "list": [1, 2], "other": 1});
        let both = json!({"a": 2, "b": {"c": 2, "d": 2}, "list": [1, 2], "new": 1, "other": 1});
        assert_eq!(three_way(&base, &mine, &theirs), Ok(both.clone()));
        assert_eq!(three_way(&base, &theirs, &mine), Ok(both));
    }

    #[test]
    fn the_same_change_on_both_sides_is_one_change() {
        assert_eq!(three_way(&json!({"a": 1}), &json!({"a": 2}), &json!({"a": 2})), Ok(json!({"a": 2})));
        assert_eq!(three_way(&json!({"a": 1}), &json!({}), &json!({})), Ok(json!({})));
    }

    #[test]
    fn two_changes_of_one_thing_are_refused_and_the_place_is_told() {
        let check = |base: Value, mine: Value, theirs: Value, at: &str| {
            assert_eq!(three_way(&base, &mine, &theirs), Err(at.into()));
            assert_eq!(three_way(&base, &theirs, &mine), Err(at.into()));
        };
        check(json!({"a": {"b/c": 1}}), json!({"a": {"b/c": 2}}), json!({"a": {"b/c": 3}}), "/a/b~1c");
        check(json!({"a": 1}), json!({"a": 2}), json!({}), "/a");
        check(json!({}), json!({"a": 2}), json!({"a": 3}), "/a");
        check(json!({"a": [1]}), json!({"a": [1, 2]}), json!({"a": [1, 3]}), "/a");
        check(json!(1), json!(2), json!(3), "");
    }
}
