//! Sets a member of a JSON document without changing anything else in it: order, numbers, layout and comments stay.
//!
//! In: the text, a path of names, and a value. Out: the text with the value at the path; or, to add to a list that is there, with the
//! elements that it does not have.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};

use crate::config;

/// A text to insert, and the range of bytes that it replaces.
struct Edit {
    from: usize,
    to: usize,
    text: String,
}

/// What to do with a value.
#[derive(Clone, Copy)]
enum MemberChange<'a> {
    /// It replaces what is there.
    Set(&'a Value),
    /// Its elements are added to a list that is there.
    Add(&'a Value),
}

impl<'a> MemberChange<'a> {
    fn value(self) -> &'a Value {
        match self {
            Self::Set(value) | Self::Add(value) => value,
        }
    }

    /// The elements that a list lacks; `None` if the value replaces it. An element with the id of another one is the same.
    fn missing(self, list: &[Value]) -> Option<Vec<&'a Value>> {
        let Self::Add(Value::Array(more)) = self else { return None };
        let is_same =
            |one: &Value, other: &Value| one == other || one.get("id").is_some_and(|id| other.get("id") == Some(id));
        Some(more.iter().filter(|one| !list.iter().any(|other| is_same(one, other))).collect())
    }
}

/// The member at a path, if there is one.
///
/// # Errors
/// When the text is not JSON.
pub(super) fn get(text: &str, path: &[&str]) -> Result<Option<Value>, String> {
    let json = config::strip_json_comments(text.strip_prefix('\u{feff}').unwrap_or(text));
    if json.trim().is_empty() {
        return Ok(None);
    }
    let document: Value = serde_json::from_str(&json).map_err(|error| format!("it is not JSON: {error}"))?;
    Ok(path.iter().try_fold(&document, |value, name| value.get(name)).cloned())
}

/// Sets the member at a path.
///
/// # Errors
/// When the text is not JSON, or has something other than an object on the path.
pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, String> {
    change(text, path, MemberChange::Set(value))
}

/// Adds elements to the list at a path.
///
/// # Errors
/// When the text is not JSON, or has something other than an object on the path.
pub(super) fn add(text: &str, path: &[&str], elements: &Value) -> Result<String, String> {
    change(text, path, MemberChange::Add(elements))
}

fn change(text: &str, path: &[&str], change: MemberChange<'_>) -> Result<String, String> {
    // Without comments, and of the same number of characters.
    let (bom, body) = text.strip_prefix('\u{feff}').map_or(("", text), |rest| ("\u{feff}", rest));
    let json = config::strip_json_comments(body);
    if json.trim().is_empty() {
        let document = path.iter().rev().fold(change.value().clone(), |inner, name| json!({*name: inner}));
        // A comment at the end of the text may end with its line.
        let gap = if body.trim().is_empty() { "" } else { "\n" };
        return checked(format!("{bom}{}{gap}{document:#}\n", body.trim_end()), &document);
    }
    let before: Value = serde_json::from_str(&json).map_err(|error| format!("it is not JSON: {error}"))?;
    let expected = expect(before.clone(), path, change)?;
    if expected == before {
        return Ok(text.to_owned());
    }
    let root: &RawValue = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let edit = edit(&json, root, path, change, 1)?;
    let at = |byte: usize| {
        let chars = json[..byte].chars().count();
        body.char_indices().nth(chars).map_or(body.len(), |(at, _)| at)
    };
    checked(format!("{bom}{}{}{}", &body[..at(edit.from)], edit.text, &body[at(edit.to)..]), &expected)
}

/// The text, if it is what was meant.
fn checked(after: String, expected: &Value) -> Result<String, String> {
    let plain = config::strip_json_comments(after.strip_prefix('\u{feff}').unwrap_or(&after));
    match serde_json::from_str::<Value>(&plain) {
        Ok(found) if found == *expected => Ok(after),
        _ => Err("it cannot be changed without changing other parts".into()),
    }
}

