//! Seals the secret arguments of tool calls in stored messages and open runs.
//!
//! In: calls as the model requested them. Out: calls for the store, and back. Without the key that sealed them, arguments come
//! back redacted: good enough to show the model what it did, not to make the call.

use toolhub_core::{Sealer, UnsealError, ids::ThreadKey};

use super::OpenRun;
use crate::message::{Message, ToolCall};

/// Seals the calls of one thread.
pub(super) struct CallSealer<'a> {
    sealer: &'a Sealer,
    thread: String,
}

impl<'a> CallSealer<'a> {
    pub(super) fn new(sealer: &'a Sealer, thread_key: &ThreadKey) -> Self {
        Self { sealer, thread: format!("{}/{}", thread_key.tenant, thread_key.thread) }
    }

    /// The message for the store.
    pub(super) fn seal_message(&self, mut message: Message) -> Message {
        self.seal_calls(calls_of(&mut message).iter_mut());
        message
    }

    /// The message that was stored.
    pub(super) fn unseal_message(&self, mut message: Message) -> Message {
        for call in calls_of(&mut message) {
            let _ = self.unseal(call);
        }
        message
    }

    /// The run for the store.
    pub(super) fn seal_run(&self, mut open_run: OpenRun) -> OpenRun {
        self.seal_calls(open_run.run.planned_calls_mut().iter_mut().map(|planned| &mut planned.tool_call));
        open_run
    }

    /// The run that was stored.
    pub(super) fn unseal_run(&self, mut open_run: OpenRun) -> OpenRun {
        for planned in open_run.run.planned_calls_mut() {
            planned.arguments_lost = self.unseal(&mut planned.tool_call).is_err();
        }
        open_run
    }

    fn seal_calls<'c>(&self, calls: impl Iterator<Item = &'c mut ToolCall>) {
        for call in calls {
            self.sealer.seal(&mut call.arguments, &self.thread);
            if let Some(text) = &mut call.malformed {
                self.sealer.seal_text(text, &self.thread);
            }
        }
    }

    fn unseal(&self, call: &mut ToolCall) -> Result<(), UnsealError> {
        let text = call.malformed.as_mut().map_or(Ok(()), |text| self.sealer.unseal_text(text, &self.thread));
        self.sealer.unseal(&mut call.arguments, &self.thread).and(text)
    }
}

fn calls_of(message: &mut Message) -> &mut [ToolCall] {
    match message {
        Message::Assistant { calls, .. } => calls,
        Message::User { .. } | Message::Tool { .. } => &mut [],
    }
}
