//! Guesses the intended branch of a union from the validation errors of all branches.
//!
//! In: the errors of each branch. Out: the branch whose errors are worth showing, the wrong tag, or neither.
//! The guess only selects the texts; the arguments are invalid either way.

use jsonschema::error::{ValidationError, ValidationErrorKind as Kind};
use serde_json::Value;

/// The probable intention of the caller.
pub(super) enum IntendedBranch<'e> {
    /// This branch, with these errors.
    Branch(&'e [ValidationError<'static>]),
    /// No branch has the given tag: an error about it, and the valid tags.
    Tag(&'e ValidationError<'static>, Vec<Value>),
    /// The intention is not clear.
    Ambiguous,
}

/// The intended branch for the value at `pointer`, which was validated against every branch.
pub(super) fn guess_branch<'e>(pointer: &str, branches: &'e [Vec<ValidationError<'static>>]) -> IntendedBranch<'e> {
    let has_right_type = |branch: &&Vec<ValidationError<'static>>| {
        !branch.is_empty() && !branch.iter().any(|error| is_type_mismatch(error, pointer))
    };
    let possible: Vec<_> = branches.iter().filter(has_right_type).collect();
    let tagged: Vec<_> = possible.iter().filter_map(|branch| find_wrong_tag(branch, pointer)).collect();
    if tagged.len() < possible.len() {
        // A branch with a wrong tag was not intended; compare the others by their errors.
        let others = possible.iter().filter(|branch| find_wrong_tag(branch, pointer).is_none());
        return with_fewest_errors(others.copied(), pointer);
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

/// The branch with the fewest errors, unless two are equally good.
///
/// An error of the value itself, such as a missing property, weighs more than errors inside it.
fn with_fewest_errors<'e>(
    branches: impl Iterator<Item = &'e Vec<ValidationError<'static>>>,
    pointer: &str,
) -> IntendedBranch<'e> {
    let penalty = |branch: &Vec<ValidationError<'static>>| {
        let own = branch.iter().filter(|error| error.instance_path().as_str() == pointer);
        (own.count(), branch.len())
    };
    let mut branches: Vec<_> = branches.map(|branch| (penalty(branch), branch)).collect();
    branches.sort_by_key(|(penalty, _)| *penalty);
    match branches.as_slice() {
        [(_, single)] => IntendedBranch::Branch(single),
        [(best, branch), (second, _), ..] if best < second => IntendedBranch::Branch(branch),
        _ => IntendedBranch::Ambiguous,
    }
}

fn is_type_mismatch(error: &ValidationError<'_>, pointer: &str) -> bool {
    matches!(error.kind(), Kind::Type { .. }) && error.instance_path().as_str() == pointer
}

/// The error about a tag: a property, or the value itself, that must be one of a few constants.
fn find_wrong_tag<'e>(
    branch: &'e [ValidationError<'static>],
    pointer: &str,
) -> Option<(&'e ValidationError<'static>, Vec<Value>)> {
    branch.iter().find_map(|error| {
        let relative = error.instance_path().as_str().strip_prefix(pointer)?;
        if relative.matches('/').count() > 1 {
            return None;
        }
        match error.kind() {
            Kind::Constant { expected_value } => Some((error, vec![expected_value.as_ref().clone()])),
            Kind::Enum { options } => Some((error, options.as_array()?.clone())),
            _ => None,
        }
    })
}
