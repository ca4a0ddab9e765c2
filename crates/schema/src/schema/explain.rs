//! Turns the engine's errors into problems a model can repair.
//!
//! In: errors whose number the cost gate found affordable. Out: at most ten problems, each with its field.
//! Which form of a choice was meant is guessed by `union.rs`; nothing here decides whether arguments are valid.

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind as Kind};
use serde_json::Value;

use super::{description, refs::RefResolver, union};
use crate::suggest::closest;
use toolhub_types::problem::Problem;
use toolhub_types::problem::join_pointer;
use toolhub_types::problem::quote;

/// More problems than this are noise to a model; it repairs these first.
pub(super) const MAX_PROBLEMS: usize = 10;
/// How far the errors of choices inside choices are followed.
const MAX_CHOICE_DEPTH: usize = 4;

/// The problems behind the engine's errors.
pub(super) fn explain_errors<'e>(
    root: &Value,
    refs: &RefResolver<'_>,
    arguments: &Value,
    errors: impl Iterator<Item = ValidationError<'e>>,
) -> Vec<Problem> {
    let mut explain = Explainer { root, refs, arguments, problems: Vec::new() };
    for error in errors {
        explain.add(&error, 0);
    }
    explain.problems
}

/// A property that must be there and is not.
pub(super) fn missing_property<'a>(
    (schema, refs): (&'a Value, &RefResolver<'a>),
    (pointer, arguments): (&str, &Value),
    name: &str,
) -> Problem {
    let known = description::known_properties(schema, refs);
    let expected = known.iter().find(|(known, _)| *known == name);
    let expected = expected.map(|(_, schema)| description::describe_expected(schema, refs)).unwrap_or_default();
    let detail = match expected.as_str() {
        "" => "missing, required".to_owned(),
        expected => format!("missing, required ({expected})"),
    };
    // A misspelled name looks like two mistakes, or like one where more properties are allowed; say it is one.
    let given = arguments.pointer(pointer).and_then(Value::as_object);
    let unknown = given.into_iter().flat_map(|given| given.keys().take(200).map(String::as_str));
    let unknown = unknown.filter(|given| known.iter().all(|(known, _)| known != given));
    let similar = closest(name, unknown, 1).pop();
    Problem::at(join_pointer(pointer, name), arguments, detail).with_suggestion(
        similar.map(|similar| format!("`{}` is given, rename it to `{}`?", quote::text(similar), quote::text(name))),
    )
}

struct Explainer<'a> {
    root: &'a Value,
    refs: &'a RefResolver<'a>,
    arguments: &'a Value,
    problems: Vec<Problem>,
}

impl<'a> Explainer<'a> {
    fn add(&mut self, error: &ValidationError<'_>, choices: usize) {
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let pointer = error.instance_path().as_str();
        match error.kind() {
            Kind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                self.push(missing_property((self.schema_of(error), self.refs), (pointer, self.arguments), name));
            }
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                for name in unexpected.iter().take(MAX_PROBLEMS) {
                    self.push(self.unknown_property(error, name));
                }
            }
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
                self.explain_choice(error, context, choices);
            }
            Kind::PropertyNames { error: inner } => {
                let name = quote_property_name(inner);
                let detail = format!("the property name {name} is not allowed: {}", describe_error(inner));
                self.push(self.problem_at(error, detail));
            }
            Kind::Enum { options } => {
                let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
                self.push(self.option_mismatch(error, options));
            }
            Kind::Constant { expected_value } => {
                self.push(self.option_mismatch(error, std::slice::from_ref(expected_value)));
            }
            _ => self.push(self.problem_at(error, describe_error(error))),
        }
    }

    fn push(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS && !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn problem_at(&self, error: &ValidationError<'_>, detail: impl Into<String>) -> Problem {
        Problem::at(error.instance_path().as_str().to_owned(), self.arguments, detail)
    }

    /// The schema that holds the keyword an error is about.
    fn schema_of(&self, error: &ValidationError<'_>) -> &'a Value {
        let keyword = error.schema_path().as_str();
        let schema = keyword.rsplit_once('/').map_or("", |(schema, _)| schema);
        self.root.pointer(schema).unwrap_or(&Value::Null)
    }

    fn unknown_property(&self, error: &ValidationError<'_>, name: &str) -> Problem {
        let known = description::known_properties(self.schema_of(error), self.refs);
        let given = error.instance().as_object();
        // A property that is there already cannot be what another one was meant to be.
        let free = known.iter().map(|(name, _)| *name);
        let free = free.filter(|name| given.is_none_or(|given| !given.contains_key(*name)));
        let meant = closest(name, free, 1).pop();
        let mut names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        names.dedup();
        let suggestion = match meant {
            Some(meant) => Some(format!("did you mean `{}`?", quote::text(meant))),
            None if names.is_empty() => None,
            None => {
                let names: Vec<String> =
                    names.iter().take(MAX_PROBLEMS).map(|name| format!("`{}`", quote::text(name))).collect();
                Some(format!("known are {}", names.join(", ")))
            }
        };
        let pointer = join_pointer(error.instance_path().as_str(), name);
        Problem::at(pointer, self.arguments, "unknown property").with_suggestion(suggestion)
    }

    fn option_mismatch(&self, error: &ValidationError<'_>, options: &[Value]) -> Problem {
        let came = error.instance();
        let detail = match options {
            [only] => format!("must be {}, got {}", quote::value(only), quote::describe(came)),
            _ => format!("must be one of {}, got {}", quote::list(options.iter()), quote::describe(came)),
        };
        let texts = options.iter().filter_map(Value::as_str);
        let meant = came.as_str().and_then(|came| closest(came, texts, 1).pop());
        let suggestion = meant.map(|meant| format!("did you mean {}?", quote::value(&meant.into())));
        self.problem_at(error, detail).with_suggestion(suggestion)
    }

    fn explain_choice(&mut self, error: &ValidationError<'_>, forms: &[Vec<ValidationError<'static>>], choices: usize) {
        let meant = union::guess_branch(error.instance_path().as_str(), forms);
        if let union::IntendedBranch::Branch(errors) = meant
            && choices < MAX_CHOICE_DEPTH
        {
            errors.iter().for_each(|error| self.add(error, choices + 1));
            return;
        }
        if let union::IntendedBranch::Tag(first, options) = meant {
            self.push(self.option_mismatch(first, &options));
            return;
        }
        let schemas = self.root.pointer(error.schema_path().as_str()).and_then(Value::as_array);
        let schemas = schemas.into_iter().flatten().take(MAX_PROBLEMS);
        let mut expected: Vec<String> = schemas.map(|schema| description::describe_branch(schema, self.refs)).collect();
        expected.retain(|form| !form.is_empty());
        expected.dedup();
        let came = quote::describe(error.instance());
        let detail = match expected.as_slice() {
            [] => format!("fits none of the {} allowed forms, got {came}", forms.len()),
            expected => format!("expected {}, got {came}", expected.join(" or ")),
        };
        self.push(self.problem_at(error, detail));
    }
}

