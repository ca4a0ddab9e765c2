//! Starts and resumes runs: takes the drive permit of the thread and spawns the driver.
//!
//! In: a user message, or a thread with an open run. Out: the handle of a run that is driven on its own task, or why
//! there is none. Storing a message continues even if its caller is dropped.

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
    definition::AgentDefinition,
    driver::Driver,
    message::UserMessage,
    run::Run,
    run_store::{BeginResult, ClaimMatch, NewRun, OpenRun, RunCheckout},
};

impl AgentService {
    /// Starts the run of a message. The token cancels it.
    pub(crate) async fn begin(
        &self,
        thread_key: &ThreadKey,
        message: UserMessage,
        cancel: CancellationToken,
    ) -> Result<RunHandle, AgentError> {
        if self.0.stopping.is_cancelled() || self.0.hub.is_shutting_down() {
            return Err(AgentError::Stopping);
        }
        if message.content.trim().is_empty() {
            return Err(AgentError::Empty);
        }
        let (agent, plan) = match self.resolve_plan(thread_key, message.agent.as_ref()).await {
            Ok(resolved) => resolved,
            // A replay works even if the agent is no longer defined.
            Err(error) => return self.replay(thread_key, &message).await?.ok_or(error),
        };
        self.0.hub.touch_thread(&thread_key.tenant, &thread_key.thread).await?;
        let permit = loop {
            match self.0.active_runs.try_acquire(thread_key) {
                Some(permit) => break permit,
                None => match self.replay_or_busy(thread_key, &message).await? {
                    Some(handle) => return Ok(handle),
                    // The holder of the permit is just starting or has just ended.
                    None => tokio::time::sleep(CONTENTION_DELAY).await,
                },
            }
        };
        // On a task of its own: the store may commit after the caller is dropped, and then the run needs a driver.
        let (service, thread_key) = (self.clone(), thread_key.clone());
        let starting = async move { service.start_run(permit, thread_key, (agent, plan), message, cancel).await };
        self.0.tasks.spawn(starting).await.unwrap_or(Err(AgentError::Stopping))
    }

    /// Stores a message, and drives the run it starts.
    async fn start_run(
        &self,
        permit: DrivePermit,
        thread_key: ThreadKey,
        (agent, plan): (SmolStr, Arc<AgentDefinition>),
        message: UserMessage,
        cancel: CancellationToken,
    ) -> Result<RunHandle, AgentError> {
        let Inner { hub, run_store, .. } = &*self.0;
        let now = hub.now();
        let run = Run::new(RunId::mint(now), now, plan.bounds(now));
        let (caller, trace) = (message.caller.clone(), message.trace.clone());
        let open_run = OpenRun { run, agent, caller, trace, node: Some(run_store.node.clone()) };
        let new_run = NewRun { message: &message, open_run };
        match run_store.begin(&thread_key, new_run, now).await? {
            BeginResult::New(checkout) => Ok(self.spawn_driver(permit, thread_key, plan, *checkout, false, cancel)),
            BeginResult::KeyReused => Err(AgentError::KeyReused),
            // The permit was free: another node drives the open run of this thread, or a dead process left it.
            BeginResult::Replayed(run) => {
                self.resume_open_run(permit, &thread_key, CancellationToken::new()).await?;
                self.existing_run_handle(&thread_key, run).await
            }
            BeginResult::Busy(run) => {
                self.resume_open_run(permit, &thread_key, CancellationToken::new()).await?;
                Err(AgentError::Busy(run))
            }
        }
    }

    /// Resumes the run that a dead process left open in a thread, if there is one and its agent is or can be known.
    pub(crate) async fn resume_thread(&self, thread_key: &ThreadKey) -> Result<bool, StoreError> {
        let Some(permit) = self.0.active_runs.try_acquire(thread_key) else { return Ok(false) };
        let Some(checkout) = self.0.run_store.checkout(thread_key, self.0.hub.now()).await? else { return Ok(false) };
        let agent = &checkout.open_run.agent;
        let is_defined = match agent == THREAD_AGENT {
            // The program may not have set the thread's own agent yet.
            true => self.thread_plan(thread_key).is_some(),
            // Another node may be configured with the agent.
            false => self.0.hub.has_exclusive_store() || lock(&self.0.agents).contains_key(agent),
        };
        if !is_defined {
            return Ok(false);
        }
        self.drive_resumed(permit, thread_key, checkout, CancellationToken::new()).await
    }

    /// Resumes the open run of a thread, if there is one and its node is gone. If its agent is no longer defined, the run can only
    /// end.
    pub(super) async fn resume_open_run(
        &self,
        permit: DrivePermit,
        thread_key: &ThreadKey,
        cancel: CancellationToken,
    ) -> Result<bool, StoreError> {
        let Some(checkout) = self.0.run_store.checkout(thread_key, self.0.hub.now()).await? else { return Ok(false) };
        self.drive_resumed(permit, thread_key, checkout, cancel).await
    }

