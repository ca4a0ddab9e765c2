//! A compiled schema that validates the arguments of every call.
//!
//! In: an untrusted schema; then untrusted arguments. Out: success, or problems that a model can correct.
//! Valid arguments cost one depth check and one validation. The validator's errors are built
//! only if `cost.rs` finds them affordable; otherwise only the invalid properties are named.

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
use toolhub_types::{
    problem::{Problem, join_pointer, quote},
    redact::Redactor,
};

/// Deeper arguments are refused before validation, because the validator recurses with their depth.
const MAX_DEPTH: usize = 64;
/// Memory limit of one compiled pattern, and of its lazy DFA while matching.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// Longest pointer in a mismatch, in characters.
const MAX_SHOWN: usize = 80;
/// The `$id` of the whole schema inside the per-property schema.
const WHOLE_SCHEMA_ID: &str = "urn:toolhub:whole";
/// The characters to percent-encode in a JSON pointer inside a `$ref`.
const POINTER_ESCAPE_SET: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A compiled schema; clones share it.
#[derive(Clone)]
pub struct Schema(Arc<Compiled>);

struct Compiled {
    value: Value,
    validator: Validator,
    /// Validates each property separately. Built on first use, which for most schemas never comes.
    property_validator: OnceLock<Option<Validator>>,
}

impl Schema {
    /// Compiles an argument schema: draft 2020-12, patterns with linear matching time, no remote references.
    ///
    /// # Errors
    /// When it is not a valid schema, does not describe an object, or exceeds a limit.
    pub fn compile(value: Value) -> Result<Self, SchemaError> {
        limits::check_arguments_schema(&value)?;
        Self::build(value)
    }

    /// Compiles a schema that need not describe an object, such as that of an output.
    ///
    /// # Errors
    /// When it is not a valid schema or exceeds a limit.
    pub fn compile_any(value: Value) -> Result<Self, SchemaError> {
        limits::check_schema(&value)?;
        Self::build(value)
    }

    fn build(value: Value) -> Result<Self, SchemaError> {
        let validator = build_validator(&value).map_err(|error| schema_error(&error))?;
        Ok(Self(Arc::new(Compiled { value, validator, property_validator: OnceLock::new() })))
    }

    /// The source schema.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// Whether arguments are valid.
    #[must_use]
    pub fn accepts(&self, arguments: &Value) -> bool {
        limits::is_depth_within(arguments, MAX_DEPTH) && self.0.validator.is_valid(arguments)
    }

    /// Validates arguments. The problems quote them, but no secrets.
    ///
    /// # Errors
    /// When they are invalid: at least one problem, at most ten.
    pub fn check(&self, arguments: &Value, redactor: &Redactor) -> Result<(), Vec<Problem>> {
        if !limits::is_depth_within(arguments, MAX_DEPTH) {
            return Err(vec![Problem::at_root(format!("nested deeper than {MAX_DEPTH} levels"))]);
        }
        if self.0.validator.is_valid(arguments) {
            return Ok(());
        }
        Err(self.problems(arguments, redactor))
    }

    /// Why a value is not valid, for logs: names the first place and quotes no value.
    #[must_use]
    pub fn mismatch(&self, value: &Value) -> Option<String> {
        let problems = self.check(value, &Redactor::default()).err()?;
        let place = problems.first().map(|problem| problem.pointer.as_str()).filter(|pointer| !pointer.is_empty());
        let place = place.map_or_else(String::new, |pointer| format!(" at `{}`", quote::truncate(pointer, MAX_SHOWN)));
        Some(format!("does not fit the schema{place}"))
    }

