//! Records the events of a hub for assertions.

use std::sync::Arc;

use crate::{
    events::{Event, Subscription},
    hub::ToolHub,
};
use toolhub_types::{event_kind::EventKind, ids::CallId};

/// All events of a hub since the recorder was created.
#[derive(Debug)]
pub struct EventRecorder {
    subscription: Subscription,
    events: Vec<Arc<Event>>,
}

impl EventRecorder {
    /// Records the events of a hub from now on.
    #[must_use]
    pub fn new(hub: &ToolHub) -> Self {
        Self::from(hub.subscribe())
    }

    /// All events so far.
    pub fn events(&mut self) -> &[Arc<Event>] {
        while let Some(event) = self.subscription.try_next() {
            self.events.push(event);
        }
        &self.events
    }

    /// The names of all events so far.
    pub fn names(&mut self) -> Vec<&'static str> {
        self.events().iter().map(|event| event.name()).collect()
    }

    /// Number of end events of a call. Anything but one after its end is a bug.
    pub fn end_count(&mut self, call: CallId) -> usize {
        let ends = |event: &&Arc<Event>| {
            matches!(&event.kind,
                EventKind::ExecutionCompleted { call_id, .. } | EventKind::ExecutionFailed { call_id, .. } if *call_id == call)
        };
        self.events().iter().filter(ends).count()
    }
}

impl From<Subscription> for EventRecorder {
    fn from(subscription: Subscription) -> Self {
        Self { subscription, events: Vec::new() }
    }
}
