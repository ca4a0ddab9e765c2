//! The right of a call to run, held by the call or shared with work that cannot be stopped.

use std::sync::{Arc, Weak};

use super::Tool;
use crate::scheduler;

/// The right to run, for as long as it or a share of it is held.
#[derive(Default)]
pub(crate) enum CallSlot {
    /// Nothing is limited, or it was given back.
    #[default]
    Free,
    /// The call's own.
    Own(#[allow(dead_code, reason = "held, and given back when dropped")] scheduler::Slot),
    /// Of a tool that may run on when nobody waits for it any more.
    Shared(Arc<scheduler::Slot>),
}

impl CallSlot {
    /// Gives it back: the tool has stopped. A blocking function that runs on holds a share of its own.
    pub(crate) fn release(&mut self) {
        *self = Self::Free;
    }

    /// What a blocking function can make a share of, without holding one.
    pub(crate) fn downgrade(&self) -> WeakSlot {
        WeakSlot(if let Self::Shared(slot) = self { Some(Arc::downgrade(slot)) } else { None })
    }

    pub(crate) fn new(tool: &Tool, slot: scheduler::Slot) -> Self {
        if tool.executor.stops_when_dropped() { Self::Own(slot) } else { Self::Shared(Arc::new(slot)) }
    }
}

/// A slot that is not held.
pub(crate) struct WeakSlot(Option<Weak<scheduler::Slot>>);

impl WeakSlot {
    /// A share of the slot, if somebody still holds one.
    pub(crate) fn upgrade(&self) -> CallSlot {
        self.0.as_ref().and_then(Weak::upgrade).map_or(CallSlot::Free, CallSlot::Shared)
    }
}
