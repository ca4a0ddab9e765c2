//! Guesses which form of a choice the arguments were meant to be.
//!
//! In: the errors of each form. Out: the form whose errors are worth showing, the tag that is wrong, or neither.
//! A guess only chooses words; the arguments are invalid either way.

use jsonschema::error::{ValidationError, ValidationErrorKind as Kind};
use serde_json::Value;

/// What was probably meant.
pub(super) enum IntendedBranch<'e> {
    /// This form, with these mistakes.
    Branch(&'e [ValidationError<'static>]),
    /// No form has this tag; an error about it and the tags there are.
    Tag(&'e ValidationError<'static>, Vec<Value>),
    /// There is no telling.
    Ambiguous,
}

/// The form meant by the value at `pointer`, to which every form is applied.
pub(super) fn guess_branch<'e>(pointer: &str, forms: &'e [Vec<ValidationError<'static>>]) -> IntendedBranch<'e> {
    let right_kind = |form: &&Vec<ValidationError<'static>>| {
        !form.is_empty() && !form.iter().any(|error| is_type_mismatch(error, pointer))
    };
    let possible: Vec<_> = forms.iter().filter(right_kind).collect();
    let tagged: Vec<_> = possible.iter().filter_map(|form| find_wrong_tag(form, pointer)).collect();
    if tagged.len() < possible.len() {
        // A wrong tag says the form was not meant; the others are compared by what is wrong with them.
        let rest = possible.iter().filter(|form| find_wrong_tag(form, pointer).is_none());
        return with_fewest_errors(rest.copied(), pointer);
    }
    match tagged.first() {
        Some((first, _)) if tagged.iter().all(|(tag, _)| tag.instance_path() == first.instance_path()) => {
            let mut options: Vec<Value> = Vec::new();
            for option in tagged.iter().flat_map(|(_, options)| options) {
                if !options.contains(option) {
                    options.push(option.clone());
                }
            }
            IntendedBranch::Tag(first, options)
        }
        _ => IntendedBranch::Ambiguous,
    }
}

/// The form with fewest errors, unless two are equally good.
///
/// An error of the value itself, such as a missing property, speaks against a form more than one inside it.
fn with_fewest_errors<'e>(
    forms: impl Iterator<Item = &'e Vec<ValidationError<'static>>>,
    pointer: &str,
) -> IntendedBranch<'e> {
    let badness = |form: &Vec<ValidationError<'static>>| {
        let own = form.iter().filter(|error| error.instance_path().as_str() == pointer);
        (own.count(), form.len())
    };
    let mut forms: Vec<_> = forms.map(|form| (badness(form), form)).collect();
    forms.sort_by_key(|(badness, _)| *badness);
    match forms.as_slice() {
        [(_, only)] => IntendedBranch::Branch(only),
        [(best, form), (second, _), ..] if best < second => IntendedBranch::Branch(form),
        _ => IntendedBranch::Ambiguous,
    }
}

fn is_type_mismatch(error: &ValidationError<'_>, pointer: &str) -> bool {
    matches!(error.kind(), Kind::Type { .. }) && error.instance_path().as_str() == pointer
}

/// The error about a property, or the value itself, that can only be one of a few constants.
fn find_wrong_tag<'e>(
    form: &'e [ValidationError<'static>],
    pointer: &str,
) -> Option<(&'e ValidationError<'static>, Vec<Value>)> {
    form.iter().find_map(|error| {
        let below = error.instance_path().as_str().strip_prefix(pointer)?;
        if below.matches('/').count() > 1 {
            return None;
        }
        match error.kind() {
            Kind::Constant { expected_value } => Some((error, vec![expected_value.as_ref().clone()])),
            Kind::Enum { options } => Some((error, options.as_array()?.clone())),
            _ => None,
        }
    })
}
