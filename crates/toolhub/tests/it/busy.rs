//! A tool whose calls stay until the test lets them go, and what was seen of them meanwhile.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::sync::Semaphore;
use toolhub::prelude::*;

/// Several tools may share one, to be watched together.
#[derive(Clone)]
pub(crate) struct Busy(Arc<Seen>);

struct Seen {
    door: Semaphore,
    running: AtomicUsize,
    most: AtomicUsize,
    begun: Mutex<Vec<String>>,
}

/// Counts a call as running, however it ends.
struct Here(Busy);

impl Drop for Here {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, SeqCst);
    }
}

impl Busy {
    pub(crate) fn new() -> Self {
        let seen = Seen {
            door: Semaphore::new(0),
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            begun: Mutex::default(),
        };
        Self(Arc::new(seen))
    }

    pub(crate) fn tool(&self, name: &str) -> ToolBuilder {
        let busy = self.clone();
        tool(name, move |_: NoArguments, cx: CallContext| {
            let busy = busy.clone();
            async move { busy.stay(&cx).await }
        })
    }

    /// What each call of the tool does, for tools that do something else too.
    pub(crate) async fn stay(&self, cx: &CallContext) -> Result<(), ToolError> {
        let _here = self.enter(cx);
        self.0.door.acquire().await?.forget();
        Ok(())
    }

    /// The same for a call that goes by itself after a while.
    pub(crate) async fn pass(&self, cx: &CallContext) -> Result<(), ToolError> {
        let _here = self.enter(cx);
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn enter(&self, cx: &CallContext) -> Here {
        let running = self.0.running.fetch_add(1, SeqCst) + 1;
        self.0.most.fetch_max(running, SeqCst);
        let thread = cx.thread().map_or("", |thread| thread.as_str());
        self.0.begun.lock().unwrap().push(thread.to_owned());
        Here(self.clone())
    }

    /// Lets so many calls go, now or when they come.
    pub(crate) fn let_go(&self, calls: usize) {
        self.0.door.add_permits(calls);
    }

    pub(crate) fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    /// How many ever ran at once.
    pub(crate) fn most(&self) -> usize {
        self.0.most.load(SeqCst)
    }

    /// The threads of all calls that have begun, in that order.
    pub(crate) fn begun(&self) -> Vec<String> {
        self.0.begun.lock().unwrap().clone()
    }
}

/// Lets other tasks go on until something is so. Time does not move meanwhile.
#[track_caller]
pub(crate) fn until(what: impl Fn() -> bool) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    async move {
        for _ in 0..1_000_000 {
            if what() {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("what {place} waits for never came");
    }
}
