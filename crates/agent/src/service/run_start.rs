//! How a run begins, or goes on: who may drive it, and who is told that somebody does.
//!
//! In: what a user says, or a thread with an open run. Out: a handle of a run that is driven on a task of its own, or why there is
//! none. A message that is being written down is followed to its end, whoever waits for it.

use std::sync::Arc;

use smol_str::SmolStr;
use tokio::{sync::watch, time::Instant};
use toolhub_core::{
    CancellationToken,
    backend::StoreError,
    ids::{RunId, ThreadKey},
};

use super::{
    AgentError, AgentService, CONTENTION_DELAY, Inner, RunHandle, THREAD_AGENT, lock, removed_agent::removed_agent_plan,
};
use crate::{
    active_runs::{ActiveRun, DrivePermit},
    driver::Driver,
    message::UserMessage,
    plan::AgentPlan,
    run::Run,
    run_store::{BeginResult, ClaimMatch, NewRun, OpenRun, RunCheckout},
};

impl AgentService {
    /// Begins the run of a message. The signal cancels it.
    pub(crate) async fn begin(
        &self,
        thread_key: &ThreadKey,
        said: UserMessage,
        cancel: CancellationToken,
    ) -> Result<RunHandle, AgentError> {
        if self.0.stopping.is_cancelled() || self.0.hub.is_shutting_down() {
            return Err(AgentError::Stopping);
        }
        if said.content.trim().is_empty() {
            return Err(AgentError::Empty);
        }
        let (agent, plan) = match self.resolve_plan(thread_key, said.agent.as_ref()).await {
            Ok(found) => found,
            // What was answered once is answered again, whoever is still there.
            Err(refused) => return self.replay(thread_key, &said).await?.ok_or(refused),
        };
        self.0.hub.touch_thread(&thread_key.tenant, &thread_key.thread).await?;
        let place = loop {
            match self.0.active_runs.try_acquire(thread_key) {
                Some(place) => break place,
                None => match self.replay_or_busy(thread_key, &said).await? {
                    Some(handle) => return Ok(handle),
                    // Whoever has the place is only just beginning, or has only just ended.
                    None => tokio::time::sleep(CONTENTION_DELAY).await,
                },
            }
        };
        // On a task of its own: the store may write although nobody waits any more, and then somebody must drive the run.
        let (service, thread_key) = (self.clone(), thread_key.clone());
        let opened =
            self.0.tasks.spawn(async move { service.start_run(place, thread_key, (agent, plan), said, cancel).await });
        opened.await.unwrap_or(Err(AgentError::Stopping))
    }

    /// Writes a message down, and drives the run it begins.
    async fn start_run(
        &self,
        place: DrivePermit,
        thread_key: ThreadKey,
        (agent, plan): (SmolStr, Arc<AgentPlan>),
        said: UserMessage,
        cancel: CancellationToken,
    ) -> Result<RunHandle, AgentError> {
        let Inner { hub, run_store, .. } = &*self.0;
        let now = hub.now();
        let run = Run::new(RunId::mint(now), now, plan.bounds(now));
        let open = OpenRun { run, agent, caller: said.caller.clone(), trace: said.trace.clone() };
        let opening = NewRun { message: &said, open_run: open };
        match run_store.begin(&thread_key, opening, now).await? {
            BeginResult::New(held) => Ok(self.spawn_driver(place, thread_key, plan, *held, false, cancel)),
            BeginResult::KeyReused => Err(AgentError::KeyReused),
            // Nobody drives them here: a dead process has left them open, if they are.
            BeginResult::Replayed(run) => {
                self.resume_open_run(place, &thread_key, CancellationToken::new()).await?;
                self.existing_run_handle(&thread_key, run).await
            }
            BeginResult::Busy(run) => {
                self.resume_open_run(place, &thread_key, CancellationToken::new()).await?;
                Err(AgentError::Busy(run))
            }
        }
    }

    /// Goes on with the run of a thread that a dead process has left open, if there is one and its agent may be known.
    pub(crate) async fn resume_thread(&self, thread_key: &ThreadKey) -> Result<bool, StoreError> {
        let Some(place) = self.0.active_runs.try_acquire(thread_key) else { return Ok(false) };
        let Some(held) = self.0.run_store.checkout(thread_key, self.0.hub.now()).await? else { return Ok(false) };
        if held.open_run.agent == THREAD_AGENT && self.thread_plan(thread_key).is_none() {
            // It will be set when its program comes to that.
            return Ok(false);
        }
        Ok(self.drive_resumed(place, thread_key, held, CancellationToken::new()))
    }

