//! Door 9: rate, concurrency and the queue. Whoever comes out holds a slot until it is done.
//!
//! Nothing is limited yet, so everybody gets a slot at once.

use super::{Allowed, Placed};
use crate::error::CallError;

/// The right to run, for as long as it is held.
pub(super) struct Slot;

impl Slot {
    /// Gives it back: the tool has stopped.
    pub(super) fn give_back(self) {}
}

pub(super) async fn place(allowed: Allowed) -> Result<Placed, CallError> {
    let Allowed(way) = allowed;
    Ok(Placed { way, slot: Slot, standing: None })
}
