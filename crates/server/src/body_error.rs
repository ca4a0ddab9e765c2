//! Why the body of a request could not be read, and the problem that says so.
//!
//! In: what reading a body failed with. Out: a problem. The listener sets the limits and ends a body with one of these errors;
//! whoever reads bodies turns them into answers.

use std::fmt;

use crate::problem::{Code, Problem};

/// Why a body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is larger than allowed.
    TooLarge,
    /// It took longer than allowed.
    TooSlow,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the body is larger than allowed",
            Self::TooSlow => "the body took longer to arrive than allowed",
        })
    }
}

impl std::error::Error for BodyError {}

impl BodyError {
    /// Whether a failure to read a body is one of these.
    fn find_in(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(*found);
            }
            next = error.source();
        }
        None
    }
}

/// The problem a request is answered with whose body could not be read.
pub(crate) fn problem(error: &axum::Error, limit: usize) -> Problem {
    match BodyError::find_in(error) {
        Some(BodyError::TooSlow) => {
            Problem::new(Code::TOO_SLOW, "the body took longer to arrive than this server waits")
        }
        _ => Problem::new(Code::TOO_LARGE, format!("the body is larger than {limit} bytes, or did not arrive whole")),
    }
}
