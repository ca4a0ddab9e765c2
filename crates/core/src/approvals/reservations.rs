//! Reserved approvals: those whose answer one caller is about to use.
//!
//! In: the approval that a caller answers itself. Out: whether identical calls of this node must leave its answer alone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Approvals;
use toolhub_types::{count_by_key::CountByKey, ids::ApprovalId};

/// The reserved approvals of this node.
#[derive(Debug, Clone, Default)]
pub(super) struct ReservedApprovals(Arc<Mutex<CountByKey<ApprovalId>>>);

impl ReservedApprovals {
    fn lock(&self) -> MutexGuard<'_, CountByKey<ApprovalId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserves the answer of an approval until it is dropped; see
/// [`ToolHub::reserve_approval`](crate::ToolHub::reserve_approval).
#[derive(Debug)]
#[must_use = "dropping it ends the reservation"]
pub struct ApprovalReservation {
    reserved: ReservedApprovals,
    id: ApprovalId,
}

impl ApprovalReservation {
    /// The reserved approval.
    #[must_use]
    pub fn id(&self) -> ApprovalId {
        self.id
    }
}

impl Drop for ApprovalReservation {
    fn drop(&mut self) {
        self.reserved.lock().subtract(&self.id, 1);
    }
}

impl Approvals {
    pub(crate) fn reserve(&self, id: ApprovalId) -> ApprovalReservation {
        self.reserved.lock().add(&id, 1);
        ApprovalReservation { reserved: self.reserved.clone(), id }
    }

    pub(crate) fn is_reserved(&self, id: ApprovalId) -> bool {
        self.reserved.lock().of(&id) > 0
    }
}
