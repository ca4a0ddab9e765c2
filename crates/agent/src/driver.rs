//! Drives one run: performs each action the run's state machine asks for, and commits every step before the next.
//!
//! In: a checked-out run and its agent's plan. Out: the run's final record, sent to its waiters. If the process dies at
//! any point, the committed rows say where to resume: the model request is repeated, calls that had started are looked
//! up by their ids, and only the others are made. `step_calls.rs` makes them.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use smol_str::SmolStr;
use tokio::sync::watch;
use toolhub_core::{
    CallError, CancellationToken, Offer, OfferOptions, ToolHub,
    backend::StoreError,
    events::{EventClass, EventKind},
    ids::{CallId, ThreadKey},
    status::Language,
};

use crate::{
    definition::AgentDefinition,
    dependency_prompt,
    message::Message,
    meters::Metrics,
    model::{ModelError, ModelFault, Prompt, Reply, StreamPart, Usage},
    record::{RunRecord, RunStatus},
    run::{NextAction, RunError, RunStep},
    run_store::{RunCheckout, RunStore},
    step_calls,
    window::{SizedMessage, estimate_tokens, message_tokens, select_messages, trim_point},
};

/// Initial delay before a failing store is tried again, and how often it doubles (exponential backoff).
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_BACKOFF_DOUBLINGS: u32 = 5;
/// How much longer than its timeout a model request may take: a client that enforces the timeout itself has a better
/// error.
const MODEL_TIMEOUT_GRACE: Duration = Duration::from_secs(1);

/// Drives one run.
pub(crate) struct Driver {
    pub(crate) hub: ToolHub,
    pub(crate) run_store: RunStore,
    pub(crate) meters: Arc<Metrics>,
    pub(crate) thread_key: ThreadKey,
    pub(crate) plan: Arc<AgentDefinition>,
    pub(crate) checkout: RunCheckout,
    /// Whether another driver may have started the current step.
    pub(crate) resumed: bool,
    pub(crate) language: Language,
    pub(crate) record_tx: watch::Sender<RunRecord>,
    pub(crate) cancel: CancellationToken,
    /// The latest offer.
    pub(crate) last_offer: Option<Offer>,
    /// How often the store has failed since the last committed step.
    pub(crate) failures: u32,
    /// Why the run can only end: a row it needs is damaged, or the store rejects what it would write.
    pub(crate) fatal_error: Option<RunError>,
}

/// The state of a run that was reloaded after a store error.
enum ReloadResult {
    /// It is unchanged, or as this driver has written it.
    Owned,
    /// It has ended.
    Ended(Box<RunRecord>),
    /// Another driver has written it.
    NotOwned,
}

impl Driver {
    /// Drives the run to its end and returns its final record; `None` if the run is left open, because another process
    /// continues it, its rows are unreadable, or the hub shuts down.
    pub(crate) async fn drive(&mut self) -> Option<RunRecord> {
        let run_id = self.checkout.open_run.run.id;
        self.emit(EventKind::RunStarted { run_id, agent: self.checkout.open_run.agent.clone() });
        loop {
            let error = match self.run_steps().await {
                Ok(record) => return record,
                Err(error) => error,
            };
            tracing::warn!(%run_id, %error, "run step failed; reloading the run from the store");
            if matches!(error, StoreError::Refused(_) | StoreError::Damaged { .. } | StoreError::NewerLayout { .. }) {
                if self.fatal_error.is_some() {
                    return None;
                }
                self.fatal_error = Some(RunError::new("store_unavailable", error.to_string()));
            }
            match self.reload_run(&error).await {
                ReloadResult::Owned => self.resumed = true,
                ReloadResult::Ended(record) => return Some(*record),
                ReloadResult::NotOwned => {
                    tracing::warn!(%run_id, "run is unreadable or was taken over by another driver; leaving it open");
                    return None;
                }
            }
        }
    }

