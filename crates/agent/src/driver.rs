//! Does what a run asks for, step by step, and writes each step down before the next begins.
//!
//! In: a run that is held, and what its agent is. Out: the run's end, told to whoever waits. If the process dies anywhere in here, the
//! rows say where to go on: the model is asked again, calls that had begun are looked up by their ids, and only those that had
//! not are made. `calls.rs` makes them.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use smol_str::SmolStr;
use tokio::sync::watch;
use toolhub_core::{
    CallError, CancellationToken, Offer, ToolHub,
    backend::StoreError,
    events::EventKind,
    ids::{CallId, ThreadKey},
    status::Language,
};

use crate::{
    dependency_prompt,
    message::Message,
    meters::Meters,
    model::{ModelError, ModelFault, Prompt, Reply, StreamPart},
    plan::AgentPlan,
    record::{RunRecord, RunStatus},
    run::{NextAction, RunError},
    run_store::{RunCheckout, RunStore},
    step_calls,
    window::{SizedMessage, estimate_tokens, message_tokens, select_messages, trim_point},
};

/// How long a store that fails is left alone, and how many times that is doubled while it goes on failing.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_BACKOFF_DOUBLINGS: u32 = 5;
/// How much longer than it may a model is waited for: one that keeps its time says better why it did not answer.
const MODEL_TIMEOUT_GRACE: Duration = Duration::from_secs(1);

/// Drives one run.
pub(crate) struct Driver {
    pub(crate) hub: ToolHub,
    pub(crate) run_store: RunStore,
    pub(crate) meters: Arc<Meters>,
    pub(crate) thread_key: ThreadKey,
    pub(crate) plan: Arc<AgentPlan>,
    pub(crate) checkout: RunCheckout,
    /// Whether the run was begun before this driver was.
    pub(crate) resumed: bool,
    pub(crate) language: Language,
    pub(crate) record_tx: watch::Sender<RunRecord>,
    pub(crate) cancel: CancellationToken,
    /// The tools that were offered last.
    pub(crate) last_offer: Option<Offer>,
    /// How often the store has failed since a step was written down.
    pub(crate) failures: u32,
    /// Why the run can only end: what it would need cannot be read, or not be written, however often that is tried.
    pub(crate) fatal_error: Option<RunError>,
}

/// How a run is found that could not go on.
enum ReloadResult {
    /// As it was, or as this driver has left it.
    Owned,
    /// It is over.
    Ended(Box<RunRecord>),
    /// It is not for this driver any more.
    NotOwned,
}

impl Driver {
    /// Drives the run to its end, for as long as that takes. Answers with how it ended; with nothing where it is left as it is written
    /// down, because somebody else goes on with it, it cannot be read, or the hub goes down.
    pub(crate) async fn drive(&mut self) -> Option<RunRecord> {
        let run_id = self.checkout.open_run.run.id;
        self.emit(EventKind::RunStarted { run_id, agent: self.checkout.open_run.agent.clone() });
        loop {
            let error = match self.run_steps().await {
                Ok(end) => return end,
                Err(error) => error,
            };
            tracing::warn!(%run_id, %error, "a step of the run went wrong; it is looked at again");
            if matches!(error, StoreError::Refused(_) | StoreError::Damaged { .. }) {
                if self.fatal_error.is_some() {
                    return None;
                }
                self.fatal_error = Some(RunError::new("store_unavailable", error.to_string()));
            }
            match self.reload_run(&error).await {
                ReloadResult::Owned => self.resumed = true,
                ReloadResult::Ended(record) => return Some(*record),
                ReloadResult::NotOwned => {
                    tracing::warn!(%run_id, "the run cannot go on here; it stays as it is written down");
                    return None;
                }
            }
        }
    }

    /// Reads the run again after an error. Nothing is done before that has succeeded: whether the last step was written down is
    /// known to the store alone, and what is in memory may be ahead of it.
    async fn reload_run(&mut self, error: &StoreError) -> ReloadResult {
        if !matches!(error, StoreError::Conflict { .. } | StoreError::Fenced { .. }) {
            self.back_off().await;
        }
        loop {
            match self.run_store.checkout(&self.thread_key, self.hub.now()).await {
                Ok(Some(held)) if self.checkout.may_continue_from(&held) => {
                    self.checkout.continue_from(held);
                    return ReloadResult::Owned;
                }
                Ok(Some(_)) | Err(StoreError::Damaged { .. }) => return ReloadResult::NotOwned,
                Ok(None) => return ReloadResult::Ended(Box::new(self.load_ended_record().await)),
                Err(_) => self.back_off().await,
            }
        }
    }

    /// Leaves the store alone for a while: the longer it fails, the longer.
    async fn back_off(&mut self) {
        tokio::time::sleep(STORE_RETRY_DELAY * 2u32.pow(self.failures.min(MAX_BACKOFF_DOUBLINGS))).await;
        self.failures += 1;
    }

