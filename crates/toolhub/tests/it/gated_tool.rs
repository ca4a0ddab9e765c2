//! A tool whose calls block until the test releases them, and a record of its calls.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::sync::Semaphore;
use toolhub::prelude::*;

/// Several tools may share one gate, to be observed together.
#[derive(Clone)]
pub(crate) struct GatedTool(Arc<GateState>);

struct GateState {
    gate: Semaphore,
    running: AtomicUsize,
    max_running: AtomicUsize,
    started_threads: Mutex<Vec<String>>,
}

/// Counts a call as running, however it ends.
struct RunningGuard(GatedTool);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, SeqCst);
    }
}

impl GatedTool {
    pub(crate) fn new() -> Self {
        let seen = GateState {
            gate: Semaphore::new(0),
            running: AtomicUsize::new(0),
            max_running: AtomicUsize::new(0),
            started_threads: Mutex::default(),
        };
        Self(Arc::new(seen))
    }

    pub(crate) fn tool(&self, name: &str) -> ToolBuilder {
        let busy = self.clone();
        tool(name, move |_: NoArguments, cx: CallContext| {
            let busy = busy.clone();
            async move { busy.wait_at_gate(&cx).await }
        })
    }

    /// The body of a call, for tools that do something else too.
    pub(crate) async fn wait_at_gate(&self, cx: &CallContext) -> Result<(), ToolError> {
        let _here = self.start_running(cx);
        self.0.gate.acquire().await?.forget();
        Ok(())
    }

    /// The same for a call that is released after a delay.
    pub(crate) async fn run_briefly(&self, cx: &CallContext) -> Result<(), ToolError> {
        let _here = self.start_running(cx);
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn start_running(&self, cx: &CallContext) -> RunningGuard {
        let running = self.0.running.fetch_add(1, SeqCst) + 1;
        self.0.max_running.fetch_max(running, SeqCst);
        let thread = cx.thread().map_or("", |thread| thread.as_str());
        self.0.started_threads.lock().unwrap().push(thread.to_owned());
        RunningGuard(self.clone())
    }

    /// Releases this many calls, now or when they arrive.
    pub(crate) fn release(&self, calls: usize) {
        self.0.gate.add_permits(calls);
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    /// The largest number of concurrent calls.
    pub(crate) fn max_running(&self) -> usize {
        self.0.max_running.load(SeqCst)
    }

    /// The threads of all calls that have started, in that order.
    pub(crate) fn started_threads(&self) -> Vec<String> {
        self.0.started_threads.lock().unwrap().clone()
    }
}

/// Yields to other tasks until a condition holds. Time does not advance meanwhile.
#[track_caller]
pub(crate) fn wait_until(what: impl Fn() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        for _ in 0..1_000_000 {
            if what() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the condition at {place} never held");
    }
}