    fn problems(&self, arguments: &Value, redactor: &Redactor) -> Vec<Problem> {
        let Compiled { value, validator, .. } = &*self.0;
        let refs = RefResolver::new(value);
        let mut problems = if cost::is_affordable(value, &refs, arguments) {
            explain::explain_errors((value, &refs), (arguments, redactor), validator.iter_errors(arguments))
        } else {
            self.invalid_properties(&refs, arguments, redactor)
        };
        if problems.is_empty() {
            problems.push(Problem::at_root(format!("does not fit the schema, got {}", quote::describe(arguments))));
        }
        problems
    }

    /// The missing and the invalid properties, without the problems inside them.
    fn invalid_properties(&self, refs: &RefResolver<'_>, arguments: &Value, redactor: &Redactor) -> Vec<Problem> {
        let schema = self.value();
        let Some(members) = arguments.as_object() else {
            return Vec::new();
        };
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        let missing = required.filter(|name| !members.contains_key(*name));
        let missing = missing.map(|name| explain::missing_property((schema, refs), ("", arguments), name));

        let validator = self.0.property_validator.get_or_init(|| build_validator(&per_property_schema(schema)).ok());
        let invalid = members.iter().filter(|(name, value)| {
            let single = Value::Object(Map::from_iter([((*name).clone(), (*value).clone())]));
            validator.as_ref().is_some_and(|validator| !validator.is_valid(&single))
        });
        let invalid = invalid.map(|(name, value)| {
            let property = schema.get("properties").and_then(|properties| properties.get(name));
            let expected = property.map(|property| description::describe_expected(property, refs)).unwrap_or_default();
            let expected = match expected.as_str() {
                "" => "does not fit its schema".to_owned(),
                expected => format!("does not fit its schema ({expected})"),
            };
            let is_secret = redactor.is_secret(name);
            let detail = if is_secret { expected } else { format!("{expected}, got {}", quote::describe(value)) };
            Problem::at(join_pointer("", name), arguments, detail)
        });
        missing.chain(invalid).take(explain::MAX_PROBLEMS).collect()
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(self.value()).finish()
    }
}

pub(super) fn build_validator(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES);
    jsonschema::options().with_draft(Draft::Draft202012).with_pattern_options(patterns).offline().build(schema)
}

fn schema_error(error: &ValidationError<'_>) -> SchemaError {
    let instance = error.instance();
    match (error.kind(), instance.as_str()) {
        (ValidationErrorKind::Format { format }, Some(pattern)) if format == "regex" => {
            SchemaError::Pattern(quote::text(pattern))
        }
        _ => SchemaError::Invalid {
            pointer: format!("`{}`", error.instance_path()),
            reason: quote::truncate(&error.masked_with(quote::value(instance)).to_string(), 200),
        },
    }
}

/// A schema that validates each property as the whole one does, and nothing else.
fn per_property_schema(schema: &Value) -> Value {
    let mut whole = schema.clone();
    if let Some(whole) = whole.as_object_mut() {
        // With its own `$id`, each `#` inside it still refers to it.
        whole.insert("$id".into(), WHOLE_SCHEMA_ID.into());
        whole.remove("$schema");
    }
    let mut per_property = Map::new();
    for keyword in ["properties", "patternProperties"] {
        let named = schema.get(keyword).and_then(Value::as_object);
        let reference = |name: &String| {
            let pointer = join_pointer(&format!("/{keyword}"), name);
            (
                name.clone(),
                json!({"$ref": format!("{WHOLE_SCHEMA_ID}#{}", utf8_percent_encode(&pointer, POINTER_ESCAPE_SET))}),
            )
        };
        let named: Map<_, _> = named.into_iter().flat_map(|named| named.keys().map(reference)).collect();
        per_property.insert(keyword.into(), named.into());
    }
    if schema.get("additionalProperties").is_some() {
        let additional = json!({"$ref": format!("{WHOLE_SCHEMA_ID}#/additionalProperties")});
        per_property.insert("additionalProperties".into(), additional);
    }
    per_property.insert("$defs".into(), json!({"whole": whole}));
    Value::Object(per_property)
}

#[cfg(test)]
mod tests;
