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
    events::News,
    ids::{CallId, ThreadKey},
    status::Language,
};

use crate::{
    calls,
    message::Message,
    meters::Meters,
    model::{Heard, ModelError, ModelFault, Prompt, Reply},
    plan::AgentPlan,
    record::{RunRecord, RunStatus},
    rules,
    run::{RunError, Todo},
    run_store::{Held, RunStore},
    window::{Measured, left_out, size, tokens, told},
};

/// How long a store that fails is left alone, and how many times that is doubled while it goes on failing.
const REST: Duration = Duration::from_secs(1);
const DOUBLED: u32 = 5;
/// How much longer than it may a model is waited for: one that keeps its time says better why it did not answer.
const GRACE: Duration = Duration::from_secs(1);

/// Drives one run.
pub(crate) struct Driver {
    pub(crate) hub: ToolHub,
    pub(crate) run_store: RunStore,
    pub(crate) meters: Arc<Meters>,
    pub(crate) thread_key: ThreadKey,
    pub(crate) plan: Arc<AgentPlan>,
    pub(crate) held: Held,
    /// Whether the run was begun before this driver was.
    pub(crate) resumed: bool,
    pub(crate) language: Language,
    pub(crate) told: watch::Sender<RunRecord>,
    pub(crate) cancel: CancellationToken,
    /// The tools that were offered last.
    pub(crate) offer: Option<Offer>,
    /// How often the store has failed since a step was written down.
    pub(crate) failures: u32,
    /// Why the run can only end: what it would need cannot be read, or not be written, however often that is tried.
    pub(crate) hopeless: Option<RunError>,
}

/// How a run is found that could not go on.
enum Found {
    /// As it was, or as this driver has left it.
    Here,
    /// It is over.
    Over(Box<RunRecord>),
    /// It is not for this driver any more.
    Elsewhere,
}

impl Driver {
    /// Drives the run to its end, for as long as that takes. Answers with how it ended; with nothing where it is left as it is written
    /// down, because somebody else goes on with it, it cannot be read, or the hub goes down.
    pub(crate) async fn drive(&mut self) -> Option<RunRecord> {
        let run_id = self.held.open.run.id;
        self.tell(News::RunStarted { run_id, agent: self.held.open.agent.clone() });
        loop {
            let error = match self.steps().await {
                Ok(end) => return end,
                Err(error) => error,
            };
            tracing::warn!(%run_id, %error, "a step of the run went wrong; it is looked at again");
            if matches!(error, StoreError::Refused(_) | StoreError::Damaged { .. }) {
                if self.hopeless.is_some() {
                    return None;
                }
                self.hopeless = Some(RunError::new("store_unavailable", error.to_string()));
            }
            match self.look_again(&error).await {
                Found::Here => self.resumed = true,
                Found::Over(record) => return Some(*record),
                Found::Elsewhere => {
                    tracing::warn!(%run_id, "the run cannot go on here; it stays as it is written down");
                    return None;
                }
            }
        }
    }

    /// Reads the run again after an error. Nothing is done before that has succeeded: whether the last step was written down is
    /// known to the store alone, and what is in memory may be ahead of it.
    async fn look_again(&mut self, error: &StoreError) -> Found {
        if !matches!(error, StoreError::Conflict { .. } | StoreError::Fenced { .. }) {
            self.rest().await;
        }
        loop {
            match self.run_store.held(&self.thread_key, self.hub.now()).await {
                Ok(Some(held)) if self.held.is_before(&held) => {
                    self.held.follow(held);
                    return Found::Here;
                }
                Ok(Some(_)) | Err(StoreError::Damaged { .. }) => return Found::Elsewhere,
                Ok(None) => return Found::Over(Box::new(self.gone().await)),
                Err(_) => self.rest().await,
            }
        }
    }

    /// Leaves the store alone for a while: the longer it fails, the longer.
    async fn rest(&mut self) {
        tokio::time::sleep(REST * 2u32.pow(self.failures.min(DOUBLED))).await;
        self.failures += 1;
    }

