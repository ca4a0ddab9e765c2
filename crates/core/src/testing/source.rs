//! A source of tools that a test controls.
//!
//! In: what the test says about the source. Out: a [`ToolSource`] that reports it, and a record of what was asked of it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::mpsc;

use crate::{
    execution::BoxFuture,
    hub::{
        DefinitionApproval, DefinitionApprovalError, DefinitionChange, SourceConnection, SourceHandle, SourceInfo,
        SourceStatus, ToolSource,
    },
};
use toolhub_storage::latency::{Latency, LatencyRecorder};
use toolhub_types::{policy::Glob, timestamp::Timestamp};

/// A source that does what the test says through its [`TestSourceControl`]. It may add tools named `NAME__*`.
#[derive(Debug)]
pub struct TestSource {
    name: String,
    handles: mpsc::UnboundedSender<SourceHandle>,
    state: Arc<Mutex<State>>,
}

/// Controls a [`TestSource`].
#[derive(Debug)]
pub struct TestSourceControl {
    handles: mpsc::UnboundedReceiver<SourceHandle>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    info: SourceInfo,
    pending: Vec<DefinitionChange>,
    log_lines: Vec<String>,
    actions: Vec<String>,
    calls: LatencyRecorder,
    mismatches: u64,
}

impl TestSource {
    /// A source that is connecting, with its control.
    #[must_use]
    pub fn new(name: &str) -> (Self, TestSourceControl) {
        let info = SourceInfo {
            status: SourceStatus {
                name: name.into(),
                connection: SourceConnection::Connecting,
                since: Timestamp::default(),
                last_error: None,
                next_attempt: None,
            },
            details: Default::default(),
            admin_details: Default::default(),
            tools: Vec::new(),
        };
        let state = State {
            info,
            pending: Vec::new(),
            log_lines: Vec::new(),
            actions: Vec::new(),
            calls: LatencyRecorder::default(),
            mismatches: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let (sender, handles) = mpsc::unbounded_channel();
        (Self { name: name.into(), handles: sender, state: state.clone() }, TestSourceControl { handles, state })
    }
}

impl TestSourceControl {
    /// The handle of its next run.
    ///
    /// # Panics
    /// When the source was dropped.
    pub async fn handle(&mut self) -> SourceHandle {
        self.handles.recv().await.expect("the source is in a hub")
    }

    /// Changes what it reports about itself.
    pub fn set_info(&self, change: impl FnOnce(&mut SourceInfo)) {
        change(&mut lock(&self.state).info);
    }

    /// Sets the definitions that wait for approval.
    pub fn set_pending(&self, pending: Vec<DefinitionChange>) {
        lock(&self.state).pending = pending;
    }

    /// Adds a log line.
    pub fn log(&self, line: &str) {
        lock(&self.state).log_lines.push(line.into());
    }

    /// Records the duration of a request `tools/call`.
    pub fn record_call(&self, duration: Duration) {
        lock(&self.state).calls.record(duration);
    }

    /// Records an output that does not fit the output schema of its tool.
    pub fn record_mismatch(&self) {
        lock(&self.state).mismatches += 1;
    }

    /// What was asked of it, in order: `restart`, `approve NAME…`, `watch URI…`, `stop`.
    #[must_use]
    pub fn actions(&self) -> Vec<String> {
        lock(&self.state).actions.clone()
    }
}

impl ToolSource for TestSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn tool_names(&self) -> Vec<Glob> {
        Glob::new(format!("{}__*", self.name)).into_iter().collect()
    }

    fn run(self: Arc<Self>, handle: SourceHandle) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let stop = handle.stop_signal().clone();
            // A test without a control needs no handle.
            let _ = self.handles.send(handle);
            stop.cancelled().await;
            lock(&self.state).actions.push("stop".into());
        })
    }

    fn info(&self) -> SourceInfo {
        lock(&self.state).info.clone()
    }

    fn restart(&self) {
        let mut state = lock(&self.state);
        state.actions.push("restart".into());
        state.info.status.since = state.info.status.since + Duration::from_secs(1);
    }

    fn pending_changes(&self) -> Vec<DefinitionChange> {
        lock(&self.state).pending.clone()
    }

    fn approve<'a>(
        &'a self,
        tools: &'a [DefinitionApproval],
    ) -> BoxFuture<'a, Result<Vec<String>, DefinitionApprovalError>> {
        let mut state = lock(&self.state);
        let approved = DefinitionApproval::select(tools, &state.pending);
        if let Ok(names) = &approved {
            state.pending.retain(|change| !names.contains(&change.name));
            state.actions.push(format!("approve {}", names.join(" ")));
        }
        Box::pin(std::future::ready(approved))
    }

    fn log_lines(&self) -> Vec<String> {
        lock(&self.state).log_lines.clone()
    }

    fn watch_resources(&self, uris: Vec<String>) {
        lock(&self.state).actions.push(format!("watch {}", uris.join(" ")));
    }

    fn refresh(&self) {
        lock(&self.state).actions.push("refresh".into());
    }

    fn operations(&self) -> Vec<(&'static str, Latency)> {
        vec![("tools/call", lock(&self.state).calls.latency())]
    }

    fn output_mismatches(&self) -> u64 {
        lock(&self.state).mismatches
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