    /// The end of a run that is not open any more: what is written down, or that it was taken away with its thread.
    async fn load_ended_record(&mut self) -> RunRecord {
        let run = self.checkout.open_run.run.id;
        loop {
            let now = self.hub.now();
            match self.run_store.run(&self.thread_key.tenant, run, now).await {
                Ok(Some(record)) => return record,
                Ok(None) | Err(StoreError::Damaged { .. }) => {
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

    /// Goes from step to step, with the conversation as it is written down. Answers with nothing where the hub goes down.
    async fn run_steps(&mut self) -> Result<Option<RunRecord>, StoreError> {
        // Read when the model is to be told of it: a run can be brought to its end without.
        let mut tail: Option<Vec<SizedMessage>> = None;
        loop {
            let said: Vec<Message> = match self.checkout.open_run.run.next_action() {
                NextAction::AskModel { .. } | NextAction::ExecuteCalls(_) if self.fatal_error.is_some() => {
                    self.give_up()
                }
                NextAction::AskModel { may_call } => self.ask(&mut tail, may_call).await?,
                NextAction::ExecuteCalls(_) => match self.execute_calls().await? {
                    Some(said) => said,
                    None => return Ok(None),
                },
                NextAction::Finished(_) => {
                    return Ok(Some(self.checkout.open_run.record(&self.thread_key.thread, self.hub.now())));
                }
            };
            let record =
                self.run_store.commit_step(&self.thread_key, &mut self.checkout, &said, self.hub.now()).await?;
            if let Some(tail) = &mut tail {
                for message in said {
                    let upto = tail.last().map_or(0, |last| last.tokens_so_far) + message_tokens(&message);
                    tail.push(SizedMessage { message, tokens_so_far: upto });
                }
            }
            if record.status.is_end() {
                return Ok(Some(record));
            }
            (self.resumed, self.failures) = (false, 0);
            self.record_tx.send_replace(record);
        }
    }

    /// Ends a run that cannot go on. Calls it had begun have results like all others.
    fn give_up(&mut self) -> Vec<Message> {
        let run = &mut self.checkout.open_run.run;
        let mut said = Vec::new();
        if let NextAction::ExecuteCalls(planned) = run.next_action() {
            let ends = planned.iter().map(step_calls::lost_result).collect();
            said = run.apply_results(ends).map(Vec::from).unwrap_or_default();
        }
        if let Some(error) = self.fatal_error.clone() {
            run.fail(error);
        }
        said
    }

    /// Asks the model, and takes its answer in.
    async fn ask(&mut self, tail: &mut Option<Vec<SizedMessage>>, may_call: bool) -> Result<Vec<Message>, StoreError> {
        let now = self.hub.now();
        let RunCheckout { open_run: open, .. } = &mut self.checkout;
        if self.cancel.is_cancelled() {
            open.run.cancel();
        }
        open.run.enforce_bounds(now);
        if self.plan.is_removed {
            open.run.fail(RunError::new("no_such_agent", format!("there is no agent `{}` any more", open.agent)));
        }
        if let NextAction::Finished(_) = open.run.next_action() {
            return Ok(Vec::new());
        }
        let tail = match tail {
            Some(tail) => tail,
            None => tail.insert(self.run_store.tail(&self.thread_key, self.plan.context_window, now).await?),
        };
        let offer = self.offer().await.map_err(to_store_error)?;
        let reply = tokio::select! {
            biased;
            () = self.cancel.cancelled() => None,
            reply = self.request_reply(&offer, tail, may_call) => Some(reply),
        };
        // Held until the next step, so that listeners are told when it should be another.
        self.last_offer = Some(offer);
        let now = self.hub.now();
        let run = &mut self.checkout.open_run.run;
        match reply {
            None => run.cancel(),
            Some(Err(error)) => run.fail(to_run_error(&error)),
            Some(Ok(reply)) => {
                let said = run.apply_reply(reply, || CallId::mint(now));
                self.emit_message(said.as_ref());
                return Ok(said.into_iter().collect());
            }
        }
        Ok(Vec::new())
    }

    /// The tools that may be used now. The log has a line about them for each step.
    async fn offer(&self) -> Result<Offer, CallError> {
        let (ThreadKey { tenant, thread }, toolset) = (&self.thread_key, &self.plan.toolset);
        if !tracing::enabled!(tracing::Level::INFO) {
            return self.hub.offer_of(tenant, thread, toolset).await;
        }
        let (offer, line) = self.hub.offer_and_summary(tenant, thread, toolset, self.language).await?;
        tracing::info!(%thread, "{line}");
        Ok(offer)
    }

    /// What the model answers to the conversation, with exactly the tools that may be used now.
    async fn request_reply(&self, offer: &Offer, tail: &[SizedMessage], may_call: bool) -> Result<Reply, ModelError> {
        let Self { hub, thread_key, plan, .. } = self;
        let tools = offer.export(plan.model.format());
        let system = self.system_prompt();
        let around: u64 =
            estimate_tokens(&system) + tools.iter().map(|tool| estimate_tokens(&tool.to_string())).sum::<u64>();
        // An eighth is for the answer.
        let room = (plan.context_window - plan.context_window / 8).saturating_sub(around);
        let messages = select_messages(tail, trim_point(tail.last().map_or(0, |last| last.tokens_so_far), room));
        let (run_id, now) = (self.checkout.open_run.run.id, hub.now());
        let left = self.checkout.open_run.run.deadline().map(|until| until.since(now));
        let (to, whose) = (hub.clone(), thread_key.clone());
        let hear = move |piece: StreamPart<'_>| {
            let (text, again) = match piece {
                StreamPart::Text(text) => (text.to_owned(), false),
                StreamPart::Restart => (String::new(), true),
            };
            to.publish(&whose.tenant, &whose.thread, EventKind::MessageDelta { run_id, text, again });
        };
        let time = left.map_or(plan.request_timeout, |left| left.min(plan.request_timeout));
        let prompt = Prompt {
            system: &system,
            messages: &messages,
            tools: &tools,
            may_call,
            stream: hub.has_subscribers(),
            timeout: time,
            trace: self.checkout.open_run.trace.as_ref(),
        };
        let begun = tokio::time::Instant::now();
        // It may be anybody's: whatever it does, the run has an end.
        let asking = AssertUnwindSafe(async { plan.model.ask(prompt, &hear).await }).catch_unwind();
        let reply = match tokio::time::timeout(time.saturating_add(MODEL_TIMEOUT_GRACE), asking).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Err(ModelError::new(ModelFault::Failed, "the client of the model fell over")),
            Err(_) => Err(ModelError::new(ModelFault::Timeout, format!("the model did not answer within {time:?}"))),
        };
        self.meters.record_request(plan.model.name(), begun.elapsed(), &reply);
        reply
    }

    fn system_prompt(&self) -> String {
        let all = self.hub.tools();
        let tools = all.list(&Default::default());
        let rules =
            dependency_prompt::render(tools.iter().filter(|tool| self.plan.toolset.contains(&tool.definition.name)));
        let parts = [self.plan.system_prompt.as_str(), rules.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    }

    /// Makes the calls of the step, and takes in what came of them; nothing where the hub goes down, and leaves them to the next
    /// start.
    async fn execute_calls(&mut self) -> Result<Option<Vec<Message>>, StoreError> {
        let unwanted = self.cancel.child_token();
        let left = self.checkout.open_run.run.deadline().map(|until| until.since(self.hub.now()));
        let (ends, in_time) = {
            let step = step_calls::Step {
                hub: &self.hub,
                thread_key: &self.thread_key,
                plan: &self.plan,
                open_run: &self.checkout.open_run,
                resumed: self.resumed,
                record_tx: &self.record_tx,
            };
            let making = step_calls::execute_calls(step, &unwanted);
            tokio::pin!(making);
            tokio::select! {
                biased;
                ends = &mut making => (ends?, true),
                () = wait_for_deadline(left) => {
                    unwanted.cancel();
                    (making.await?, false)
                }
            }
        };
        if self.hub.is_shutting_down() && !self.cancel.is_cancelled() {
            return Ok(None);
        }
        let run = &mut self.checkout.open_run.run;
        let said = run.apply_results(ends).map(Vec::from).unwrap_or_default();
        if self.cancel.is_cancelled() {
            run.cancel();
        }
        if !in_time {
            run.exceed_time_budget();
        }
        Ok(Some(said))
    }

    fn emit(&self, news: EventKind) {
        self.hub.publish(&self.thread_key.tenant, &self.thread_key.thread, news);
    }

    fn emit_message(&self, said: Option<&Message>) {
        let run_id = self.checkout.open_run.run.id;
        if let Some(Message::Assistant { content, .. }) = said {
            self.emit(EventKind::MessageCompleted {
                run_id,
                role: "assistant".into(),
                content: content.clone(),
                calls: Vec::new(),
            });
        }
    }

    /// Tells listeners that the run is over. Whoever hears of it may begin the next one.
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

/// Waits for so long; for ever where there is no bound.
async fn wait_for_deadline(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}

fn to_store_error(error: CallError) -> StoreError {
    StoreError::Unavailable(error.operator)
}

fn to_run_error(error: &ModelError) -> RunError {
    let code = match error.fault {
        ModelFault::Unreachable => "model_unreachable",
        ModelFault::Timeout => "model_timeout",
        ModelFault::RateLimited => "model_rate_limited",
        ModelFault::Refused => "model_refused",
        ModelFault::Failed => "model_failed",
        ModelFault::Broken => "model_broken",
    };
    RunError::new(code, error.message.clone())
}
