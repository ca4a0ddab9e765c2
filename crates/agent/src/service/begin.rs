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

use super::{A_MOMENT, AgentError, AgentService, Inner, OWN, RunHandle, lock, nobody::nobody};
use crate::{
    active_runs::{Driven, Place},
    driver::Driver,
    message::UserMessage,
    plan::AgentPlan,
    run::Run,
    run_store::{Begun, Claimed, Held, OpenRun, Opening},
};

impl AgentService {
    /// Begins the run of a message. The signal cancels it.
    pub(crate) async fn begin(
        &self,
        thread_key: &ThreadKey,
        said: UserMessage,
        cancel: CancellationToken,
    ) -> Result<RunHandle, AgentError> {
        if self.0.stopping.is_cancelled() || self.0.hub.is_leaving() {
            return Err(AgentError::Stopping);
        }
        if said.content.trim().is_empty() {
            return Err(AgentError::Empty);
        }
        let (agent, plan) = match self.plan(thread_key, said.agent.as_ref()).await {
            Ok(found) => found,
            // What was answered once is answered again, whoever is still there.
            Err(refused) => return self.replay(thread_key, &said).await?.ok_or(refused),
        };
        self.0.hub.use_thread(&thread_key.tenant, &thread_key.thread).await?;
        let place = loop {
            match self.0.active_runs.take(thread_key) {
                Some(place) => break place,
                None => match self.beside(thread_key, &said).await? {
                    Some(handle) => return Ok(handle),
                    // Whoever has the place is only just beginning, or has only just ended.
                    None => tokio::time::sleep(A_MOMENT).await,
                },
            }
        };
        // On a task of its own: the store may write although nobody waits any more, and then somebody must drive the run.
        let (service, thread_key) = (self.clone(), thread_key.clone());
        let opened =
            self.0.tasks.spawn(async move { service.open(place, thread_key, (agent, plan), said, cancel).await });
        opened.await.unwrap_or(Err(AgentError::Stopping))
    }

    /// Writes a message down, and drives the run it begins.
    async fn open(
        &self,
        place: Place,
        thread_key: ThreadKey,
        (agent, plan): (SmolStr, Arc<AgentPlan>),
        said: UserMessage,
        cancel: CancellationToken,
    ) -> Result<RunHandle, AgentError> {
        let Inner { hub, run_store, .. } = &*self.0;
        let now = hub.now();
        let run = Run::new(RunId::mint(now), now, plan.bounds(now));
        let open = OpenRun { run, agent, caller: said.caller.clone(), trace: said.trace.clone() };
        let opening = Opening { said: &said, open };
        match run_store.begin(&thread_key, opening, now).await? {
            Begun::New(held) => Ok(self.drive(place, thread_key, plan, *held, false, cancel)),
            Begun::KeyReused => Err(AgentError::KeyReused),
            // Nobody drives them here: a dead process has left them open, if they are.
            Begun::Again(run) => {
                self.go_on(place, &thread_key, CancellationToken::new()).await?;
                self.again(&thread_key, run).await
            }
            Begun::Busy(run) => {
                self.go_on(place, &thread_key, CancellationToken::new()).await?;
                Err(AgentError::Busy(run))
            }
        }
    }

    /// Goes on with the run of a thread that a dead process has left open, if there is one and its agent may be known.
    pub(crate) async fn go_on_with(&self, thread_key: &ThreadKey) -> Result<bool, StoreError> {
        let Some(place) = self.0.active_runs.take(thread_key) else { return Ok(false) };
        let Some(held) = self.0.run_store.held(thread_key, self.0.hub.now()).await? else { return Ok(false) };
        if held.open.agent == OWN && self.own(thread_key).is_none() {
            // It will be set when its program comes to that.
            return Ok(false);
        }
        Ok(self.take_up(place, thread_key, held, CancellationToken::new()))
    }

