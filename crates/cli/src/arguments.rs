//! Parses arguments from the command line, typed by the tool's schema.
//!
//! In: words such as `qty=2`, `lines:=[…]` or `address.city=Oslo`, and a JSON Schema. Out: a JSON object. A value that does not
//! match its type stays a string: the hub validates it and reports what it expected, the same way for all callers.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::failure::Failure;

/// Maximum number of `$ref`s to follow in a row.
const MAX_REF_DEPTH: usize = 16;

/// Parses arguments, typed by the schema.
///
/// # Errors
/// When a word is not an argument, or two of them conflict.
pub(crate) fn parse_typed(tool: &str, words: &[String], schema: &Value) -> Result<Map<String, Value>, Failure> {
    let mut arguments = Value::Object(Map::new());
    for word in words {
        let (path, value) = split_pair(word).ok_or_else(|| invalid_pair(tool, word, schema))?;
        let path = path_segments(path, schema);
        let subschema = path.iter().try_fold(schema, |subschema, segment| property_schema(subschema, segment, schema));
        let value = match value {
            PairValue::Json(text) => parse_json(word, text)?,
            PairValue::Text(text) => coerce(text, subschema.unwrap_or(&Value::Null), schema),
        };
        let is_list = subschema.is_some_and(|subschema| allowed_types(subschema, schema).contains(&"array"));
        insert(&mut arguments, &path, value, is_list).map_err(|why| Failure::usage(format!("`{word}` {why}")))?;
    }
    Ok(match arguments {
        Value::Object(arguments) => arguments,
        _ => Map::new(),
    })
}

/// Changes arguments: the words are typed by the schema, members that they do not name stay.
///
/// # Errors
/// When a word is not an argument, names one that neither the arguments nor the schema have, or two of them conflict. A
/// misspelled name must not approve the arguments as they were.
pub(crate) fn change_arguments(mut arguments: Value, words: &[String], schema: &Value) -> Result<Value, Failure> {
    fn merge(target: &mut Value, changes: Map<String, Value>) {
        for (name, change) in changes {
            match (target.get_mut(&name), change) {
                (Some(nested @ Value::Object(_)), Value::Object(change)) => merge(nested, change),
                (_, change) => target[name] = change,
            }
        }
    }
    let changes = parse_typed("", words, schema)?;
    if !arguments.is_object() {
        arguments = Value::Object(Map::new());
    }
    let properties = resolve_ref(schema, schema)["properties"].as_object();
    let names = properties.into_iter().flat_map(Map::keys).chain(arguments.as_object().into_iter().flat_map(Map::keys));
    let known: BTreeSet<&str> = names.map(String::as_str).collect();
    if let Some(unknown) = changes.keys().find(|name| !known.is_empty() && !known.contains(name.as_str())) {
        let known: Vec<&str> = known.into_iter().collect();
        return Err(Failure::usage(format!("there is no argument `{unknown}`"))
            .help(format!("the arguments are {}", known.join(", "))));
    }
    merge(&mut arguments, changes);
    Ok(arguments)
}

/// Parses pairs without a schema: strings, or JSON after `:=`.
///
/// # Errors
/// When a word is not a pair.
pub(crate) fn parse_untyped(words: &[String]) -> Result<Map<String, Value>, Failure> {
    parse_typed("", words, &Value::Null)
}

/// Parses a JSON object.
///
/// # Errors
/// When the text is not a JSON object.
pub(crate) fn parse_object(from: &str, text: &str) -> Result<Map<String, Value>, Failure> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => {
            Err(Failure::usage(format!("{from} must be a JSON object")).help("write it like '{\"city\": \"Oslo\"}'"))
        }
        Err(error) => {
            Err(Failure::usage(format!("{from} is not JSON: {error}")).help("write it like '{\"city\": \"Oslo\"}'"))
        }
    }
}

enum PairValue<'a> {
    Text(&'a str),
    Json(&'a str),
}

/// The name before the first `=`, and the value after it.
fn split_pair(word: &str) -> Option<(&str, PairValue<'_>)> {
    let (name, rest) = word.split_once('=')?;
    let (name, value) = match name.strip_suffix(':') {
        Some(name) => (name, PairValue::Json(rest)),
        None => (name, PairValue::Text(rest)),
    };
    (!name.is_empty()).then_some((name, value))
}

/// `a.b` addresses a nested property, unless the schema has a property of that name.
fn path_segments<'a>(name: &'a str, schema: &Value) -> Vec<&'a str> {
    let known = resolve_ref(schema, schema)["properties"].get(name).is_some();
    if known { vec![name] } else { name.split('.').collect() }
}

