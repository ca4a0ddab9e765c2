//! Doors 3 and 10: a tool that is withheld is not called.
//!
//! Nothing withholds a tool yet, so both let everything pass.

use super::{Found, Placed};
use crate::error::CallError;

/// Before anything else is looked at: is the tool withheld? Refused early, a call costs nothing.
pub(super) fn pre_check(found: &Found) -> Result<(), CallError> {
    let _ = found;
    Ok(())
}

/// Now that it is the call's turn: may it still run, and is it the probe of a tool on probation?
pub(super) async fn gate(placed: Placed) -> Result<Placed, CallError> {
    Ok(placed)
}
