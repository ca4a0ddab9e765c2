//! Errors while reading a request body, and the problems they become.
//!
//! In: the error of a failed read. Out: a problem. `listener/body.rs` enforces the limits and ends a body with one of
//! these errors; the code that reads bodies turns them into responses.

use std::fmt;

use crate::problem::{Code, Problem};

/// Why a body ended early.
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
    /// Finds one of these errors in a chain of sources.
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

/// The problem for a request whose body could not be read.
pub(crate) fn problem(error: &axum::Error, limit: usize) -> Problem {
    match BodyError::find_in(error) {
        Some(BodyError::TooSlow) => {
            Problem::new(Code::TOO_SLOW, "the body did not arrive within this server's timeout")
        }
        _ => Problem::new(
            Code::TOO_LARGE,
            format!("the body is larger than {limit} bytes, or did not arrive completely"),
        ),
    }
}
