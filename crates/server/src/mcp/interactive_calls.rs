//! Calls whose tool may ask the caller, over a protocol in which the caller answers with another request.
//!
//! In: a call, and the answers of its caller. Out: step by step, what the tool asks for or the outcome. Between two requests the call
//! waits in `SuspendedCalls`; what is not answered in time is declined, and the call goes on without its caller.

mod suspended;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::DropGuard;
use toolhub_core::{
    BoxFuture, CallHandle, CallReceipt, CallRequest, CancellationToken, INPUT_TIMEOUT, InputHandler, InputKind,
    InputRequest, Outcome,
    clock::{Clock, Timestamp},
};

pub(crate) use suspended::{ResumeError, ResumeKey, SuspendedCalls};

use super::{approvals::FORM_KEY, input::MissingInput};

/// How long a request may be open. A little less than the hub waits, so that the tool hears that its caller declined.
const ANSWER_TIMEOUT: Duration = INPUT_TIMEOUT.saturating_sub(Duration::from_secs(1));
/// Number of requests that a call may have open; more are declined.
const MAX_OPEN_REQUESTS: usize = 32;

/// A running call whose caller is asked through this value.
pub(crate) struct InteractiveCall {
    handle: CallHandle,
    incoming: mpsc::Receiver<OpenRequest>,
    /// The requests without an answer, by the keys that the caller knows.
    open: BTreeMap<String, OpenRequest>,
    last_key: u64,
    /// When it last began or ceased to wait for answers.
    changed_at: Option<Timestamp>,
    /// Answers that came with the call, before its tool has asked.
    early: Map<String, Value>,
    missing: Arc<MissingInput>,
    /// Whether it is in the journal while it runs, so that it can be looked up.
    is_detached: bool,
    /// Cancels a detached call whose caller does not know it yet.
    cancel: Option<DropGuard>,
    clock: Arc<dyn Clock>,
}

/// How far a call has come.
#[derive(Debug)]
pub(crate) enum CallStep {
    /// It has ended.
    Ended(Box<Outcome>),
    /// Its tool asks for these, by key.
    InputRequired(BTreeMap<String, InputRequest>),
}

struct OpenRequest {
    request: InputRequest,
    asked_at: Instant,
    asked_at_time: Timestamp,
    answer: oneshot::Sender<Value>,
}

/// Queues the requests of a call's tool.
struct InputQueue {
    accepted: Vec<InputKind>,
    queue: mpsc::Sender<OpenRequest>,
    missing: Arc<MissingInput>,
    clock: Arc<dyn Clock>,
}

impl InputHandler for InputQueue {
    fn accepts(&self, kind: InputKind) -> bool {
        self.accepted.contains(&kind)
    }

    fn answer(&self, request: InputRequest) -> BoxFuture<'_, Option<Value>> {
        let (answer, answered) = oneshot::channel();
        // A full or closed queue declines.
        let (asked_at, asked_at_time) = (Instant::now(), self.clock.now());
        let queued = self.queue.try_send(OpenRequest { request, asked_at, asked_at_time, answer });
        Box::pin(async move {
            queued.ok()?;
            answered.await.ok()
        })
    }

    fn missed(&self, kind: InputKind) {
        self.missing.missed(kind);
    }
}

impl InteractiveCall {
    /// Starts a call whose caller answers requests of these kinds.
    pub(crate) fn start(request: CallRequest<'_>, accepted: Vec<InputKind>, clock: Arc<dyn Clock>) -> Self {
        let (queue, incoming) = mpsc::channel(MAX_OPEN_REQUESTS);
        let missing = Arc::<MissingInput>::default();
        let input = InputQueue { accepted, queue, missing: missing.clone(), clock: clock.clone() };
        let handle = request.input(Arc::new(input)).start();
        Self {
            handle,
            incoming,
            open: BTreeMap::new(),
            last_key: 0,
            changed_at: None,
            early: Map::new(),
            missing,
            is_detached: false,
            cancel: None,
            clock,
        }
    }

    /// Starts a call that its caller may look up later. Until it is [released](Self::release), dropping this value cancels it,
    /// unless it has an idempotency key.
    pub(crate) fn start_detached(
        request: CallRequest<'_>,
        accepted: Vec<InputKind>,
        clock: Arc<dyn Clock>,
        is_keyed: bool,
    ) -> Self {
        let cancel = CancellationToken::new();
        let call = Self::start(request.detached().cancel_on(&cancel), accepted, clock);
        Self { is_detached: true, cancel: (!is_keyed).then(|| cancel.drop_guard()), ..call }
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.is_detached
    }