fn invalid_pair(tool: &str, word: &str, schema: &Value) -> Failure {
    let failure = Failure::usage(format!("`{word}` is not an argument"));
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    match required {
        [Value::String(only)] if !tool.is_empty() => {
            failure.help("write key=value:").help(format!("toolhub call {tool} {only}={}", shell_quote(word)))
        }
        _ if tool.is_empty() => failure.help("write key=value, or key:=JSON"),
        _ => failure.help(format!("write key=value; `toolhub tools show {tool}` lists the keys")),
    }
}

fn parse_json(word: &str, text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!("`{word}` has no valid JSON after `:=`: {error}"))
            .help("a string needs quotes there: key:='\"text\"'; without the colon it needs none: key=text")
    })
}

fn insert(target: &mut Value, path: &[&str], value: Value, is_list: bool) -> Result<(), String> {
    let Value::Object(object) = target else {
        return Err("addresses a member of a value that is not an object".into());
    };
    let Some((first, rest)) = path.split_first() else { return Ok(()) };
    if !rest.is_empty() {
        return insert(object.entry(*first).or_insert_with(|| Value::Object(Map::new())), rest, value, is_list);
    }
    match object.get_mut(*first) {
        None => {
            object.insert((*first).to_owned(), value);
        }
        Some(Value::Array(list)) if is_list => match value {
            Value::Array(more) => list.extend(more),
            one => list.push(one),
        },
        Some(_) => return Err(format!("sets `{first}` again, but it is not a list")),
    }
    Ok(())
}

/// Converts a text to the first of the schema's types that it matches.
fn coerce(text: &str, schema: &Value, root: &Value) -> Value {
    let schema = resolve_ref(schema, root);
    let types = allowed_types(schema, root);
    let allows = |kind: &str| types.contains(&kind);
    let parsed = serde_json::from_str::<Value>(text.trim()).ok();
    match parsed {
        Some(Value::Number(number)) if allows("number") || allows("integer") && !number.is_f64() => {
            return Value::Number(number);
        }
        Some(boolean @ Value::Bool(_)) if allows("boolean") => return boolean,
        Some(Value::Null) if allows("null") && !allows("string") => return Value::Null,
        Some(list @ Value::Array(_)) if allows("array") => return list,
        Some(object @ Value::Object(_)) if allows("object") => return object,
        // An enum without a type: the member that is written like this.
        Some(value) if types.is_empty() && schema["enum"].as_array().is_some_and(|all| all.contains(&value)) => {
            return value;
        }
        _ => {}
    }
    if allows("array") && !allows("string") {
        // One element of a list; a repeated key appends the next one.
        let items = schema
            .get("items")
            .or_else(|| subschemas(schema).find_map(|choice| resolve_ref(choice, root).get("items")));
        return Value::Array(vec![coerce(text, items.unwrap_or(&Value::Null), root)]);
    }
    Value::String(text.into())
}

/// The schema of a property.
fn property_schema<'a>(schema: &'a Value, name: &str, root: &'a Value) -> Option<&'a Value> {
    let schema = resolve_ref(schema, root);
    let direct =
        schema["properties"].get(name).or_else(|| schema.get("additionalProperties").filter(|more| more.is_object()));
    let in_subschemas = || subschemas(schema).find_map(|choice| property_schema(choice, name, root));
    direct.or_else(in_subschemas).map(|property| resolve_ref(property, root))
}

/// The types a value may have; empty if the schema does not restrict them.
fn allowed_types<'a>(schema: &'a Value, root: &'a Value) -> Vec<&'a str> {
    fn collect_types<'a>(schema: &'a Value, root: &'a Value, depth: usize, types: &mut Vec<&'a str>) {
        if depth > MAX_REF_DEPTH {
            return;
        }
        let schema = resolve_ref(schema, root);
        match &schema["type"] {
            Value::String(one) => types.push(one),
            Value::Array(all) => types.extend(all.iter().filter_map(Value::as_str)),
            _ => {}
        }
        subschemas(schema).for_each(|choice| collect_types(choice, root, depth + 1, types));
    }
    let mut types = Vec::new();
    collect_types(schema, root, 0, &mut types);
    types.dedup();
    types
}