/// The document with the value.
fn expect(mut document: Value, path: &[&str], change: MemberChange<'_>) -> Result<Value, String> {
    let mut place = &mut document;
    for name in path {
        let object = place.as_object_mut().ok_or("it has another value where an object is expected")?;
        place = object.entry(*name).or_insert(Value::Null);
        if place.is_null() {
            *place = if path.last() == Some(name) { Value::Null } else { json!({}) };
        }
    }
    let missing = place.as_array().and_then(|list| change.missing(list));
    match (&mut *place, missing) {
        (Value::Array(list), Some(missing)) => list.extend(missing.into_iter().cloned()),
        (place, _) => *place = change.value().clone(),
    }
    Ok(document)
}

fn edit(json: &str, place: &RawValue, path: &[&str], change: MemberChange<'_>, depth: usize) -> Result<Edit, String> {
    let start = offset(json, place);
    let [name, rest @ ..] = path else {
        let elements = serde_json::from_str::<Vec<&RawValue>>(place.get()).unwrap_or_default();
        let known = serde_json::from_str::<Vec<Value>>(place.get()).ok();
        let Some(missing) = known.and_then(|known| change.missing(&known)) else {
            let text = indented(change.value(), line_indent(json, start));
            return Ok(Edit { from: start, to: start + place.get().len(), text });
        };
        return Ok(insert(json, start, elements.last().copied(), depth, &missing, ""));
    };
    let Members(members) =
        serde_json::from_str(place.get()).map_err(|_| "it has another value where an object is expected")?;
    match members.iter().rev().find(|(member, _)| member == name) {
        Some((_, inner)) if inner.get() != "null" => edit(json, inner, rest, change, depth + 1),
        Some((_, null)) => {
            let inner = rest.iter().rev().fold(change.value().clone(), |inner, name| json!({*name: inner}));
            let start = offset(json, null);
            let text = indented(&inner, line_indent(json, start));
            Ok(Edit { from: start, to: start + null.get().len(), text })
        }
        None => {
            let inner = rest.iter().rev().fold(change.value().clone(), |inner, name| json!({*name: inner}));
            let label = format!("{}: ", Value::from(*name));
            Ok(insert(json, start, members.last().map(|(_, value)| *value), depth, &[&inner], &label))
        }
    }
}

/// Inserts values behind the last one of an object or a list that starts here.
fn insert(json: &str, start: usize, last: Option<&RawValue>, depth: usize, values: &[&Value], label: &str) -> Edit {
    let indent = match last {
        Some(last) if json[start..offset(json, last)].contains('\n') => {
            line_indent(json, offset(json, last)).to_owned()
        }
        _ => format!("{}{}", line_indent(json, start), if depth > 0 { "  " } else { "" }),
    };
    let lines: Vec<String> =
        values.iter().map(|value| format!("\n{indent}{label}{}", indented(value, &indent))).collect();
    let lines = lines.join(",");
    match last {
        Some(last) => {
            let end = offset(json, last) + last.get().len();
            Edit { from: end, to: end, text: format!(",{lines}") }
        }
        None => {
            let closing = line_indent(json, start);
            Edit { from: start + 1, to: start + 1, text: format!("{lines}\n{closing}") }
        }
    }
}

fn indented(value: &Value, indent: &str) -> String {
    format!("{value:#}").replace('\n', &format!("\n{indent}"))
}

/// The white space at the start of the line.
fn line_indent(json: &str, at: usize) -> &str {
    let line = json[..at].rfind('\n').map_or(0, |end| end + 1);
    let length = json[line..].len() - json[line..].trim_start_matches([' ', '\t']).len();
    &json[line..line + length]
}

/// Where a value of the document is.
fn offset(json: &str, value: &RawValue) -> usize {
    value.get().as_ptr() as usize - json.as_ptr() as usize
}

