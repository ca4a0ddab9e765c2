//! The instances of one thread: made lazily, used by one call at a time, closed in an orderly way.

use std::{
    any::Any,
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::{handler::Instance, tool::ToolName};

/// How long closing waits for the call that uses an instance, and then for the instance's own goodbye. An instance that
/// is still in use after that is dropped when its call ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// The live instances of one thread.
#[derive(Default)]
pub(crate) struct ThreadContext(Mutex<HashMap<ToolName, Arc<dyn Place>>>);

/// Where the instance of one tool lives, whatever its type.
trait Place: Any + Send + Sync {
    /// Closes the instance when the call that uses it is done; says whether there was one.
    fn close(self: Arc<Self>) -> BoxFuture<'static, bool>;
}

/// The place of an instance of type `I`; empty until it is made, and while it works.
pub(crate) struct Seat<I>(Arc<AsyncMutex<Option<I>>>);

impl<I: Instance> Seat<I> {
    /// Waits until no other call uses the instance. The wait is bounded by the deadline of the call around it.
    pub(crate) async fn take(&self) -> OwnedMutexGuard<Option<I>> {
        self.0.clone().lock_owned().await
    }
}

impl<I: Instance> Place for Seat<I> {
    fn close(self: Arc<Self>) -> BoxFuture<'static, bool> {
        Box::pin(async move {
            let Ok(mut seat) = tokio::time::timeout(CLOSE_WITHIN, self.take()).await else { return false };
            let Some(instance) = seat.take() else { return false };
            drop(seat);
            // One that panics or hangs while it says goodbye must not keep the others from doing so.
            let closing = AssertUnwindSafe(async { instance.close().await }).catch_unwind();
            let _ = tokio::time::timeout(CLOSE_WITHIN, closing).await;
            true
        })
    }
}

impl ThreadContext {
    /// The place of a tool's instance, made on first use.
    pub(crate) fn get<I: Instance>(&self, tool: &ToolName) -> Arc<Seat<I>> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(tool) {
            let any: Arc<dyn Any + Send + Sync> = place.clone();
            if let Ok(seat) = any.downcast() {
                return seat;
            }
        }
        // Either there is none yet, or the tool was registered anew with instances of another type.
        let seat = Arc::new(Seat::<I>(Arc::default()));
        places.insert(tool.clone(), seat.clone());
        seat
    }

    /// Closes the instance of one tool, when the call that uses it is done. Says whether there was one.
    pub(crate) async fn cleanup(&self, tool: &ToolName) -> bool {
        let place = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(tool);
        match place {
            Some(place) => place.close().await,
            None => false,
        }
    }

    /// Closes all instances; names the tools they belonged to.
    pub(crate) async fn cleanup_all(&self) -> Vec<ToolName> {
        let places = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut closed = Vec::new();
        for (tool, place) in places {
            if place.close().await {
                closed.push(tool);
            }
        }
        closed
    }
}