    /// Lets the call go on when this value is dropped, but not the returned one.
    pub(crate) fn release(&mut self) -> Option<DropGuard> {
        self.cancel.take()
    }

    /// Waits until the call has ended, or is detached and in the journal.
    pub(crate) async fn accepted(&mut self) -> CallReceipt {
        let receipt = self.handle.accepted().await;
        if matches!(receipt, CallReceipt::Ended(_)) {
            self.end();
        }
        receipt
    }

    /// The call has ended: what its tool left running on purpose is not cancelled.
    fn end(&mut self) {
        self.release().map(DropGuard::disarm);
    }

    /// Gives answers that the caller sent with the call. They are used when the tool asks for them by these keys.
    pub(crate) fn answered_before(mut self, answers: Map<String, Value>) -> Self {
        self.early = answers;
        self
    }

    /// What the tool needed and the caller does not answer.
    pub(crate) fn missing(&self) -> &Arc<MissingInput> {
        &self.missing
    }

    /// The running call, for its progress and to cancel it.
    pub(crate) fn handle(&mut self) -> &mut CallHandle {
        &mut self.handle
    }

    /// When it last began or ceased to wait for answers, if it ever did.
    pub(crate) fn changed_at(&self) -> Option<Timestamp> {
        self.changed_at
    }

    /// Waits until the call has ended, or its tool asks for something. Requests that were not answered are returned again. Cancel
    /// safe; must not be called again after the call has ended.
    pub(crate) async fn next(&mut self) -> CallStep {
        self.remove_open(|_, open| open.answer.is_closed());
        loop {
            // A tool that asks for several things at once gets them in one round trip.
            while let Ok(request) = self.incoming.try_recv() {
                self.add(request);
            }
            if !self.open.is_empty() {
                break;
            }
            tokio::select! {
                biased;
                Some(request) = self.incoming.recv() => self.add(request),
                outcome = self.handle.outcome() => {
                    self.end();
                    return CallStep::Ended(Box::new(outcome));
                }
            }
        }
        let requests = self.open.iter().map(|(key, open)| (key.clone(), open.request.clone()));
        CallStep::InputRequired(requests.collect())
    }

    /// Gives the answers of the caller, by key. Unknown keys are ignored.
    pub(crate) fn answer(&mut self, answers: Map<String, Value>) {
        let before = self.open.len();
        for (key, answer) in answers {
            if let Some(open) = self.open.remove(&key) {
                // Without a receiver the request has timed out or the call has ended.
                let _ = open.answer.send(answer);
            }
        }
        self.note_removed(before);
    }

    /// Declines requests, by key.
    pub(crate) fn decline(&mut self, keys: &[String]) {
        self.remove_open(|key, _| keys.contains(key));
    }

    /// Declines all open requests.
    pub(crate) fn decline_all(&mut self) {
        self.remove_open(|_, _| true);
    }

    fn remove_open(&mut self, is_removed: impl Fn(&String, &OpenRequest) -> bool) {
        let before = self.open.len();
        self.open.retain(|key, open| !is_removed(key, open));
        self.note_removed(before);
    }

    /// Notes the time if the last of this many requests was removed.
    fn note_removed(&mut self, before: usize) {
        if before > 0 && self.open.is_empty() {
            self.changed_at = Some(self.clock.now());
        }
    }

    /// When the first open request is declined, if it is not answered before.
    fn answer_until(&self) -> Instant {
        let first = self.open.values().map(|open| open.asked_at).min();
        first.unwrap_or_else(Instant::now) + ANSWER_TIMEOUT
    }

    /// Declines all requests, now and later, and waits for the end of the call.
    async fn finish_declined(self) {
        let Self { handle, incoming, open, cancel, .. } = self;
        drop((incoming, open));
        drop(handle.await);
        cancel.map(DropGuard::disarm);
    }

    fn add(&mut self, open: OpenRequest) {
        // An answer with the key of a form decides about an approval.
        let named = open.request.key.clone().filter(|key| key != FORM_KEY && !self.open.contains_key(key));
        let key = named.unwrap_or_else(|| {
            loop {
                self.last_key += 1;
                let key = format!("q{}", self.last_key);
                if !self.open.contains_key(&key) {
                    break key;
                }
            }
        });
        match self.early.remove(&key).filter(Value::is_object) {
            // Without a receiver the call has ended.
            Some(answer) => drop(open.answer.send(answer)),
            None => {
                if self.open.is_empty() {
                    self.changed_at = Some(open.asked_at_time);
                }
                self.open.insert(key, open);
            }
        }
    }
}

#[cfg(test)]
mod tests;