    /// Reloads the run after a store error, and retries until that succeeds: only the store knows whether the last step
    /// was committed, and the state in memory may be ahead of it.
    async fn reload_run(&mut self, error: &StoreError) -> ReloadResult {
        if !matches!(error, StoreError::Conflict { .. }) {
            self.back_off().await;
        }
        loop {
            match self.run_store.checkout(&self.thread_key, self.hub.now()).await {
                Ok(Some(checkout)) if self.checkout.may_continue_from(&checkout) => {
                    self.checkout.continue_from(checkout);
                    return ReloadResult::Owned;
                }
                Ok(Some(_)) | Err(StoreError::Damaged { .. } | StoreError::NewerLayout { .. }) => {
                    return ReloadResult::NotOwned;
                }
                Ok(None) => return ReloadResult::Ended(Box::new(self.load_ended_record().await)),
                Err(_) => self.back_off().await,
            }
        }
    }

    /// Waits before the next store access, with exponential backoff.
    async fn back_off(&mut self) {
        tokio::time::sleep(STORE_RETRY_DELAY * 2u32.pow(self.failures.min(MAX_BACKOFF_DOUBLINGS))).await;
        self.failures += 1;
    }

    /// The final record of a run that is no longer open; cancelled if the run was deleted with its thread.
    async fn load_ended_record(&mut self) -> RunRecord {
        let run = self.checkout.open_run.run.id;
        loop {
            let now = self.hub.now();
            match self.run_store.run(&self.thread_key.tenant, run, now).await {
                Ok(Some(record)) => return record,
                Ok(None) | Err(StoreError::Damaged { .. } | StoreError::NewerLayout { .. }) => {
                    return RunRecord {
                        status: RunStatus::Cancelled,
                        ended_at: Some(now),
                        ..self.record_tx.borrow().clone()
                    };
                }
                Err(_) => self.back_off().await,
            }
        }
    }

    /// Runs step after step until the run ends; `None` if the hub shuts down.
    async fn run_steps(&mut self) -> Result<Option<RunRecord>, StoreError> {
        // Loaded at the first model request: a run can end without one.
        let mut tail: Option<Vec<SizedMessage>> = None;
        loop {
            let messages: Vec<Message> = match self.checkout.open_run.run.next_action() {
                NextAction::AskModel { .. } | NextAction::ExecuteCalls(_) if self.fatal_error.is_some() => {
                    self.give_up()
                }
                NextAction::AskModel { may_call } => self.ask(&mut tail, may_call).await?,
                NextAction::ExecuteCalls(_) => match self.execute_calls().await? {
                    Some(messages) => messages,
                    None => return Ok(None),
                },
                NextAction::Finished(_) => {
                    return Ok(Some(self.checkout.open_run.record(&self.thread_key.thread, self.hub.now())));
                }
            };
            let record =
                self.run_store.commit_step(&self.thread_key, &mut self.checkout, &messages, self.hub.now()).await?;
            if let Some(tail) = &mut tail {
                for message in messages {
                    let tokens_so_far = tail.last().map_or(0, |last| last.tokens_so_far) + message_tokens(&message);
                    tail.push(SizedMessage { message, tokens_so_far });
                }
            }
            if record.status.is_end() {
                return Ok(Some(record));
            }
            (self.resumed, self.failures) = (false, 0);
            self.record_tx.send_replace(record);
        }
    }

    /// Fails a run that cannot continue. Its pending calls get an error result, because no call stays without a result.
    fn give_up(&mut self) -> Vec<Message> {
        let run = &mut self.checkout.open_run.run;
        let mut messages = Vec::new();
        if let NextAction::ExecuteCalls(planned) = run.next_action() {
            let results = planned.iter().map(step_calls::lost_result).collect();
            messages = run.apply_results(results).map(Vec::from).unwrap_or_default();
        }
        if let Some(error) = self.fatal_error.clone() {
            run.fail(error);
        }
        messages
    }

