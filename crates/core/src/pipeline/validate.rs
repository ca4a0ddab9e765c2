//! Door 6: the arguments fit the tool's schema, or the caller learns what is wrong with which of them.

use super::{Found, Valid, Way};
use crate::{
    error::{CallError, Detail, ErrorKind},
    schema::{self, Problem},
};

pub(super) fn check(found: Found) -> Result<Valid, CallError> {
    let Found(way) = found;
    let Way { call, tool, .. } = &way;
    match tool.schema.check(&call.arguments) {
        Ok(()) => Ok(Valid(way)),
        Err(problems) => Err(invalid(&tool.definition.name, problems)),
    }
}

/// The refusal of arguments, in words a model can act on.
pub(super) fn invalid(tool: &str, problems: Vec<Problem>) -> CallError {
    let text = schema::problems_text(tool, &problems);
    CallError::new(ErrorKind::ArgumentsInvalid).operator(text.clone()).model(text).detail(Detail::Problems(problems))
}