    /// Goes on with the open run of a thread, if there is one. If its agent is gone, it can only end.
    pub(super) async fn resume_open_run(
        &self,
        place: DrivePermit,
        thread_key: &ThreadKey,
        cancel: CancellationToken,
    ) -> Result<bool, StoreError> {
        let Some(held) = self.0.run_store.checkout(thread_key, self.0.hub.now()).await? else { return Ok(false) };
        Ok(self.drive_resumed(place, thread_key, held, cancel))
    }

    fn drive_resumed(
        &self,
        place: DrivePermit,
        thread_key: &ThreadKey,
        held: RunCheckout,
        cancel: CancellationToken,
    ) -> bool {
        if self.0.stopping.is_cancelled() {
            return false;
        }
        let named = lock(&self.0.agents).get(&held.open_run.agent).cloned();
        let plan = self.thread_plan(thread_key).filter(|_| held.open_run.agent == THREAD_AGENT).or(named);
        let plan = plan.unwrap_or_else(|| removed_agent_plan(&held.open_run.agent));
        self.spawn_driver(place, thread_key.clone(), plan, held, true, cancel);
        true
    }

    /// What to tell somebody who speaks while the place of the thread is taken; nothing where there is no run to be seen.
    async fn replay_or_busy(
        &self,
        thread_key: &ThreadKey,
        said: &UserMessage,
    ) -> Result<Option<RunHandle>, AgentError> {
        let Some(driven) = self.0.active_runs.get(thread_key) else { return Ok(None) };
        if let Some(handle) = self.replay(thread_key, said).await? {
            return Ok(Some(handle));
        }
        Err(AgentError::Busy(driven.run))
    }

    /// The run of a message that was said before with the same key.
    async fn replay(&self, thread_key: &ThreadKey, said: &UserMessage) -> Result<Option<RunHandle>, AgentError> {
        let Some(key) = &said.key else { return Ok(None) };
        match self.0.run_store.find_claim(thread_key, key, said, self.0.hub.now()).await? {
            Some(ClaimMatch::Same(run)) => self.existing_run_handle(thread_key, run).await.map(Some),
            Some(ClaimMatch::Other) => Err(AgentError::KeyReused),
            None => Ok(None),
        }
    }

    /// The run that the same message has begun before.
    async fn existing_run_handle(&self, thread_key: &ThreadKey, run: RunId) -> Result<RunHandle, AgentError> {
        if let Some(driven) = self.0.active_runs.get(thread_key).filter(|driven| driven.run == run) {
            return Ok(RunHandle { record_rx: driven.record_rx, replayed: true, cancel: None });
        }
        let record = self.0.run_store.run(&thread_key.tenant, run, self.0.hub.now()).await?;
        let gone = || StoreError::Unavailable(format!("the run {run} is not in the store any more"));
        let (_, told) = watch::channel(record.ok_or_else(gone)?);
        Ok(RunHandle { record_rx: told, replayed: true, cancel: None })
    }

    fn spawn_driver(
        &self,
        place: DrivePermit,
        thread_key: ThreadKey,
        plan: Arc<AgentPlan>,
        held: RunCheckout,
        resumed: bool,
        cancel: CancellationToken,
    ) -> RunHandle {
        let Inner { hub, run_store, meters, tasks, stopping, language, .. } = &*self.0;
        let record = held.open_run.record(&thread_key.thread, hub.now());
        let (run, agent) = (record.id, record.agent.clone());
        let (told, hears) = watch::channel(record);
        place.register(ActiveRun { run, record_rx: hears.clone(), cancel: cancel.clone() });
        let mut driver = Driver {
            hub: hub.clone(),
            run_store: run_store.clone(),
            meters: meters.clone(),
            thread_key,
            plan,
            checkout: held,
            resumed,
            language: *language,
            record_tx: told.clone(),
            cancel: cancel.clone(),
            last_offer: None,
            failures: 0,
            fatal_error: None,
        };
        let (hub, stopping, meters) = (hub.clone(), stopping.clone(), meters.clone());
        tasks.spawn(async move {
            let begun = Instant::now();
            let end = tokio::select! {
                biased;
                end = driver.drive() => end,
                () = stopping.cancelled() => None,
                () = hub.shutdown_requested() => None,
            };
            drop(place);
            if let Some(record) = end {
                driver.emit_end(&record);
                meters.record_run(&agent, begun.elapsed(), record.status, record.error.as_ref());
                told.send_replace(record);
            }
        });
        RunHandle { record_rx: hears, replayed: false, cancel: Some(cancel) }
    }
}