fn quote_property_name(error: &ValidationError<'_>) -> String {
    quote::value(error.instance())
}

/// What an error says when neither the schema around it nor other errors are needed to say it.
fn describe_error(error: &ValidationError<'_>) -> String {
    let came = error.instance();
    match error.kind() {
        Kind::Type { kind } => format!("expected {}, got {}", type_names(kind), quote::describe(came)),
        Kind::Minimum { limit } => format!("must be at least {limit}, got {}", quote::value(came)),
        Kind::Maximum { limit } => format!("must be at most {limit}, got {}", quote::value(came)),
        Kind::ExclusiveMinimum { limit } => {
            format!("must be more than {limit}, got {}", quote::value(came))
        }
        Kind::ExclusiveMaximum { limit } => {
            format!("must be less than {limit}, got {}", quote::value(came))
        }
        Kind::MultipleOf { multiple_of } => {
            format!("must be a multiple of {multiple_of}, got {}", quote::value(came))
        }
        Kind::MinLength { limit } => describe_count("must have at least", *limit, "character", count_elements(came)),
        Kind::MaxLength { limit } => describe_count("must have at most", *limit, "character", count_elements(came)),
        Kind::MinItems { limit } => describe_count("must have at least", *limit, "item", count_elements(came)),
        Kind::MaxItems { limit } => describe_count("must have at most", *limit, "item", count_elements(came)),
        Kind::AdditionalItems { limit } => {
            describe_count("must have at most", *limit as u64, "item", count_elements(came))
        }
        Kind::MinProperties { limit } => describe_count("must have at least", *limit, "property", count_elements(came)),
        Kind::MaxProperties { limit } => describe_count("must have at most", *limit, "property", count_elements(came)),
        Kind::Pattern { pattern } => {
            format!("must match the pattern {}, got {}", quote::text(pattern), quote::value(came))
        }
        Kind::Format { format } => format!("must be a valid {}, got {}", quote::text(format), quote::value(came)),
        Kind::UniqueItems => "the items must differ from each other".into(),
        Kind::Contains => "none or too many of the items are as they must be".into(),
        Kind::OneOfMultipleValid { .. } => "fits more than one of the allowed forms; exactly one must fit".into(),
        Kind::FalseSchema => "is not allowed here".into(),
        Kind::UnevaluatedItems { .. } => "has more items than allowed".into(),
        Kind::Not { .. } => format!("must not be of this form, got {}", quote::describe(came)),
        // Rare kinds in the engine's words, which must not repeat the whole value.
        _ => quote::truncate(&error.masked().to_string(), 200),
    }
}

fn describe_count(must: &str, limit: u64, unit: &str, came: usize) -> String {
    let units = match (unit, limit) {
        (unit, 1) => unit.to_owned(),
        ("property", _) => "properties".to_owned(),
        (unit, _) => format!("{unit}s"),
    };
    format!("{must} {limit} {units}, got {came}")
}

fn count_elements(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    }
}

fn type_names(kind: &TypeKind) -> String {
    let named = |name: &str| match name {
        "null" => "null".to_owned(),
        "integer" | "array" | "object" => format!("an {name}"),
        name => format!("a {name}"),
    };
    match kind {
        TypeKind::Single(one) => named(one.as_str()),
        TypeKind::Multiple(several) => {
            let names: Vec<String> = several.iter().map(|one| named(one.as_str())).collect();
            names.join(" or ")
        }
    }
}
