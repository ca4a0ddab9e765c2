//! How a run begins, or goes on: who may drive it, and who is told that somebody does.
//!
//! In: what a user says, or a thread with an open run. Out: a handle of a run that is driven on a task of its own, or why there is
//! none. A message that is being written down is followed to its end, whoever waits for it.

use std::sync::Arc;

use smol_str::SmolStr;
use tokio::{sync::watch, time::Instant};
use toolhub_core::{CancellationToken, backend::StoreError, ids::RunId};

use super::{A_MOMENT, AgentError, AgentService, Inner, OWN, RunHandle, Said, lock, nobody::nobody};
use crate::{
    driver::Driver,
    live::{Driven, Place},
    plan::AgentPlan,
    run::Run,
    shelf::{Begun, Claimed, Held, OpenRun, Opening, Owner},
};

impl AgentService {
    /// Begins the run of a message. The signal cancels it.
    pub(crate) async fn begin(
        &self,
        owner: &Owner,
        said: Said,
        cancel: CancellationToken,
    ) -> Result<RunHandle, AgentError> {
        if self.0.stopping.is_cancelled() || self.0.hub.is_leaving() {
            return Err(AgentError::Stopping);
        }
        if said.content.trim().is_empty() {
            return Err(AgentError::Empty);
        }
        let (agent, plan) = match self.plan(owner, said.agent.as_ref()).await {
            Ok(found) => found,
            // What was answered once is answered again, whoever is still there.
            Err(refused) => return self.replay(owner, &said).await?.ok_or(refused),
        };
        self.0.hub.use_thread(&owner.tenant, &owner.thread).await?;
        let place = loop {
            match self.0.live.take(owner) {
                Some(place) => break place,
                None => match self.beside(owner, &said).await? {
                    Some(handle) => return Ok(handle),
                    // Whoever has the place is only just beginning, or has only just ended.
                    None => tokio::time::sleep(A_MOMENT).await,
                },
            }
        };
        // On a task of its own: the store may write although nobody waits any more, and then somebody must drive the run.
        let (service, owner) = (self.clone(), owner.clone());
        let opened = self.0.tasks.spawn(async move { service.open(place, owner, (agent, plan), said, cancel).await });
        opened.await.unwrap_or(Err(AgentError::Stopping))
    }

    /// Writes a message down, and drives the run it begins.
    async fn open(
        &self,
        place: Place,
        owner: Owner,
        (agent, plan): (SmolStr, Arc<AgentPlan>),
        said: Said,
        cancel: CancellationToken,
    ) -> Result<RunHandle, AgentError> {
        let Inner { hub, shelf, .. } = &*self.0;
        let now = hub.now();
        let run = Run::new(RunId::mint(now), now, plan.bounds(now));
        let open = OpenRun { run, agent, caller: said.caller.clone(), trace: said.trace.clone() };
        let opening = Opening { said: &said, open };
        match shelf.begin(&owner, opening, now).await? {
            Begun::New(held) => Ok(self.drive(place, owner, plan, *held, false, cancel)),
            Begun::KeyReused => Err(AgentError::KeyReused),
            // Nobody drives them here: a dead process has left them open, if they are.
            Begun::Again(run) => {
                self.go_on(place, &owner, CancellationToken::new()).await?;
                self.again(&owner, run).await
            }
            Begun::Busy(run) => {
                self.go_on(place, &owner, CancellationToken::new()).await?;
                Err(AgentError::Busy(run))
            }
        }
    }

    /// Goes on with the run of a thread that a dead process has left open, if there is one and its agent may be known.
    pub(crate) async fn go_on_with(&self, owner: &Owner) -> Result<bool, StoreError> {
        let Some(place) = self.0.live.take(owner) else { return Ok(false) };
        let Some(held) = self.0.shelf.held(owner, self.0.hub.now()).await? else { return Ok(false) };
        if held.open.agent == OWN && self.own(owner).is_none() {
            // It will be set when its program comes to that.
            return Ok(false);
        }
        Ok(self.take_up(place, owner, held, CancellationToken::new()))
    }

    /// Goes on with the open run of a thread, if there is one. If its agent is gone, it can only end.
    pub(super) async fn go_on(
        &self,
        place: Place,
        owner: &Owner,
        cancel: CancellationToken,
    ) -> Result<bool, StoreError> {
        let Some(held) = self.0.shelf.held(owner, self.0.hub.now()).await? else { return Ok(false) };
        Ok(self.take_up(place, owner, held, cancel))
    }

    fn take_up(&self, place: Place, owner: &Owner, held: Held, cancel: CancellationToken) -> bool {
        if self.0.stopping.is_cancelled() {
            return false;
        }
        let named = lock(&self.0.agents).get(&held.open.agent).cloned();
        let plan = self.own(owner).filter(|_| held.open.agent == OWN).or(named);
        let plan = plan.unwrap_or_else(|| nobody(&held.open.agent));
        self.drive(place, owner.clone(), plan, held, true, cancel);
        true
    }

    /// What to tell somebody who speaks while the place of the thread is taken; nothing where there is no run to be seen.
    async fn beside(&self, owner: &Owner, said: &Said) -> Result<Option<RunHandle>, AgentError> {
        let Some(driven) = self.0.live.of(owner) else { return Ok(None) };
        if let Some(handle) = self.replay(owner, said).await? {
            return Ok(Some(handle));
        }
        Err(AgentError::Busy(driven.run))
    }

    /// The run of a message that was said before with the same key.
    async fn replay(&self, owner: &Owner, said: &Said) -> Result<Option<RunHandle>, AgentError> {
        let Some(key) = &said.key else { return Ok(None) };
        match self.0.shelf.claimed(owner, key, said, self.0.hub.now()).await? {
            Some(Claimed::Same(run)) => self.again(owner, run).await.map(Some),
            Some(Claimed::Other) => Err(AgentError::KeyReused),
            None => Ok(None),
        }
    }

    /// The run that the same message has begun before.
    async fn again(&self, owner: &Owner, run: RunId) -> Result<RunHandle, AgentError> {
        if let Some(driven) = self.0.live.of(owner).filter(|driven| driven.run == run) {
            return Ok(RunHandle { told: driven.told, replayed: true, cancel: None });
        }
        let record = self.0.shelf.run(&owner.tenant, run, self.0.hub.now()).await?;
        let gone = || StoreError::Unavailable(format!("the run {run} is not in the store any more"));
        let (_, told) = watch::channel(record.ok_or_else(gone)?);
        Ok(RunHandle { told, replayed: true, cancel: None })
    }

    fn drive(
        &self,
        place: Place,
        owner: Owner,
        plan: Arc<AgentPlan>,
        held: Held,
        resumed: bool,
        cancel: CancellationToken,
    ) -> RunHandle {
        let Inner { hub, shelf, meters, tasks, stopping, language, .. } = &*self.0;
        let record = held.open.record(&owner.thread, hub.now());
        let (run, agent) = (record.id, record.agent.clone());
        let (told, hears) = watch::channel(record);
        place.drives(Driven { run, told: hears.clone(), cancel: cancel.clone() });
        let mut driver = Driver {
            hub: hub.clone(),
            shelf: shelf.clone(),
            meters: meters.clone(),
            owner,
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
