//! Turns the validator's errors into problems that a model can correct.
//!
//! In: errors that `cost.rs` found affordable. Out: at most ten problems, each with its field.
//! `union.rs` guesses the intended branch of a union. Whether arguments are valid is decided by the validator, not here.

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind as Kind};
use serde_json::Value;

use super::{description, refs::RefResolver, union};
use crate::suggest::closest;
use toolhub_types::problem::{Problem, join_pointer, quote};

/// More problems are noise to a model; it corrects these first.
pub(super) const MAX_PROBLEMS: usize = 10;
/// The nesting of unions up to which the errors of a branch are explained.
const MAX_CHOICE_DEPTH: usize = 4;

/// The problems behind the validator's errors.
pub(super) fn explain_errors<'e>(
    root: &Value,
    refs: &RefResolver<'_>,
    arguments: &Value,
    errors: impl Iterator<Item = ValidationError<'e>>,
) -> Vec<Problem> {
    let mut explainer = Explainer { root, refs, arguments, problems: Vec::new() };
    for error in errors {
        explainer.add(&error, 0);
    }
    explainer.problems
}

/// The problem of a missing required property.
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
    // A misspelled name causes an "unknown" and a "missing" error (only the latter if additional properties are allowed).
    // The suggestion shows that both are one mistake.
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
    fn add(&mut self, error: &ValidationError<'_>, choice_depth: usize) {
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
                self.explain_choice(error, context, choice_depth);
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

    /// The schema that contains the keyword of an error.
    fn schema_of(&self, error: &ValidationError<'_>) -> &'a Value {
        let keyword = error.schema_path().as_str();
        let schema = keyword.rsplit_once('/').map_or("", |(schema, _)| schema);
        self.root.pointer(schema).unwrap_or(&Value::Null)
    }

    fn unknown_property(&self, error: &ValidationError<'_>, name: &str) -> Problem {
        let known = description::known_properties(self.schema_of(error), self.refs);
        let given = error.instance().as_object();
        // A property that is given already cannot be the intended name of another one.
        let unused = known.iter().map(|(name, _)| *name);
        let unused = unused.filter(|name| given.is_none_or(|given| !given.contains_key(*name)));
        let similar = closest(name, unused, 1).pop();
        let mut names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        names.dedup();
        let suggestion = match similar {
            Some(similar) => Some(format!("did you mean `{}`?", quote::text(similar))),
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
        let instance = error.instance();
        let detail = match options {
            [single] => format!("must be {}, got {}", quote::value(single), quote::describe(instance)),
            _ => format!("must be one of {}, got {}", quote::list(options.iter()), quote::describe(instance)),
        };
        let texts = options.iter().filter_map(Value::as_str);
        let similar = instance.as_str().and_then(|instance| closest(instance, texts, 1).pop());
        let suggestion = similar.map(|similar| format!("did you mean {}?", quote::value(&similar.into())));
        self.problem_at(error, detail).with_suggestion(suggestion)
    }

    fn explain_choice(
        &mut self,
        error: &ValidationError<'_>,
        branches: &[Vec<ValidationError<'static>>],
        choice_depth: usize,
    ) {
        let intended = union::guess_branch(error.instance_path().as_str(), branches);
        if let union::IntendedBranch::Branch(errors) = intended
            && choice_depth < MAX_CHOICE_DEPTH
        {
            errors.iter().for_each(|error| self.add(error, choice_depth + 1));
            return;
        }
        if let union::IntendedBranch::Tag(first, options) = intended {
            self.push(self.option_mismatch(first, &options));
            return;
        }
        let schemas = self.root.pointer(error.schema_path().as_str()).and_then(Value::as_array);
        let schemas = schemas.into_iter().flatten().take(MAX_PROBLEMS);
        let mut expected: Vec<String> = schemas.map(|schema| description::describe_branch(schema, self.refs)).collect();
        expected.retain(|branch| !branch.is_empty());
        expected.dedup();
        let actual = quote::describe(error.instance());
        let detail = match expected.as_slice() {
            [] => format!("fits none of the {} allowed forms, got {actual}", branches.len()),
            expected => format!("expected {}, got {actual}", expected.join(" or ")),
        };
        self.push(self.problem_at(error, detail));
    }
}

fn quote_property_name(error: &ValidationError<'_>) -> String {
    quote::value(error.instance())
}

/// The text of an error that needs neither the surrounding schema nor other errors.
fn describe_error(error: &ValidationError<'_>) -> String {
    let instance = error.instance();
    match error.kind() {
        Kind::Type { kind } => format!("expected {}, got {}", type_names(kind), quote::describe(instance)),
        Kind::Minimum { limit } => format!("must be at least {limit}, got {}", quote::value(instance)),
        Kind::Maximum { limit } => format!("must be at most {limit}, got {}", quote::value(instance)),
        Kind::ExclusiveMinimum { limit } => {
            format!("must be more than {limit}, got {}", quote::value(instance))
        }
        Kind::ExclusiveMaximum { limit } => {
            format!("must be less than {limit}, got {}", quote::value(instance))
        }
        Kind::MultipleOf { multiple_of } => {
            format!("must be a multiple of {multiple_of}, got {}", quote::value(instance))
        }
        Kind::MinLength { limit } => {
            describe_count("must have at least", *limit, "character", count_elements(instance))
        }
        Kind::MaxLength { limit } => describe_count("must have at most", *limit, "character", count_elements(instance)),
        Kind::MinItems { limit } => describe_count("must have at least", *limit, "item", count_elements(instance)),
        Kind::MaxItems { limit } => describe_count("must have at most", *limit, "item", count_elements(instance)),
        Kind::AdditionalItems { limit } => {
            describe_count("must have at most", *limit as u64, "item", count_elements(instance))
        }
        Kind::MinProperties { limit } => {
            describe_count("must have at least", *limit, "property", count_elements(instance))
        }
        Kind::MaxProperties { limit } => {
            describe_count("must have at most", *limit, "property", count_elements(instance))
        }
        Kind::Pattern { pattern } => {
            format!("must match the pattern {}, got {}", quote::text(pattern), quote::value(instance))
        }
        Kind::Format { format } => format!("must be a valid {}, got {}", quote::text(format), quote::value(instance)),
        Kind::UniqueItems => "the items must differ from each other".into(),
        Kind::Contains => "too few or too many items match the schema in `contains`".into(),
        Kind::OneOfMultipleValid { .. } => "fits more than one of the allowed forms; exactly one must fit".into(),
        Kind::FalseSchema => "is not allowed here".into(),
        Kind::UnevaluatedItems { .. } => "has more items than allowed".into(),
        Kind::Not { .. } => format!("must not be of this form, got {}", quote::describe(instance)),
        // Rare kinds use the validator's text, masked so that it does not repeat the whole value.
        _ => quote::truncate(&error.masked().to_string(), 200),
    }
}

fn describe_count(requirement: &str, limit: u64, unit: &str, actual: usize) -> String {
    let units = match (unit, limit) {
        (unit, 1) => unit.to_owned(),
        ("property", _) => "properties".to_owned(),
        (unit, _) => format!("{unit}s"),
    };
    format!("{requirement} {limit} {units}, got {actual}")
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
    let with_article = |name: &str| match name {
        "null" => "null".to_owned(),
        "integer" | "array" | "object" => format!("an {name}"),
        name => format!("a {name}"),
    };
    match kind {
        TypeKind::Single(name) => with_article(name.as_str()),
        TypeKind::Multiple(names) => {
            let names: Vec<String> = names.iter().map(|name| with_article(name.as_str())).collect();
            names.join(" or ")
        }
    }
}
