//! A call's concurrency slot, owned by the call or shared with work that cannot be stopped.

use std::sync::{Arc, Weak};

use super::Tool;
use crate::scheduler;

/// The concurrency slot of a call, released when the last reference is dropped.
#[derive(Default)]
pub(crate) enum CallSlot {
    /// No limit applies, or the slot was released.
    #[default]
    Free,
    /// Owned by the call.
    Own(#[allow(dead_code, reason = "released on drop")] scheduler::Slot),
    /// Shared with a tool that may continue after its call has ended.
    Shared(Arc<scheduler::Slot>),
}

impl CallSlot {
    /// Releases the call's reference: the tool has stopped. A blocking function that still runs holds its own.
    pub(crate) fn release(&mut self) {
        *self = Self::Free;
    }

    /// A weak reference, from which a blocking function can get a strong one.
    pub(crate) fn downgrade(&self) -> WeakSlot {
        WeakSlot(if let Self::Shared(slot) = self { Some(Arc::downgrade(slot)) } else { None })
    }

    pub(crate) fn new(tool: &Tool, slot: scheduler::Slot) -> Self {
        if tool.executor.stops_when_dropped() { Self::Own(slot) } else { Self::Shared(Arc::new(slot)) }
    }
}

/// A weak reference to a slot.
pub(crate) struct WeakSlot(Option<Weak<scheduler::Slot>>);

impl WeakSlot {
    /// A strong reference to the slot, if it was not released.
    pub(crate) fn upgrade(&self) -> CallSlot {
        self.0.as_ref().and_then(Weak::upgrade).map_or(CallSlot::Free, CallSlot::Shared)
    }
}
