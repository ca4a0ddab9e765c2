//! Door 7: deny, ask, allow.
//!
//! There are no rules yet, so every valid call is allowed.

use super::{Allowed, Valid};
use crate::error::CallError;

pub(super) async fn decide(valid: Valid) -> Result<Allowed, CallError> {
    let Valid(way) = valid;
    Ok(Allowed(way))
}
