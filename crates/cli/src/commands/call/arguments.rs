//! Arguments as they are typed, read with the help of the tool's schema.
//!
//! In: words such as `qty=2`, `lines:=[…]` or `address.city=Oslo`, and a JSON Schema. Out: a JSON object. A text that does
//! not fit its type stays a text: the hub says what it expected, in one place for all its callers.

use serde_json::{Map, Value};

use crate::failure::Failure;

/// References inside a schema are followed so far and no further.
const MAX_REF_DEPTH: usize = 16;

/// The arguments, typed by the schema.
///
/// # Errors
/// When a word is no argument, or two of them cannot both be meant.
pub(super) fn parse_typed(tool: &str, words: &[String], schema: &Value) -> Result<Map<String, Value>, Failure> {
    let mut arguments = Value::Object(Map::new());
    for word in words {
        let (path, given) = split_pair(word).ok_or_else(|| invalid_pair(tool, word, schema))?;
        let path = path_segments(path, schema);
        let inner = path.iter().try_fold(schema, |inner, step| property_schema(inner, step, schema));
        let value = match given {
            PairValue::Json(text) => parse_json(word, text)?,
            PairValue::Text(text) => coerce(text, inner.unwrap_or(&Value::Null), schema),
        };
        let repeats = inner.is_some_and(|inner| allowed_types(inner, schema).contains(&"array"));
        insert(&mut arguments, &path, value, repeats).map_err(|why| Failure::usage(format!("`{word}` {why}")))?;
    }
    Ok(match arguments {
        Value::Object(arguments) => arguments,
        _ => Map::new(),
    })
}

/// Members without a schema: texts, or JSON where it is said to be.
///
/// # Errors
/// When a word is no member.
pub(crate) fn parse_untyped(words: &[String]) -> Result<Map<String, Value>, Failure> {
    parse_typed("", words, &Value::Null)
}

/// A whole object.
///
/// # Errors
/// When it is none.
pub(crate) fn parse_object(from: &str, text: &str) -> Result<Map<String, Value>, Failure> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => {
            Err(Failure::usage(format!("{from} must be a JSON object")).help("write it like '{\"city\": \"Oslo\"}'"))
        }
        Err(wrong) => {
            Err(Failure::usage(format!("{from} is no JSON: {wrong}")).help("write it like '{\"city\": \"Oslo\"}'"))
        }
    }
}

enum PairValue<'a> {
    Text(&'a str),
    Json(&'a str),
}

/// The name before the first `=`, and what comes after it.
fn split_pair(word: &str) -> Option<(&str, PairValue<'_>)> {
    let (name, rest) = word.split_once('=')?;
    let (name, given) = match name.strip_suffix(':') {
        Some(name) => (name, PairValue::Json(rest)),
        None => (name, PairValue::Text(rest)),
    };
    (!name.is_empty()).then_some((name, given))
}

/// `a.b` is a way into an object, unless the schema has a property of that very name.
fn path_segments<'a>(name: &'a str, schema: &Value) -> Vec<&'a str> {
    let known = resolve_ref(schema, schema)["properties"].get(name).is_some();
    if known { vec![name] } else { name.split('.').collect() }
}

fn invalid_pair(tool: &str, word: &str, schema: &Value) -> Failure {
    let failure = Failure::usage(format!("`{word}` is no argument"));
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    match required {
        [Value::String(only)] if !tool.is_empty() => {
            failure.help("write key=value:").help(format!("toolhub call {tool} {only}={}", super::shell_quote(word)))
        }
        _ if tool.is_empty() => failure.help("write key=value, or key:=JSON"),
        _ => failure.help(format!("write key=value; `toolhub tools show {tool}` lists the keys")),
    }
}

fn parse_json(word: &str, text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|wrong| {
        Failure::usage(format!("`{word}` is no JSON after the `:=`: {wrong}"))
            .help("a text needs its quotes there: key:='\"text\"'; without the colon it needs none: key=text")
    })
}

fn insert(to: &mut Value, path: &[&str], value: Value, repeats: bool) -> Result<(), String> {
    let Value::Object(object) = to else { return Err("goes into something that is no object".into()) };
    let Some((first, rest)) = path.split_first() else { return Ok(()) };
    if !rest.is_empty() {
        return insert(object.entry(*first).or_insert_with(|| Value::Object(Map::new())), rest, value, repeats);
    }
    match object.get_mut(*first) {
        None => {
            object.insert((*first).to_owned(), value);
        }
        Some(Value::Array(list)) if repeats => match value {
            Value::Array(more) => list.extend(more),
            one => list.push(one),
        },
        Some(_) => return Err(format!("gives `{first}` a second time, and it is no list")),
    }
    Ok(())
}

/// A text as the first of the schema's types that it fits.
fn coerce(text: &str, schema: &Value, root: &Value) -> Value {
    let schema = resolve_ref(schema, root);
    let kinds = allowed_types(schema, root);
    let has = |kind: &str| kinds.contains(&kind);
    let parsed = serde_json::from_str::<Value>(text.trim()).ok();
    match parsed {
        Some(Value::Number(number)) if has("number") || has("integer") && !number.is_f64() => {
            return Value::Number(number);
        }
        Some(truth @ Value::Bool(_)) if has("boolean") => return truth,
        Some(Value::Null) if has("null") && !has("string") => return Value::Null,
        Some(list @ Value::Array(_)) if has("array") => return list,
        Some(object @ Value::Object(_)) if has("object") => return object,
        // Choices without a type: the one that is written so.
        Some(value) if kinds.is_empty() && schema["enum"].as_array().is_some_and(|all| all.contains(&value)) => {
            return value;
        }
        _ => {}
    }
    if has("array") && !has("string") {
        // One word of a list; said again, it is the next.
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
    let found =
        schema["properties"].get(name).or_else(|| schema.get("additionalProperties").filter(|more| more.is_object()));
    let inside = || subschemas(schema).find_map(|choice| property_schema(choice, name, root));
    found.or_else(inside).map(|found| resolve_ref(found, root))
}

/// The types a value may have; none where the schema does not say.
fn allowed_types<'a>(schema: &'a Value, root: &'a Value) -> Vec<&'a str> {
    fn collect_types<'a>(schema: &'a Value, root: &'a Value, depth: usize, kinds: &mut Vec<&'a str>) {
        if depth > MAX_REF_DEPTH {
            return;
        }
        let schema = resolve_ref(schema, root);
        match &schema["type"] {
            Value::String(one) => kinds.push(one),
            Value::Array(all) => kinds.extend(all.iter().filter_map(Value::as_str)),
            _ => {}
        }
        subschemas(schema).for_each(|choice| collect_types(choice, root, depth + 1, kinds));
    }
    let mut kinds = Vec::new();
    collect_types(schema, root, 0, &mut kinds);
    kinds.dedup();
    kinds
}

fn subschemas(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|name| schema[name].as_array()).flatten()
}

/// The schema itself, or the one inside the document that it points to.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        let wrong = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let failure = parse_typed("weather", &words, &schema()).unwrap_err();
            format!("{} | {}", failure.message, failure.help.join(" | "))
        };
        assert_eq!(
            wrong(&["New York"]),
            "`New York` is no argument | write key=value: | toolhub call weather city='New York'"
        );
        assert_eq!(wrong(&["city=a", "city=b"]), "`city=b` gives `city` a second time, and it is no list | ");
        assert!(wrong(&["city:=Oslo"]).starts_with("`city:=Oslo` is no JSON after the `:=`: expected value"));
        assert!(wrong(&["=x"]).starts_with("`=x` is no argument"));
    }
}
