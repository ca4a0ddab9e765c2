//! The session of a thread with a service: its cookies, and what its connection is like.
//!
//! In: a call in a thread. Out: the cookies that go along, and at the end what has changed, kept in the thread's state. Cookies are
//! state of kind `cache`: they outlive the process and have an end. What is known of the connection is of kind `connection`, and does not.

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

/// How long cookies are kept that end with their session.
const SESSION_COOKIE_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long any are kept.
const MAX_COOKIE_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// A session at work.
pub(crate) struct Session<'a> {
    call: &'a CallContext,
    state: ContextState,
    jar: CookieJar,
    set_cookies: Vec<(String, String)>,
}

impl<'a> Session<'a> {
    /// What a thread has.
    pub(crate) async fn open(call: &'a CallContext, name: &StateName, origin: &Origin) -> Result<Self, ToolError> {
        let state = call.state(name).map_err(session_error)?;
        let jar = load_cookies(&state, origin).await?;
        Ok(Self { call, state, jar, set_cookies: Vec::new() })
    }

    /// The cookies that go along with a request.
    pub(crate) fn header(&self, origin: &Origin, target: &str) -> String {
        self.jar.header(path_of(target), origin.https, self.call.now())
    }

    /// What must not be told.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.jar.values()
    }

    /// Takes in what a service sets.
    pub(crate) fn store_cookies(&mut self, headers: &HeaderMap, origin: &Origin, target: &str) {
        let now = self.call.now();
        for set in headers.get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok()) {
            if self.jar.apply_set_cookie(set, &origin.host, path_of(target), now) {
                self.set_cookies.push((set.to_owned(), path_of(target).to_owned()));
            }
        }
    }

    /// Keeps what has changed. What cannot be kept is lost, and that is told to operators: the request was made.
    pub(crate) async fn close(self, origin: &Origin, failed: Option<&ToolError>) {
        let (state, now) = (&self.state, self.call.now());
        if let Err(error) = self.persist(origin, now).await {
            tracing::warn!(state = %state.id(), %error, "the cookies of a session could not be kept");
        }
        // Errors of the connection are counted for whoever looks; nothing is decided by them.
        let before = state.connection().await.unwrap_or_default();
        let errors = before.error_count + u64::from(failed.is_some());
        let last = failed.map(ToString::to_string).or(before.last_error);
        let known = json!({
            "active": false, "lastUsed": now, "errorCount": errors, "lastError": last, "sessionActive": !self.jar.is_empty(),
        });
        let _ = state.set(StateKind::Connection, known, None).await;
    }

    async fn persist(&self, origin: &Origin, now: Timestamp) -> Result<(), ToolError> {
        if self.set_cookies.is_empty() {
            return Ok(());
        }
        // Calls of one thread may end together; each lays what it heard over what the others kept.
        let _turn = write_lock(&self.state).lock().await;
        let mut jar = load_cookies(&self.state, origin).await?;
        for (set, path) in &self.set_cookies {
            jar.apply_set_cookie(set, &origin.host, path, now);
        }
        let data = json!({"host": origin.authority(), "cookies": jar});
        let kept = jar.max_lifetime(now).max(SESSION_COOKIE_TTL).min(MAX_COOKIE_TTL);
        self.state.set(StateKind::Cache, data, Some(kept)).await.map(|_| ()).map_err(session_error)
    }
}

/// The turn to write the cookies of a context, shared by a few of them.
fn write_lock(state: &ContextState) -> &'static Mutex<()> {
    static WRITE_LOCKS: LazyLock<[Mutex<()>; 64]> = LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(state.id().to_string());
    &WRITE_LOCKS[usize::try_from(hash % 64).unwrap_or_default()]
}

async fn load_cookies(state: &ContextState, origin: &Origin) -> Result<CookieJar, ToolError> {
    // Names of states are shorter than those of hosts, so two hosts may meet in one. Their cookies never do.
    let kept = state.get(StateKind::Cache).await.map_err(session_error)?;
    let kept = kept.filter(|entry| entry.data["host"] == origin.authority());
    // What cannot be read is forgotten: a service gives cookies again.
    Ok(kept.and_then(|entry| serde_json::from_value(entry.data["cookies"].clone()).ok()).unwrap_or_default())
}

fn session_error(error: toolhub_core::StateError) -> ToolError {
    ToolError::new("The tool's session cannot be read at the moment.").with_cause(error).uncounted().retryable(None)
}

fn path_of(target: &str) -> &str {
    target.split('?').next().unwrap_or("/")
}