fn subschemas(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|name| schema[name].as_array()).flatten()
}

/// Follows `$ref`s within the document.
fn resolve_ref<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_REF_DEPTH {
        let target = schema["$ref"].as_str().and_then(|to| root.pointer(to.strip_prefix('#')?));
        match target {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Quotes a word for a shell.
pub(crate) fn shell_quote(word: &str) -> String {
    let simple = |c: char| c.is_alphanumeric() || "-_=./:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(simple) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let schema = json!({"properties": {"qty": {"type": "integer"}, "to": {"type": "object"}}});
        let words = ["qty=3".to_owned(), "to.city=Oslo".to_owned()];
        let changed = change_arguments(json!({"sku": "a", "qty": 1, "to": {"zip": "1"}}), &words, &schema).unwrap();
        assert_eq!(changed, json!({"sku": "a", "qty": 3, "to": {"zip": "1", "city": "Oslo"}}));
        assert!(change_arguments(json!({}), &["qty".to_owned()], &schema).is_err());
        let misspelled = change_arguments(json!({"sku": "a"}), &["quty=3".to_owned()], &schema).unwrap_err();
        assert_eq!(misspelled.message, "there is no argument `quty`");
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "required": ["city"],
            "$defs": {"Line": {"type": "object", "properties": {"qty": {"type": "integer"}}}},
            "properties": {
                "city": {"type": "string", "description": "City name"},
                "days": {"type": "integer"},
                "share": {"type": ["number", "null"]},
                "sure": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "numbers": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
                "line": {"$ref": "#/$defs/Line"},
                "a.b": {"type": "integer"},
                "odd": {},
            },
        })
    }

    #[track_caller]
    fn check(words: &[&str], expected: &Value) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        assert_eq!(Value::Object(parse_typed("weather", &words, &schema()).unwrap()), *expected);
    }

    #[test]
    fn words_have_the_types_of_the_schema() {
        check(
            &["city=Oslo", "days=3", "share=0.5", "sure=true"],
            &json!({"city": "Oslo", "days": 3, "share": 0.5, "sure": true}),
        );
        check(&["city=3", "share=null", "odd=3"], &json!({"city": "3", "share": null, "odd": "3"}));
        check(&["city=a=b"], &json!({"city": "a=b"}));
        check(&["city="], &json!({"city": ""}));
    }

    #[test]
    fn what_does_not_fit_stays_a_text_for_the_hub_to_judge() {
        check(&["days=three"], &json!({"days": "three"}));
        check(&["days=1.5"], &json!({"days": "1.5"}));
        check(&["cty=Oslo"], &json!({"cty": "Oslo"}));
    }

    #[test]
    fn a_key_said_again_makes_a_list_and_dots_make_objects() {
        check(&["tags=a", "tags=b"], &json!({"tags": ["a", "b"]}));
        check(&["tags=[\"a\",\"b\"]", "tags=c"], &json!({"tags": ["a", "b", "c"]}));
        check(&["numbers=1", "numbers=2"], &json!({"numbers": [1, 2]}));
        check(&["line.qty=2"], &json!({"line": {"qty": 2}}));
        check(&["a.b=2"], &json!({"a.b": 2}));
        check(&["line:={\"qty\": 7}"], &json!({"line": {"qty": 7}}));
        check(&["city:=7"], &json!({"city": 7}));
    }

    #[test]
    fn what_cannot_be_meant_is_told_with_what_to_write() {
        let message_of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let failure = parse_typed("weather", &words, &schema()).unwrap_err();
            format!("{} | {}", failure.message, failure.help.join(" | "))
        };
        assert_eq!(
            message_of(&["New York"]),
            "`New York` is not an argument | write key=value: | toolhub call weather city='New York'"
        );
        assert_eq!(message_of(&["city=a", "city=b"]), "`city=b` sets `city` again, but it is not a list | ");
        assert!(message_of(&["city:=Oslo"]).starts_with("`city:=Oslo` has no valid JSON after `:=`: expected value"));
        assert!(message_of(&["=x"]).starts_with("`=x` is not an argument"));
    }
}