    /// Takes a run over and drives it; returns whether it does. It does not while another node may drive it.
    async fn drive_resumed(
        &self,
        permit: DrivePermit,
        thread_key: &ThreadKey,
        mut checkout: RunCheckout,
        cancel: CancellationToken,
    ) -> Result<bool, StoreError> {
        let is_stopping = self.0.stopping.is_cancelled() || self.0.hub.is_shutting_down();
        if is_stopping || self.is_driven_elsewhere(&checkout.open_run).await? {
            return Ok(false);
        }
        let Inner { run_store, hub, .. } = &*self.0;
        // Before anything is asked, so that of several nodes one goes on.
        if !run_store.take_over(thread_key, &mut checkout, hub.now()).await? {
            return Ok(false);
        }
        if run_store.take_cancel_request(thread_key, checkout.open_run.run.id, hub.now()).await? {
            cancel.cancel();
        }
        let named = lock(&self.0.agents).get(&checkout.open_run.agent).cloned();
        let plan = self.thread_plan(thread_key).filter(|_| checkout.open_run.agent == THREAD_AGENT).or(named);
        let plan = plan.unwrap_or_else(|| removed_agent_plan(&checkout.open_run.agent));
        self.spawn_driver(permit, thread_key.clone(), plan, checkout, true, cancel);
        Ok(true)
    }

    /// The replayed run, or `Busy`, for a message that comes while the drive permit is taken; `None` if the holder has
    /// no run registered yet.
    async fn replay_or_busy(
        &self,
        thread_key: &ThreadKey,
        message: &UserMessage,
    ) -> Result<Option<RunHandle>, AgentError> {
        let Some(active) = self.0.active_runs.get(thread_key) else { return Ok(None) };
        if let Some(handle) = self.replay(thread_key, message).await? {
            return Ok(Some(handle));
        }
        Err(AgentError::Busy(active.run))
    }

    /// The run of an earlier message with the same idempotency key.
    async fn replay(&self, thread_key: &ThreadKey, message: &UserMessage) -> Result<Option<RunHandle>, AgentError> {
        let Some(key) = &message.key else { return Ok(None) };
        match self.0.run_store.find_claim(thread_key, key, message, self.0.hub.now()).await? {
            Some(ClaimMatch::Same(run)) => self.existing_run_handle(thread_key, run).await.map(Some),
            Some(ClaimMatch::Other) => Err(AgentError::KeyReused),
            None => Ok(None),
        }
    }

    /// A handle for the run that the same message started before.
    async fn existing_run_handle(&self, thread_key: &ThreadKey, run: RunId) -> Result<RunHandle, AgentError> {
        if let Some(active) = self.0.active_runs.get(thread_key).filter(|active| active.run == run) {
            return Ok(RunHandle { record_rx: active.record_rx, replayed: true, remote: false, cancel: None });
        }
        let record = self.0.run_store.run(&thread_key.tenant, run, self.0.hub.now()).await?;
        let missing = || StoreError::Unavailable(format!("the run {run} is no longer in the store"));
        let record_rx = self.follow_record(&thread_key.tenant, record.ok_or_else(missing)?);
        Ok(RunHandle { record_rx, replayed: true, remote: true, cancel: None })
    }

    fn spawn_driver(
        &self,
        permit: DrivePermit,
        thread_key: ThreadKey,
        plan: Arc<AgentDefinition>,
        checkout: RunCheckout,
        resumed: bool,
        cancel: CancellationToken,
    ) -> RunHandle {
        self.watch_requests();
        let Inner { hub, run_store, meters, tasks, stopping, language, .. } = &*self.0;
        let record = checkout.open_run.record(&thread_key.thread, hub.now());
        let (run, agent) = (record.id, record.agent.clone());
        let (record_tx, record_rx) = watch::channel(record);
        permit.register(ActiveRun { run, record_rx: record_rx.clone(), cancel: cancel.clone() });
        let mut driver = Driver {
            hub: hub.clone(),
            run_store: run_store.clone(),
            meters: meters.clone(),
            thread_key,
            plan,
            checkout,
            resumed,
            language: *language,
            record_tx: record_tx.clone(),
            cancel: cancel.clone(),
            last_offer: None,
            failures: 0,
            fatal_error: None,
        };
        let (hub, stopping, meters) = (hub.clone(), stopping.clone(), meters.clone());
        tasks.spawn(async move {
            let started_at = Instant::now();
            let end = tokio::select! {
                biased;
                end = driver.drive() => end,
                () = stopping.cancelled() => None,
                () = hub.shutdown_requested() => None,
            };
            drop(permit);
            if let Some(record) = end {
                driver.emit_end(&record);
                meters.record_run(&agent, started_at.elapsed(), record.status, record.error.as_ref());
                record_tx.send_replace(record);
            }
        });
        RunHandle { record_rx, replayed: false, remote: false, cancel: Some(cancel) }
    }
}