    /// The end of a run that is not open any more: what is written down, or that it was taken away with its thread.
    async fn gone(&mut self) -> RunRecord {
        let run = self.held.open.run.id;
        loop {
            let now = self.hub.now();
            match self.run_store.run(&self.thread_key.tenant, run, now).await {
                Ok(Some(record)) => return record,
                Ok(None) | Err(StoreError::Damaged { .. }) => {
                    return RunRecord {
                        status: RunStatus::Cancelled,
                        ended_at: Some(now),
                        ..self.told.borrow().clone()
                    };
                }
                Err(_) => self.rest().await,
            }
        }
    }

    /// Goes from step to step, with the conversation as it is written down. Answers with nothing where the hub goes down.
    async fn steps(&mut self) -> Result<Option<RunRecord>, StoreError> {
        // Read when the model is to be told of it: a run can be brought to its end without.
        let mut tail: Option<Vec<Measured>> = None;
        loop {
            let said: Vec<Message> = match self.held.open.run.todo() {
                Todo::Ask { .. } | Todo::Call(_) if self.hopeless.is_some() => self.give_up(),
                Todo::Ask { may_call } => self.ask(&mut tail, may_call).await?,
                Todo::Call(_) => match self.call().await? {
                    Some(said) => said,
                    None => return Ok(None),
                },
                Todo::Nothing(_) => {
                    return Ok(Some(self.held.open.record(&self.thread_key.thread, self.hub.now())));
                }
            };
            let record = self.run_store.go_on(&self.thread_key, &mut self.held, &said, self.hub.now()).await?;
            if let Some(tail) = &mut tail {
                for message in said {
                    let upto = tail.last().map_or(0, |last| last.upto) + size(&message);
                    tail.push(Measured { message, upto });
                }
            }
            if record.status.is_end() {
                return Ok(Some(record));
            }
            (self.resumed, self.failures) = (false, 0);
            self.told.send_replace(record);
        }
    }

    /// Ends a run that cannot go on. Calls it had begun have results like all others.
    fn give_up(&mut self) -> Vec<Message> {
        let run = &mut self.held.open.run;
        let mut said = Vec::new();
        if let Todo::Call(planned) = run.todo() {
            let ends = planned.iter().map(calls::lost).collect();
            said = run.called(ends).map(Vec::from).unwrap_or_default();
        }
        if let Some(error) = self.hopeless.clone() {
            run.fail(error);
        }
        said
    }

    /// Asks the model, and takes its answer in.
    async fn ask(&mut self, tail: &mut Option<Vec<Measured>>, may_call: bool) -> Result<Vec<Message>, StoreError> {
        let now = self.hub.now();
        let Held { open, .. } = &mut self.held;
        if self.cancel.is_cancelled() {
            open.run.cancel();
        }
        open.run.look_at_bounds(now);
        if self.plan.gone {
            open.run.fail(RunError::new("no_such_agent", format!("there is no agent `{}` any more", open.agent)));
        }
        if let Todo::Nothing(_) = open.run.todo() {
            return Ok(Vec::new());
        }
        let tail = match tail {
            Some(tail) => tail,
            None => tail.insert(self.run_store.tail(&self.thread_key, self.plan.context_window, now).await?),
        };
        let offer = self.offer().await.map_err(unavailable)?;
        let reply = tokio::select! {
            biased;
            () = self.cancel.cancelled() => None,
            reply = self.reply(&offer, tail, may_call) => Some(reply),
        };
        // Held until the next step, so that listeners are told when it should be another.
        self.offer = Some(offer);
        let now = self.hub.now();
        let run = &mut self.held.open.run;
        match reply {
            None => run.cancel(),
            Some(Err(error)) => run.fail(failed(&error)),
            Some(Ok(reply)) => {
                let said = run.answered(reply, || CallId::mint(now));
                self.tell_said(said.as_ref());
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
    async fn reply(&self, offer: &Offer, tail: &[Measured], may_call: bool) -> Result<Reply, ModelError> {
        let Self { hub, thread_key, plan, .. } = self;
        let tools = offer.export(plan.model.format());
        let system = self.system();
        let around: u64 = tokens(&system) + tools.iter().map(|tool| tokens(&tool.to_string())).sum::<u64>();
        // An eighth is for the answer.
        let room = (plan.context_window - plan.context_window / 8).saturating_sub(around);
        let messages = told(tail, left_out(tail.last().map_or(0, |last| last.upto), room));
        let (run_id, now) = (self.held.open.run.id, hub.now());
        let left = self.held.open.run.until().map(|until| until.since(now));
        let (to, whose) = (hub.clone(), thread_key.clone());
        let hear = move |piece: Heard<'_>| {
            let (text, again) = match piece {
                Heard::Text(text) => (text.to_owned(), false),
                Heard::Again => (String::new(), true),
            };
            to.announce(&whose.tenant, &whose.thread, News::MessageDelta { run_id, text, again });
        };
        let time = left.map_or(plan.request_time, |left| left.min(plan.request_time));
        let prompt = Prompt {
            system: &system,
            messages: &messages,
            tools: &tools,
            may_call,
            stream: hub.is_heard(),
            time,
            trace: self.held.open.trace.as_ref(),
        };
        let begun = tokio::time::Instant::now();
        // It may be anybody's: whatever it does, the run has an end.
        let asking = AssertUnwindSafe(async { plan.model.ask(prompt, &hear).await }).catch_unwind();
        let reply = match tokio::time::timeout(time.saturating_add(GRACE), asking).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(_)) => Err(ModelError::new(ModelFault::Failed, "the client of the model fell over")),
            Err(_) => Err(ModelError::new(ModelFault::Timeout, format!("the model did not answer within {time:?}"))),
        };
        self.meters.asked(plan.model.name(), begun.elapsed(), &reply);
        reply
    }

