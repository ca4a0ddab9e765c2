//! Compiles a schema once and checks the arguments of every call with it.
//!
//! In: a schema from anywhere; then arguments from anyone. Out: yes, or problems a model can repair.
//! Valid arguments cost one walk over their depth and one run of the engine. The engine's errors are built
//! only when `cost.rs` finds them affordable; otherwise only the properties that do not fit are named.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use jsonschema::{
    Draft, PatternOptions, Validator,
    error::{ValidationError, ValidationErrorKind},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use super::{SchemaError, cost, explain, limits, refs::Refs, words};
use toolhub_types::problem::Problem;
use toolhub_types::problem::join;
use toolhub_types::problem::quote;

/// Deeper arguments are refused unseen: the engine recurses as deep as they go.
const DEEPEST: usize = 64;
/// What one compiled pattern may take, and what matching it may.
const PATTERN_BYTES: usize = 1 << 20;
/// The name of the whole schema inside the one that checks properties alone.
const WHOLE: &str = "urn:toolhub:whole";
/// What is encoded in a pointer that stands in a reference.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A compiled schema; clones share it.
#[derive(Clone)]
pub struct Schema(Arc<Compiled>);

struct Compiled {
    value: Value,
    validator: Validator,
    /// Checks each property alone. Built when first needed, which for most schemas is never.
    alone: OnceLock<Option<Validator>>,
}

impl Schema {
    /// Compiles a schema of arguments: draft 2020-12, patterns of linear cost, nothing fetched.
    ///
    /// # Errors
    /// When it is no schema, does not describe an object, or breaks a limit.
    pub fn compile(value: Value) -> Result<Self, SchemaError> {
        limits::refuse(&value)?;
        let validator = build(&value).map_err(|error| refused(&error))?;
        Ok(Self(Arc::new(Compiled { value, validator, alone: OnceLock::new() })))
    }

    /// Looks at a schema that is not a schema of arguments, such as that of an output, and keeps nothing.
    ///
    /// # Errors
    /// When it is no schema or breaks a limit.
    pub fn refuse(value: &Value) -> Result<(), SchemaError> {
        limits::refuse_any(value)?;
        build(value).map(|_| ()).map_err(|error| refused(&error))
    }

    /// The schema as it was given.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// Checks arguments.
    ///
    /// # Errors
    /// What is wrong with them: at least one problem, at most ten.
    pub fn check(&self, arguments: &Value) -> Result<(), Vec<Problem>> {
        if !limits::depth_within(arguments, DEEPEST) {
            return Err(vec![Problem::whole(format!("nested deeper than {DEEPEST} levels"))]);
        }
        if self.0.validator.is_valid(arguments) {
            return Ok(());
        }
        Err(self.problems(arguments))
    }

    fn problems(&self, arguments: &Value) -> Vec<Problem> {
        let Compiled { value, validator, .. } = &*self.0;
        let refs = Refs::new(value);
        let mut problems = if cost::affordable(value, &refs, arguments) {
            explain::problems(value, &refs, arguments, validator.iter_errors(arguments))
        } else {
            self.not_fitting(&refs, arguments)
        };
        if problems.is_empty() {
            problems.push(Problem::whole(format!("does not fit the schema, got {}", quote::what(arguments))));
        }
        problems
    }

    /// The properties that are missing or do not fit, without saying what is wrong inside them.
    fn not_fitting(&self, refs: &Refs<'_>, arguments: &Value) -> Vec<Problem> {
        let schema = self.value();
        let Some(members) = arguments.as_object() else {
            return Vec::new();
        };
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let missing = required.filter(|name| !members.contains_key(*name));
        let missing = missing.map(|name| explain::missing((schema, refs), ("", arguments), name));

        let alone = self.0.alone.get_or_init(|| build(&each_alone(schema)).ok());
        let wrong = members.iter().filter(|(name, value)| {
            let only = Value::Object(Map::from_iter([((*name).clone(), (*value).clone())]));
            alone.as_ref().is_some_and(|alone| !alone.is_valid(&only))
        });
        let wrong = wrong.map(|(name, value)| {
            let known = schema.get("properties").and_then(|known| known.get(name));
            let expected = known.map(|known| words::expected(known, refs)).unwrap_or_default();
            let detail = match expected.as_str() {
                "" => format!("does not fit its schema, got {}", quote::what(value)),
                expected => format!("does not fit its schema ({expected}), got {}", quote::what(value)),
            };
            Problem::at(join("", name), arguments, detail)
        });
        missing.chain(wrong).take(explain::MOST).collect()
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(self.value()).finish()
    }
}

fn build(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
    jsonschema::options().with_draft(Draft::Draft202012).with_pattern_options(patterns).offline().build(schema)
}

fn refused(error: &ValidationError<'_>) -> SchemaError {
    let came = error.instance();
    match (error.kind(), came.as_str()) {
        (ValidationErrorKind::Format { format }, Some(pattern)) if format == "regex" => {
            SchemaError::Pattern(quote::text(pattern))
        }
        _ => SchemaError::Invalid {
            at: format!("`{}`", error.instance_path()),
            why: quote::within(&error.masked_with(quote::value(came)).to_string(), 200),
        },
    }
}

/// A schema that judges each property as the whole one does, and asks for nothing else.
fn each_alone(schema: &Value) -> Value {
    let mut whole = schema.clone();
    if let Some(whole) = whole.as_object_mut() {
        // Its own name keeps the meaning of each `#` inside it.
        whole.insert("$id".into(), WHOLE.into());
        whole.remove("$schema");
    }
    let mut alone = Map::new();
    for keyword in ["properties", "patternProperties"] {
        let named = schema.get(keyword).and_then(Value::as_object);
        let refer = |name: &String| {
            let pointer = join(&format!("/{keyword}"), name);
            (name.clone(), json!({"$ref": format!("{WHOLE}#{}", utf8_percent_encode(&pointer, ENCODED))}))
        };
        let named: Map<_, _> = named.into_iter().flat_map(|named| named.keys().map(refer)).collect();
        alone.insert(keyword.into(), named.into());
    }
    if schema.get("additionalProperties").is_some() {
        let other = json!({"$ref": format!("{WHOLE}#/additionalProperties")});
        alone.insert("additionalProperties".into(), other);
    }
    alone.insert("$defs".into(), json!({"whole": whole}));
    Value::Object(alone)
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
