//! Turns the validator's errors into problems that a model can correct.
//!
//! In: errors that `cost.rs` found affordable. Out: at most ten problems, each with its field.
//! `union.rs` guesses the intended branch of a union. Whether arguments are valid is decided by the validator, not here.

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind as Kind};
use serde_json::Value;

use super::{description, refs::RefResolver, union};
use crate::suggest::closest;
use toolhub_types::{
    problem::{Problem, join_pointer, quote},
    redact::Redactor,
};

/// More problems are noise to a model; it corrects these first.
pub(super) const MAX_PROBLEMS: usize = 10;
/// The nesting of unions up to which the errors of a branch are explained.
const MAX_CHOICE_DEPTH: usize = 4;

/// The problems behind the validator's errors.
pub(super) fn explain_errors<'e>(
    (root, refs): (&Value, &RefResolver<'_>),
    (arguments, redactor): (&Value, &Redactor),
    errors: impl Iterator<Item = ValidationError<'e>>,
) -> Vec<Problem> {
    let mut explainer = Explainer { root, refs, arguments, redactor, problems: Vec::new() };
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
    redactor: &'a Redactor,
    problems: Vec<Problem>,
}

impl<'a> Explainer<'a> {
    fn add(&mut self, error: &ValidationError<'_>, choice_depth: usize) {
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        let pointer = error.instance_path().as_str();
        // The names of its members are as secret as their values.
        let secret = self.redactor.secret_part(pointer);
        if let Some(secret) = secret.filter(|secret| *secret != pointer || names_members(error)) {
            return self.push(Problem::at(secret.to_owned(), self.arguments, "does not fit its schema"));
        }
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
                let (expected, found) = describe_error(inner);
                let found = found.map(|found| format!(", got {found}")).unwrap_or_default();
                let detail = format!("the property name {name} is not allowed: {expected}{found}");
                self.push(self.problem_at(error, (detail, None)));
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

    /// The problem behind an error: what was expected, and what was found, unless that is secret.
    fn problem_at(&self, error: &ValidationError<'_>, (expected, found): (String, Option<String>)) -> Problem {
        let found = found.filter(|_| !self.is_secret(error));
        let detail = found.map_or(expected.clone(), |found| format!("{expected}, got {found}"));
        Problem::at(error.instance_path().as_str().to_owned(), self.arguments, detail)
    }

    fn is_secret(&self, error: &ValidationError<'_>) -> bool {
        self.redactor.secret_part(error.instance_path().as_str()).is_some()
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
        let expected = match options {
            [single] => format!("must be {}", quote::value(single)),
            _ => format!("must be one of {}", quote::list(options.iter())),
        };
        let texts = options.iter().filter_map(Value::as_str);
        let given = instance.as_str().filter(|_| !self.is_secret(error));
        let similar = given.and_then(|given| closest(given, texts, 1).pop());
        let suggestion = similar.map(|similar| format!("did you mean {}?", quote::value(&similar.into())));
        self.problem_at(error, (expected, Some(quote::describe(instance)))).with_suggestion(suggestion)
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
        let expected = match expected.as_slice() {
            [] => format!("fits none of the {} allowed forms", branches.len()),
            expected => format!("expected {}", expected.join(" or ")),
        };
        self.push(self.problem_at(error, (expected, Some(quote::describe(error.instance())))));
    }
}

fn quote_property_name(error: &ValidationError<'_>) -> String {
    quote::value(error.instance())
}

/// Whether the problem of an error names members of its value.
fn names_members(error: &ValidationError<'_>) -> bool {
    matches!(
        error.kind(),
        Kind::Required { .. }
            | Kind::AdditionalProperties { .. }
            | Kind::UnevaluatedProperties { .. }
            | Kind::PropertyNames { .. }
    )
}

/// What an error expected, and what it found, if that needs neither the surrounding schema nor other errors.
fn describe_error(error: &ValidationError<'_>) -> (String, Option<String>) {
    let instance = error.instance();
    let value = |expected: String| (expected, Some(quote::value(instance)));
    let described = |expected: String| (expected, Some(quote::describe(instance)));
    let counted = |requirement: &str, limit: u64, unit: &str| {
        let units = match (unit, limit) {
            (unit, 1) => unit.to_owned(),
            ("property", _) => "properties".to_owned(),
            (unit, _) => format!("{unit}s"),
        };
        (format!("{requirement} {limit} {units}"), Some(count_elements(instance).to_string()))
    };
    match error.kind() {
        Kind::Type { kind } => described(format!("expected {}", type_names(kind))),
        Kind::Minimum { limit } => value(format!("must be at least {limit}")),
        Kind::Maximum { limit } => value(format!("must be at most {limit}")),
        Kind::ExclusiveMinimum { limit } => value(format!("must be more than {limit}")),
        Kind::ExclusiveMaximum { limit } => value(format!("must be less than {limit}")),
        Kind::MultipleOf { multiple_of } => value(format!("must be a multiple of {multiple_of}")),
        Kind::MinLength { limit } => counted("must have at least", *limit, "character"),
        Kind::MaxLength { limit } => counted("must have at most", *limit, "character"),
        Kind::MinItems { limit } => counted("must have at least", *limit, "item"),
        Kind::MaxItems { limit } => counted("must have at most", *limit, "item"),
        Kind::AdditionalItems { limit } => counted("must have at most", *limit as u64, "item"),
        Kind::MinProperties { limit } => counted("must have at least", *limit, "property"),
        Kind::MaxProperties { limit } => counted("must have at most", *limit, "property"),
        Kind::Pattern { pattern } => value(format!("must match the pattern {}", quote::text(pattern))),
        Kind::Format { format } => value(format!("must be a valid {}", quote::text(format))),
        Kind::UniqueItems => ("the items must differ from each other".into(), None),
        Kind::Contains => ("too few or too many items match the schema in `contains`".into(), None),
        Kind::OneOfMultipleValid { .. } => {
            ("fits more than one of the allowed forms; exactly one must fit".into(), None)
        }
        Kind::FalseSchema => ("is not allowed here".into(), None),
        Kind::UnevaluatedItems { .. } => ("has more items than allowed".into(), None),
        Kind::Not { .. } => described("must not be of this form".into()),
        // Rare kinds use the validator's text, masked so that it does not repeat the whole value.
        _ => (quote::truncate(&error.masked().to_string(), 200), None),
    }
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