    /// Sends a model request, and applies its reply.
    async fn ask(&mut self, tail: &mut Option<Vec<SizedMessage>>, may_call: bool) -> Result<Vec<Message>, StoreError> {
        let now = self.hub.now();
        let RunCheckout { open_run, .. } = &mut self.checkout;
        if self.cancel.is_cancelled() {
            open_run.run.cancel();
        }
        open_run.run.enforce_bounds(now);
        if self.plan.is_removed {
            let message = format!("the agent `{}` is no longer defined", open_run.agent);
            open_run.run.fail(RunError::new("no_such_agent", message));
        }
        if let NextAction::Finished(_) = open_run.run.next_action() {
            return Ok(Vec::new());
        }
        let tail = match tail {
            Some(tail) => tail,
            None => tail.insert(self.run_store.tail(&self.thread_key, self.plan.context_window, now).await?),
        };
        let offer = self.offer().await.map_err(to_store_error)?;
        let started_at = self.hub.now();
        let reply = tokio::select! {
            biased;
            () = self.cancel.cancelled() => None,
            reply = self.request_reply(&offer, tail, may_call) => Some(reply),
        };
        // Kept until the next step, so that the hub emits an event when the offer becomes stale meanwhile.
        self.last_offer = Some(offer);
        let now = self.hub.now();
        let run = &mut self.checkout.open_run.run;
        let request = |usage, error| RunStep {
            model: self.plan.model.name().into(),
            started_at,
            replied_at: now,
            usage,
            error,
            calls: Vec::new(),
            calls_ended_at: None,
        };
        match reply {
            None => run.cancel(),
            Some(Err(error)) => {
                let error = RunError::from(&error);
                run.record_request(request(Usage::default(), Some(error.clone())));
                run.fail(error);
            }
            Some(Ok(reply)) => {
                let usage = reply.usage;
                let message = run.apply_reply(reply, || CallId::mint(now));
                run.record_request(request(usage, None));
                self.emit_message(message.as_ref());
                return Ok(message.into_iter().collect());
            }
        }
        Ok(Vec::new())
    }

    /// The tools that are available now. Logs a summary of them for each step.
    async fn offer(&self) -> Result<Offer, CallError> {
        let ThreadKey { tenant, thread } = &self.thread_key;
        let options = OfferOptions { toolset: self.plan.toolset.clone(), language: self.language };
        if !tracing::enabled!(tracing::Level::INFO) {
            return self.hub.offer_with(tenant, thread, &options).await;
        }
        let (offer, summary) = self.hub.offer_and_summary(tenant, thread, &options).await?;
        tracing::info!(%thread, %summary, "tools offered for this step");
        Ok(offer)
    }

