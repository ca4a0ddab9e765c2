//! Requests of the client in flight, by id.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Maximum number of requests that are in flight or wait for it.
pub(super) const MAX_REQUESTS: usize = 2_048;

/// All requests in flight.
#[derive(Default)]
pub(super) struct InFlight(Mutex<HashMap<String, Arc<PendingRequest>>>);

/// A request in flight.
pub(super) struct PendingRequest {
    pub(super) id: Value,
    pub(super) is_modern: bool,
    /// Whether only its client ends it.
    pub(super) is_endless: bool,
    /// Cancelled when the client has cancelled the request; it is not answered then.
    pub(super) cancelled: CancellationToken,
}

/// Why a request is refused.
#[derive(Debug, PartialEq)]
pub(super) enum AddError {
    SameId,
    TooMany,
}

impl InFlight {
    /// Adds a request.
    pub(super) fn add(&self, request: PendingRequest) -> Result<Arc<PendingRequest>, AddError> {
        let mut all = self.lock();
        let key = request.id.to_string();
        if all.contains_key(&key) {
            return Err(AddError::SameId);
        }
        if all.len() >= MAX_REQUESTS {
            return Err(AddError::TooMany);
        }
        let request = Arc::new(request);
        all.insert(key, request.clone());
        Ok(request)
    }

    pub(super) fn remove(&self, id: &Value) {
        self.lock().remove(&id.to_string());
    }

    pub(super) fn get(&self, id: &Value) -> Option<Arc<PendingRequest>> {
        self.lock().get(&id.to_string()).cloned()
    }

    /// Whether a request is in flight, and not another one with its id.
    pub(super) fn contains(&self, request: &PendingRequest) -> bool {
        self.lock().get(&request.id.to_string()).is_some_and(|pending| std::ptr::eq(&raw const **pending, request))
    }

    /// Cancels all requests, or only those that would not end by themselves.
    pub(super) fn cancel(&self, only_endless: bool) {
        let all: Vec<_> = self.lock().values().cloned().collect();
        all.iter().filter(|request| request.is_endless || !only_endless).for_each(|request| request.cancelled.cancel());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<PendingRequest>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
