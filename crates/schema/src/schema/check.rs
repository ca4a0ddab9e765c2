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

use super::{SchemaError, cost, description, explain, limits, refs::RefResolver};
use toolhub_types::problem::Problem;
use toolhub_types::problem::join_pointer;
use toolhub_types::problem::quote;

/// Deeper arguments are refused unseen: the engine recurses as deep as they go.
const MAX_DEPTH: usize = 64;
/// What one compiled pattern may take, and what matching it may.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// The name of the whole schema inside the one that checks properties alone.
const WHOLE_SCHEMA_ID: &str = "urn:toolhub:whole";
/// What is encoded in a pointer that stands in a reference.
const POINTER_ESCAPE_SET: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A compiled schema; clones share it.
#[derive(Clone)]
pub struct Schema(Arc<Compiled>);

struct Compiled {
    value: Value,
    validator: Validator,
    /// Checks each property alone. Built when first needed, which for most schemas is never.
    property_validator: OnceLock<Option<Validator>>,
}

impl Schema {
    /// Compiles a schema of arguments: draft 2020-12, patterns of linear cost, nothing fetched.
    ///
    /// # Errors
    /// When it is no schema, does not describe an object, or breaks a limit.
    pub fn compile(value: Value) -> Result<Self, SchemaError> {
        limits::check_arguments_schema(&value)?;
        let validator = build_validator(&value).map_err(|error| schema_error(&error))?;
        Ok(Self(Arc::new(Compiled { value, validator, property_validator: OnceLock::new() })))
    }

    /// Looks at a schema that is not a schema of arguments, such as that of an output, and keeps nothing.
    ///
    /// # Errors
    /// When it is no schema or breaks a limit.
    pub fn validate_schema(value: &Value) -> Result<(), SchemaError> {
        limits::check_schema(value)?;
        build_validator(value).map(|_| ()).map_err(|error| schema_error(&error))
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
        if !limits::is_depth_within(arguments, MAX_DEPTH) {
            return Err(vec![Problem::at_root(format!("nested deeper than {MAX_DEPTH} levels"))]);
        }
        if self.0.validator.is_valid(arguments) {
            return Ok(());
        }
        Err(self.problems(arguments))
    }

    fn problems(&self, arguments: &Value) -> Vec<Problem> {
        let Compiled { value, validator, .. } = &*self.0;
        let refs = RefResolver::new(value);
        let mut problems = if cost::is_affordable(value, &refs, arguments) {
            explain::explain_errors(value, &refs, arguments, validator.iter_errors(arguments))
        } else {
            self.invalid_properties(&refs, arguments)
        };
        if problems.is_empty() {
            problems.push(Problem::at_root(format!("does not fit the schema, got {}", quote::describe(arguments))));
        }
        problems
    }

    /// The properties that are missing or do not fit, without saying what is wrong inside them.
    fn invalid_properties(&self, refs: &RefResolver<'_>, arguments: &Value) -> Vec<Problem> {
        let schema = self.value();
        let Some(members) = arguments.as_object() else {
            return Vec::new();
        };
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let missing = required.filter(|name| !members.contains_key(*name));
        let missing = missing.map(|name| explain::missing_property((schema, refs), ("", arguments), name));

        let alone = self.0.property_validator.get_or_init(|| build_validator(&per_property_schema(schema)).ok());
        let wrong = members.iter().filter(|(name, value)| {
            let only = Value::Object(Map::from_iter([((*name).clone(), (*value).clone())]));
            alone.as_ref().is_some_and(|alone| !alone.is_valid(&only))
        });
        let wrong = wrong.map(|(name, value)| {
            let known = schema.get("properties").and_then(|known| known.get(name));
            let expected = known.map(|known| description::describe_expected(known, refs)).unwrap_or_default();
            let detail = match expected.as_str() {
                "" => format!("does not fit its schema, got {}", quote::describe(value)),
                expected => format!("does not fit its schema ({expected}), got {}", quote::describe(value)),
            };
            Problem::at(join_pointer("", name), arguments, detail)
        });
        missing.chain(wrong).take(explain::MAX_PROBLEMS).collect()
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(self.value()).finish()
    }
}

fn build_validator(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
    jsonschema::options().with_draft(Draft::Draft202012).with_pattern_options(patterns).offline().build(schema)
}

fn schema_error(error: &ValidationError<'_>) -> SchemaError {
    let came = error.instance();
    match (error.kind(), came.as_str()) {
        (ValidationErrorKind::Format { format }, Some(pattern)) if format == "regex" => {
            SchemaError::Pattern(quote::text(pattern))
        }
        _ => SchemaError::Invalid {
            at: format!("`{}`", error.instance_path()),
            why: quote::truncate(&error.masked_with(quote::value(came)).to_string(), 200),
        },
    }
}

/// A schema that judges each property as the whole one does, and asks for nothing else.
fn per_property_schema(schema: &Value) -> Value {
    let mut whole = schema.clone();
    if let Some(whole) = whole.as_object_mut() {
        // Its own name keeps the meaning of each `#` inside it.
        whole.insert("$id".into(), WHOLE_SCHEMA_ID.into());
        whole.remove("$schema");
    }
    let mut alone = Map::new();
    for keyword in ["properties", "patternProperties"] {
        let named = schema.get(keyword).and_then(Value::as_object);
        let refer = |name: &String| {
            let pointer = join_pointer(&format!("/{keyword}"), name);
            (
                name.clone(),
                json!({"$ref": format!("{WHOLE_SCHEMA_ID}#{}", utf8_percent_encode(&pointer, POINTER_ESCAPE_SET))}),
            )
        };
        let named: Map<_, _> = named.into_iter().flat_map(|named| named.keys().map(refer)).collect();
        alone.insert(keyword.into(), named.into());
    }
    if schema.get("additionalProperties").is_some() {
        let other = json!({"$ref": format!("{WHOLE_SCHEMA_ID}#/additionalProperties")});
        alone.insert("additionalProperties".into(), other);
    }
    alone.insert("$defs".into(), json!({"whole": whole}));
    Value::Object(alone)
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
