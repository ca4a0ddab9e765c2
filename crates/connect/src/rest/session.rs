//! The session of a thread with a service: its cookies.
//!
//! In: a call in a thread. Out: the cookies to send; at the end, changed cookies are written to the thread's state, sealed. Cookies are
//! state of kind `cache`: they outlive the process and expire.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
    sync::LazyLock,
    time::Duration,
};

use hyper::{HeaderMap, header::SET_COOKIE};
use serde_json::json;
use tokio::sync::Mutex;
use toolhub_core::{CallContext, ContextState, StateKind, ToolError, clock::Timestamp, ids::StateName};

use toolhub_net::Origin;

use super::cookie::CookieJar;

/// How long session cookies are stored.
const SESSION_COOKIE_TTL: Duration = Duration::from_secs(24 * 3600);
/// Maximum time that any cookie is stored.
const MAX_COOKIE_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// The session of one call.
pub(crate) struct Session<'a> {
    call: &'a CallContext,
    state: ContextState,
    jar: CookieJar,
    set_cookies: Vec<(String, String)>,
}

impl<'a> Session<'a> {
    /// Loads the session of the call's thread.
    pub(crate) async fn open(call: &'a CallContext, name: &StateName, origin: &Origin) -> Result<Self, ToolError> {
        let state = call.state(name).map_err(session_error)?;
        let jar = load_cookies(call, &state, origin).await?;
        Ok(Self { call, state, jar, set_cookies: Vec::new() })
    }

    /// The `Cookie` header of a request.
    pub(crate) fn header(&self, origin: &Origin, target: &str) -> String {
        self.jar.header(path_of(target), origin.https, self.call.now())
    }

    /// Secrets to redact.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.jar.values()
    }

    /// Applies the `Set-Cookie` headers of a response.
    pub(crate) fn store_cookies(&mut self, headers: &HeaderMap, origin: &Origin, target: &str) {
        let now = self.call.now();
        for set in headers.get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok()) {
            if self.jar.apply_set_cookie(set, &origin.host, path_of(target), now) {
                self.set_cookies.push((set.to_owned(), path_of(target).to_owned()));
            }
        }
    }

    /// Stores changed cookies. A failure is only logged, because the request has already been made.
    pub(crate) async fn close(self, origin: &Origin) {
        if let Err(error) = self.persist(origin, self.call.now()).await {
            tracing::warn!(state = %self.state.id(), %error, "storing session cookies failed; cookies are lost");
        }
        self.call.set_session_active(!self.jar.is_empty());
    }

    async fn persist(&self, origin: &Origin, now: Timestamp) -> Result<(), ToolError> {
        if self.set_cookies.is_empty() {
            return Ok(());
        }
        // Calls of one thread may end concurrently; each applies its changes to the latest stored cookies.
        let _guard = write_lock(&self.state).lock().await;
        let mut jar = load_cookies(self.call, &self.state, origin).await?;
        for (set, path) in &self.set_cookies {
            jar.apply_set_cookie(set, &origin.host, path, now);
        }
        let mut data = json!({"host": origin.authority(), "cookies": jar});
        self.call.sealer().seal(&mut data, &sealed_for(self.call, &self.state));
        let ttl = jar.max_lifetime(now).max(SESSION_COOKIE_TTL).min(MAX_COOKIE_TTL);
        self.state.set(StateKind::Cache, data, Some(ttl)).await.map(|_| ()).map_err(session_error)
    }
}

/// The lock for writing the cookies of a context (lock striping over 64 mutexes).
fn write_lock(state: &ContextState) -> &'static Mutex<()> {
    static WRITE_LOCKS: LazyLock<[Mutex<()>; 64]> = LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(state.id().to_string());
    &WRITE_LOCKS[usize::try_from(hash % 64).unwrap_or_default()]
}

/// The record that sealed cookies belong to.
fn sealed_for(call: &CallContext, state: &ContextState) -> String {
    format!("{}/{}", call.tenant(), state.id())
}

async fn load_cookies(call: &CallContext, state: &ContextState, origin: &Origin) -> Result<CookieJar, ToolError> {
    // State names are shorter than host names, so two hosts may share a state. Their cookies must not mix.
    let stored = state.get(StateKind::Cache).await.map_err(session_error)?;
    let stored = stored.filter(|entry| entry.data["host"] == origin.authority());
    // Unreadable cookies, also those whose key is gone, are dropped: the service sets them again.
    let cookies = stored.and_then(|mut entry| {
        call.sealer().unseal(&mut entry.data, &sealed_for(call, state)).ok()?;
        serde_json::from_value(entry.data["cookies"].take()).ok()
    });
    Ok(cookies.unwrap_or_default())
}

fn session_error(error: toolhub_core::StateError) -> ToolError {
    ToolError::new("The tool's session cannot be read at the moment.").with_cause(error).uncounted().retryable(None)
}

fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or("/")
}