/// The members of an object, in their order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MemberVisitor;
        impl<'de> Visitor<'de> for MemberVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MemberVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_change(before: &str, path: &[&str], what: MemberChange<'_>, expected: &str) {
        let after = change(before, path, what).unwrap();
        assert_eq!(after, expected);
        assert_eq!(change(&after, path, what).unwrap(), after, "a second time changes nothing");
    }

    #[track_caller]
    fn check(before: &str, path: &[&str], value: &Value, expected: &str) {
        check_change(before, path, MemberChange::Set(value), expected);
    }

    #[test]
    fn a_document_of_comments_gets_its_first_member() {
        let member = "{\n  \"a\": 1\n}\n";
        for comment in ["// mine", "/* mine */", "// one\n// two\r\n\n", "\u{feff}// mine"] {
            check(comment, &["a"], &json!(1), &format!("{}\n{member}", comment.trim_end()));
        }
        assert!(set("/* open", &["a"], &json!(1)).is_err());
    }

    #[test]
    fn a_list_is_replaced_and_a_member_of_an_entry_is_set_beside_comments() {
        check(
            "{\"s\": {\"h\": {\n  // mine\n  \"args\": [\"a\"],\n  \"env\": {}\n}}}",
            &["s", "h", "args"],
            &json!(["b"]),
            "{\"s\": {\"h\": {\n  // mine\n  \"args\": [\n    \"b\"\n  ],\n  \"env\": {}\n}}}",
        );
    }

    #[test]
    fn a_member_is_added_and_everything_else_stays() {
        let path = ["mcpServers", "hub"];
        check("", &path, &json!({"a": 1}), "{\n  \"mcpServers\": {\n    \"hub\": {\n      \"a\": 1\n    }\n  }\n}\n");
        check(
            "{\n  \"z\": 1.10, // \u{fc}ber\n  \"mcpServers\": {\n    \"b\": {}, /* last */\n  },\n  \"a\": [1e3]\n}\n",
            &path,
            &json!({"u": "x"}),
            "{\n  \"z\": 1.10, // \u{fc}ber\n  \"mcpServers\": {\n    \"b\": {},\n    \"hub\": {\n      \"u\": \"x\"\n    }, /* last */\n  },\n  \"a\": [1e3]\n}\n",
        );
        check("\u{feff}{}", &path, &json!(1), "\u{feff}{\n  \"mcpServers\": {\n    \"hub\": 1\n  }\n}");
        check("{\"a\":1}", &path, &json!(1), "{\"a\":1,\n  \"mcpServers\": {\n    \"hub\": 1\n  }}");
        check("{\n\t\"mcpServers\": null\n}", &path, &json!(1), "{\n\t\"mcpServers\": {\n\t  \"hub\": 1\n\t}\n}");
        check(
            "{\n  \"mcpServers\": {\n    \"hub\": {\"command\": \"x\"}\n  }\n}",
            &path,
            &json!({"u": 1}),
            "{\n  \"mcpServers\": {\n    \"hub\": {\n      \"u\": 1\n    }\n  }\n}",
        );
    }

    #[test]
    fn elements_of_a_list_are_added_once() {
        let input = json!([{"id": "t"}]);
        let check = |before: &str, path: &[&str], expected: &str| {
            check_change(before, path, MemberChange::Add(&input), expected);
        };
        check("{\"inputs\": []}", &["inputs"], "{\"inputs\": [\n  {\n    \"id\": \"t\"\n  }\n]}");
        check(
            "{\n  \"inputs\": [\n    {\"id\": \"a\"}\n  ]\n}",
            &["inputs"],
            "{\n  \"inputs\": [\n    {\"id\": \"a\"},\n    {\n      \"id\": \"t\"\n    }\n  ]\n}",
        );
        // An id is there once.
        let other = "{\"inputs\": [{\"id\": \"t\", \"password\": false}]}";
        check(other, &["inputs"], other);
    }

    #[test]
    fn what_cannot_be_parsed_or_is_no_object_is_refused() {
        for text in ["{", "[]", "7", "{\"mcpServers\": []}", "{\"mcpServers\": {}} x", "{'a': 1}"] {
            assert!(set(text, &["mcpServers", "hub"], &json!(1)).is_err(), "{text}");
        }
    }
}
