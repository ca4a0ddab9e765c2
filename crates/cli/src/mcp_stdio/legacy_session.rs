//! The session of a client of the legacy era.
//!
//! In: its `initialize` and the answer. Out: the headers of its later messages. A server that lost the session, because its store is
//! in memory, gets the same `initialize` again; the client does not notice.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use toolhub_net::{
    Bytes, HeaderMap,
    header::{HeaderName, HeaderValue},
};

pub(super) const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");

/// The session, if there is one.
#[derive(Default)]
pub(super) struct LegacySession {
    state: Mutex<State>,
    /// Held by the task that opens the session again.
    pub(super) renewal: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    initialize: Option<Bytes>,
    /// Counts sessions.
    generation: u64,
}

impl LegacySession {
    /// Takes the session from the answer to `initialize`.
    pub(super) fn opened(&self, initialize: &Bytes, headers: &HeaderMap, answer: &str) {
        let Some(id) = headers.get(SESSION_HEADER) else { return };
        let answer: Value = serde_json::from_str(answer).unwrap_or_default();
        let version = answer["result"]["protocolVersion"].as_str().and_then(|version| version.try_into().ok());
        let mut state = self.lock();
        (state.id, state.version, state.initialize) = (Some(id.clone()), version, Some(initialize.clone()));
        state.generation += 1;
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().id.is_some()
    }

    /// The number of the current session.
    pub(super) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// The message that opened it.
    pub(super) fn initialize(&self) -> Option<Bytes> {
        self.lock().initialize.clone()
    }

    /// Adds its headers.
    pub(super) fn add_headers(&self, headers: &mut HeaderMap) {
        let state = self.lock();
        headers.extend(state.id.clone().map(|id| (SESSION_HEADER, id)));
        headers.extend(state.version.clone().map(|version| (VERSION_HEADER, version)));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