    /// The model's reply to the conversation, with exactly the tools of the offer.
    async fn request_reply(&self, offer: &Offer, tail: &[SizedMessage], may_call: bool) -> Result<Reply, ModelError> {
        let Self { hub, thread_key, plan, .. } = self;
        let tools = offer.export(plan.model.format());
        let system = self.system_prompt();
        let overhead: u64 =
            estimate_tokens(&system) + tools.iter().map(|tool| estimate_tokens(&tool.to_string())).sum::<u64>();
        // An eighth is reserved for the reply.
        let budget = (plan.context_window - plan.context_window / 8).saturating_sub(overhead);
        let messages = select_messages(tail, trim_point(tail.last().map_or(0, |last| last.tokens_so_far), budget));
        let (run_id, now) = (self.checkout.open_run.run.id, hub.now());
        let remaining = self.checkout.open_run.run.deadline().map(|deadline| deadline.since(now));
        let (event_hub, event_thread) = (hub.clone(), thread_key.clone());
        let sink = move |part: StreamPart<'_>| {
            let (text, again) = match part {
                StreamPart::Text(text) => (text.to_owned(), false),
                StreamPart::Restart => (String::new(), true),
            };
            let delta = EventKind::MessageDelta { run_id, text, again };
            event_hub.publish(&event_thread.tenant, &event_thread.thread, delta);
        };
        let timeout = remaining.map_or(plan.request_timeout, |remaining| remaining.min(plan.request_timeout));
        let prompt = Prompt {
            system: &system,
            messages: &messages,
            tools: &tools,
            may_call,
            stream: hub.has_subscribers(EventClass::Messages),
            timeout,
            trace: self.checkout.open_run.trace.as_ref(),
        };
        let started_at = tokio::time::Instant::now();
        // The model may be third-party code: a panic or a hang must not leave the run open.
        let request = AssertUnwindSafe(async { plan.model.ask(prompt, &sink).await }).catch_unwind();
        let reply = match tokio::time::timeout(timeout.saturating_add(MODEL_TIMEOUT_GRACE), request).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Err(ModelError::new(ModelFault::Failed, "the model client panicked")),
            Err(_) => Err(ModelError::new(ModelFault::Timeout, format!("the model did not answer within {timeout:?}"))),
        };
        self.meters.record_request(plan.model.name(), started_at.elapsed(), &reply);
        reply
    }

    fn system_prompt(&self) -> String {
        let snapshot = self.hub.tools();
        let tools = snapshot.list(&Default::default());
        let rules =
            dependency_prompt::render(tools.iter().filter(|tool| self.plan.toolset.contains(&tool.definition.name)));
        let parts = [self.plan.system_prompt.as_str(), rules.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    }

    /// Makes the calls of the step, and applies their results; `None` if the hub shuts down, which leaves the calls to
    /// the next start.
    async fn execute_calls(&mut self) -> Result<Option<Vec<Message>>, StoreError> {
        let cancel = self.cancel.child_token();
        let remaining = self.checkout.open_run.run.deadline().map(|deadline| deadline.since(self.hub.now()));
        let (results, in_time) = {
            let step = step_calls::Step {
                hub: &self.hub,
                thread_key: &self.thread_key,
                plan: &self.plan,
                open_run: &self.checkout.open_run,
                resumed: self.resumed,
                record_tx: &self.record_tx,
            };
            let executing = step_calls::execute_calls(step, &cancel);
            tokio::pin!(executing);
            tokio::select! {
                biased;
                results = &mut executing => (results?, true),
                () = wait_for_deadline(remaining) => {
                    cancel.cancel();
                    (executing.await?, false)
                }
            }
        };
        if self.hub.is_shutting_down() && !self.cancel.is_cancelled() {
            return Ok(None);
        }
        let now = self.hub.now();
        let run = &mut self.checkout.open_run.run;
        run.record_calls_ended(now);
        let messages = run.apply_results(results).map(Vec::from).unwrap_or_default();
        if self.cancel.is_cancelled() {
            run.cancel();
        }
        if !in_time {
            run.exceed_time_budget();
        }
        Ok(Some(messages))
    }

    fn emit(&self, event: EventKind) {
        self.hub.publish(&self.thread_key.tenant, &self.thread_key.thread, event);
    }

    fn emit_message(&self, message: Option<&Message>) {
        let run_id = self.checkout.open_run.run.id;
        if let Some(Message::Assistant { content, .. }) = message {
            self.emit(EventKind::MessageCompleted {
                run_id,
                role: "assistant".into(),
                content: content.clone(),
                calls: Vec::new(),
            });
        }
    }

    /// Emits the end of the run. Must come after the drive permit is released, because a subscriber may start the next
    /// run.
    pub(crate) fn emit_end(&self, record: &RunRecord) {
        let (run_id, steps) = (record.id, record.steps);
        self.emit(match &record.error {
            Some(RunError { code, message }) => {
                EventKind::RunFailed { run_id, steps, code: code.clone(), message: message.clone() }
            }
            None => {
                let stop = record.stop.map(|stop| SmolStr::new_static(stop.as_str()));
                EventKind::RunCompleted { run_id, steps, status: record.status.as_str().into(), stop }
            }
        });
    }
}

/// Sleeps for this time; forever without one.
async fn wait_for_deadline(remaining: Option<Duration>) {
    match remaining {
        Some(remaining) => tokio::time::sleep(remaining).await,
        None => std::future::pending().await,
    }
}

fn to_store_error(error: CallError) -> StoreError {
    StoreError::Unavailable(error.operator)
}
