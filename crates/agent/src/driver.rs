//! Does what a run asks for, step by step, and writes each step down before the next begins.
//!
//! In: a run that is held, and what its agent is. Out: the run's end, told to whoever waits. If the process dies anywhere in here, the
//! rows say where to go on: the model is asked again, calls that had begun are looked up by their ids, and only those that had
//! not are made. `calls.rs` makes them.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use toolhub_core::{
    CallError, CancellationToken, Offer, ToolHub, backend::StoreError, events::News, ids::CallId, status::Language,
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
    shelf::{Held, Owner, Shelf},
    window::{Measured, left_out, size, tokens, told},
};

/// How often a store that fails is asked again before the run is left as it is.
const TRIES: u32 = 5;
/// How long it is left alone in between.
const REST: Duration = Duration::from_secs(1);

/// Drives one run.
pub(crate) struct Driver {
    pub(crate) hub: ToolHub,
    pub(crate) shelf: Shelf,
    pub(crate) meters: Arc<Meters>,
    pub(crate) owner: Owner,
    pub(crate) plan: Arc<AgentPlan>,
    pub(crate) held: Held,
    /// Whether the run was begun before this driver was.
    pub(crate) resumed: bool,
    pub(crate) language: Language,
    pub(crate) told: watch::Sender<RunRecord>,
    pub(crate) cancel: CancellationToken,
    /// The tools that were offered last.
    pub(crate) offer: Option<Offer>,
}

impl Driver {
    /// Drives the run to its end. Answers with how it ended; with nothing where it could not go on here, because the store does
    /// not answer, somebody else goes on with it, or it was taken away. What is written down of it stays.
    pub(crate) async fn drive(&mut self) -> Option<RunRecord> {
        let run_id = self.held.open.run.id;
        self.tell(News::RunStarted { run_id, agent: self.held.open.agent.clone() });
        let mut tries = 0;
        loop {
            let error = match self.steps().await {
                Ok(record) => return Some(record),
                Err(error) => error,
            };
            tries += 1;
            if tries > TRIES {
                tracing::warn!(%run_id, %error, "the run cannot go on here; it stays as it is written down");
                return None;
            }
            let moved = matches!(error, StoreError::Conflict { .. } | StoreError::Fenced { .. });
            if !moved {
                tokio::time::sleep(REST).await;
            }
            // Whether the last step was written down is not known; the store knows.
            match self.shelf.held(&self.owner, self.hub.now()).await {
                Ok(Some(held)) if held.open.run.id == run_id && !moved => self.held = held,
                Ok(Some(_)) => {
                    tracing::warn!(%run_id, %error, "somebody else goes on with the run");
                    return None;
                }
                Ok(None) => return Some(self.gone().await),
                Err(_) => {}
            }
            self.resumed = true;
        }
    }

    /// The end of a run that is not open any more: what is written down, or that it was taken away with its thread.
    async fn gone(&self) -> RunRecord {
        let (run, now) = (self.held.open.run.id, self.hub.now());
        match self.shelf.run(&self.owner.tenant, run, now).await {
            Ok(Some(record)) => record,
            _ => RunRecord { status: RunStatus::Cancelled, ended_at: Some(now), ..self.told.borrow().clone() },
        }
    }

    /// Goes from step to step, with the conversation as it is written down.
    async fn steps(&mut self) -> Result<RunRecord, StoreError> {
        let mut tail = self.shelf.tail(&self.owner, self.plan.context_window, self.hub.now()).await?;
        loop {
            let said: Vec<Message> = match self.held.open.run.todo() {
                Todo::Ask { may_call } => self.ask(&tail, may_call).await?,
                Todo::Call(_) => self.call().await?,
                Todo::Nothing(_) => {
                    return Ok(RunRecord::of(
                        &self.held.open.run,
                        &self.owner.thread,
                        &self.held.open.agent,
                        self.hub.now(),
                    ));
                }
            };
            let record = self.shelf.go_on(&self.owner, &mut self.held, &said, self.hub.now()).await?;
            for message in said {
                let upto = tail.last().map_or(0, |last| last.upto) + size(&message);
                tail.push(Measured { message, upto });
            }
            if record.status.is_end() {
                return Ok(record);
            }
            self.resumed = false;
            self.told.send_replace(record);
        }
    }