    /// Goes on with the open run of a thread, if there is one. If its agent is gone, it can only end.
    pub(super) async fn go_on(
        &self,
        place: Place,
        thread_key: &ThreadKey,
        cancel: CancellationToken,
    ) -> Result<bool, StoreError> {
        let Some(held) = self.0.run_store.held(thread_key, self.0.hub.now()).await? else { return Ok(false) };
        Ok(self.take_up(place, thread_key, held, cancel))
    }

    fn take_up(&self, place: Place, thread_key: &ThreadKey, held: Held, cancel: CancellationToken) -> bool {
        if self.0.stopping.is_cancelled() {
            return false;
        }
        let named = lock(&self.0.agents).get(&held.open.agent).cloned();
        let plan = self.own(thread_key).filter(|_| held.open.agent == OWN).or(named);
        let plan = plan.unwrap_or_else(|| nobody(&held.open.agent));
        self.drive(place, thread_key.clone(), plan, held, true, cancel);
        true
    }

    /// What to tell somebody who speaks while the place of the thread is taken; nothing where there is no run to be seen.
    async fn beside(&self, thread_key: &ThreadKey, said: &UserMessage) -> Result<Option<RunHandle>, AgentError> {
        let Some(driven) = self.0.active_runs.of(thread_key) else { return Ok(None) };
        if let Some(handle) = self.replay(thread_key, said).await? {
            return Ok(Some(handle));
        }
        Err(AgentError::Busy(driven.run))
    }

    /// The run of a message that was said before with the same key.
    async fn replay(&self, thread_key: &ThreadKey, said: &UserMessage) -> Result<Option<RunHandle>, AgentError> {
        let Some(key) = &said.key else { return Ok(None) };
        match self.0.run_store.claimed(thread_key, key, said, self.0.hub.now()).await? {
            Some(Claimed::Same(run)) => self.again(thread_key, run).await.map(Some),
            Some(Claimed::Other) => Err(AgentError::KeyReused),
            None => Ok(None),
        }
    }

    /// The run that the same message has begun before.
    async fn again(&self, thread_key: &ThreadKey, run: RunId) -> Result<RunHandle, AgentError> {
        if let Some(driven) = self.0.active_runs.of(thread_key).filter(|driven| driven.run == run) {
            return Ok(RunHandle { told: driven.told, replayed: true, cancel: None });
        }
        let record = self.0.run_store.run(&thread_key.tenant, run, self.0.hub.now()).await?;
        let gone = || StoreError::Unavailable(format!("the run {run} is not in the store any more"));
        let (_, told) = watch::channel(record.ok_or_else(gone)?);
        Ok(RunHandle { told, replayed: true, cancel: None })
    }

    fn drive(
        &self,
        place: Place,
        thread_key: ThreadKey,
        plan: Arc<AgentPlan>,
        held: Held,
        resumed: bool,
        cancel: CancellationToken,
    ) -> RunHandle {
        let Inner { hub, run_store, meters, tasks, stopping, language, .. } = &*self.0;
        let record = held.open.record(&thread_key.thread, hub.now());
        let (run, agent) = (record.id, record.agent.clone());
        let (told, hears) = watch::channel(record);
        place.drives(Driven { run, told: hears.clone(), cancel: cancel.clone() });
        let mut driver = Driver {
            hub: hub.clone(),
            run_store: run_store.clone(),
            meters: meters.clone(),
            thread_key,
            plan,
            held,
            resumed,
            language: *language,
            told: told.clone(),
            cancel: cancel.clone(),
            offer: None,
            failures: 0,
            hopeless: None,
        };
        let (hub, stopping, meters) = (hub.clone(), stopping.clone(), meters.clone());
        tasks.spawn(async move {
            let begun = Instant::now();
            let end = tokio::select! {
                biased;
                end = driver.drive() => end,
                () = stopping.cancelled() => None,
                () = hub.leaving() => None,
            };
            drop(place);
            if let Some(record) = end {
                driver.tell_end(&record);
                meters.ran(&agent, begun.elapsed(), record.status, record.error.as_ref());
                told.send_replace(record);
            }
        });
        RunHandle { told: hears, replayed: false, cancel: Some(cancel) }
    }
}