    fn system(&self) -> String {
        let all = self.hub.tools();
        let tools = all.list(&Default::default());
        let rules = rules::text(tools.iter().filter(|tool| self.plan.toolset.has(&tool.definition.name)));
        let parts = [self.plan.system_prompt.as_str(), rules.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    }

    /// Makes the calls of the step, and takes in what came of them; nothing where the hub goes down, and leaves them to the next
    /// start.
    async fn call(&mut self) -> Result<Option<Vec<Message>>, StoreError> {
        let unwanted = self.cancel.child_token();
        let left = self.held.open.run.until().map(|until| until.since(self.hub.now()));
        let (ends, in_time) = {
            let step = calls::Step {
                hub: &self.hub,
                thread_key: &self.thread_key,
                plan: &self.plan,
                open: &self.held.open,
                resumed: self.resumed,
                told: &self.told,
            };
            let making = calls::make(step, &unwanted);
            tokio::pin!(making);
            tokio::select! {
                biased;
                ends = &mut making => (ends?, true),
                () = time_is_up(left) => {
                    unwanted.cancel();
                    (making.await?, false)
                }
            }
        };
        if self.hub.is_leaving() && !self.cancel.is_cancelled() {
            return Ok(None);
        }
        let run = &mut self.held.open.run;
        let said = run.called(ends).map(Vec::from).unwrap_or_default();
        if self.cancel.is_cancelled() {
            run.cancel();
        }
        if !in_time {
            run.time_is_up();
        }
        Ok(Some(said))
    }

    fn tell(&self, news: News) {
        self.hub.announce(&self.thread_key.tenant, &self.thread_key.thread, news);
    }

    fn tell_said(&self, said: Option<&Message>) {
        let run_id = self.held.open.run.id;
        if let Some(Message::Assistant { content, .. }) = said {
            self.tell(News::MessageCompleted {
                run_id,
                role: "assistant".into(),
                content: content.clone(),
                calls: Vec::new(),
            });
        }
    }

    /// Tells listeners that the run is over. Whoever hears of it may begin the next one.
    pub(crate) fn tell_end(&self, record: &RunRecord) {
        let (run_id, steps) = (record.id, record.steps);
        self.tell(match &record.error {
            Some(RunError { code, message }) => {
                News::RunFailed { run_id, steps, code: code.clone(), message: message.clone() }
            }
            None => {
                let stop = record.stop.map(|stop| SmolStr::new_static(stop.as_str()));
                News::RunCompleted { run_id, steps, status: record.status.as_str().into(), stop }
            }
        });
    }
}

/// Waits for so long; for ever where there is no bound.
async fn time_is_up(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}

fn unavailable(error: CallError) -> StoreError {
    StoreError::Unavailable(error.operator)
}

fn failed(error: &ModelError) -> RunError {
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