    /// Asks the model, and takes its answer in.
    async fn ask(&mut self, tail: &[Measured], may_call: bool) -> Result<Vec<Message>, StoreError> {
        let now = self.hub.now();
        let run = &mut self.held.open.run;
        if self.cancel.is_cancelled() {
            run.cancel();
        }
        run.look_at_bounds(now);
        if let Todo::Nothing(_) = run.todo() {
            return Ok(Vec::new());
        }
        let Owner { tenant, thread } = &self.owner;
        let offer = self.hub.offer_of(tenant, thread, &self.plan.toolset).await.map_err(unavailable)?;
        let reply = tokio::select! {
            biased;
            () = self.cancel.cancelled() => None,
            reply = self.reply(&offer, tail, may_call) => Some(reply?),
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

    /// What the model answers to the conversation, with exactly the tools that may be used now.
    async fn reply(
        &self,
        offer: &Offer,
        tail: &[Measured],
        may_call: bool,
    ) -> Result<Result<Reply, ModelError>, StoreError> {
        let Self { hub, owner, plan, .. } = self;
        if tracing::enabled!(tracing::Level::INFO) {
            let line = hub.summary_of(&owner.tenant, &owner.thread, &plan.toolset, self.language).await;
            tracing::info!(thread = %owner.thread, "{}", line.map_err(unavailable)?);
        }
        let tools = offer.export(plan.model.format());
        let system = self.system();
        let around: u64 = tokens(&system) + tools.iter().map(|tool| tokens(&tool.to_string())).sum::<u64>();
        // An eighth is for the answer.
        let room = (plan.context_window - plan.context_window / 8).saturating_sub(around);
        let messages = told(tail, left_out(tail.last().map_or(0, |last| last.upto), room));
        let (run_id, now) = (self.held.open.run.id, hub.now());
        let left = self.held.open.run.until().map(|until| until.since(now));
        let (to, whose) = (hub.clone(), owner.clone());
        let hear = move |piece: Heard<'_>| {
            let (text, again) = match piece {
                Heard::Text(text) => (text.to_owned(), false),
                Heard::Again => (String::new(), true),
            };
            to.announce(&whose.tenant, &whose.thread, News::MessageDelta { run_id, text, again });
        };
        let prompt = Prompt {
            system: &system,
            messages: &messages,
            tools: &tools,
            may_call,
            stream: hub.is_heard(),
            time: left.map_or(plan.request_time, |left| left.min(plan.request_time)),
        };
        let begun = tokio::time::Instant::now();
        let reply = plan.model.ask(prompt, &hear).await;
        self.meters.asked(plan.model.name(), begun.elapsed(), &reply);
        Ok(reply)
    }

    fn system(&self) -> String {
        let all = self.hub.tools();
        let tools = all.list(&Default::default());
        let rules = rules::text(tools.iter().filter(|tool| self.plan.toolset.has(&tool.definition.name)));
        let parts = [self.plan.system_prompt.as_str(), rules.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    }

    /// Makes the calls of the step, and takes in what came of them.
    async fn call(&mut self) -> Result<Vec<Message>, StoreError> {
        let ends = calls::make(self).await?;
        let run = &mut self.held.open.run;
        let said = run.called(ends).map(Vec::from).unwrap_or_default();
        if self.cancel.is_cancelled() {
            run.cancel();
        }
        Ok(said)
    }

    /// A call of this step waits, for a person or for its result.
    pub(crate) fn waits(told: &watch::Sender<RunRecord>, change: impl FnOnce(&mut RunRecord)) {
        told.send_modify(|record| {
            record.status = RunStatus::Waiting;
            change(record);
        });
    }

    pub(crate) fn tell(&self, news: News) {
        self.hub.announce(&self.owner.tenant, &self.owner.thread, news);
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
            None => News::RunCompleted { run_id, steps, status: record.status.as_str().into() },
        });
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
