//! The access log: one `tracing` event per request.
//!
//! In: the facts known when a request has been answered. Out: an event with method, route, status, duration, key,
//! request id and trace id. It never contains query values, headers or bodies, nor an unknown path, because people
//! paste secrets into URLs. The host program decides where the events go.

use std::time::Duration;

use axum::http::{HeaderMap, Method};
use toolhub_core::ids::Caller;

use crate::request_info::RequestInfo;

/// Polled by machines every few seconds: a line per successful response would bury all others.
const PROBE_ROUTES: [&str; 4] = ["/livez", "/readyz", "/healthz", "/metrics"];

/// The facts of one request.
pub(crate) struct LogLine<'a> {
    pub(crate) method: &'a Method,
    pub(crate) route: &'static str,
    pub(crate) status: u16,
    pub(crate) took: Duration,
    pub(crate) key: Option<&'a Caller>,
    pub(crate) info: Option<&'a RequestInfo>,
    pub(crate) trace: Option<&'a str>,
}

impl LogLine<'_> {
    /// Emits the event.
    pub(crate) fn emit(&self) {
        let LogLine { method, route, status, took, key, info, trace } = *self;
        if status < 400 && PROBE_ROUTES.contains(&route) {
            return;
        }
        tracing::info!(
            target: "toolhub::access",
            %method,
            route,
            status,
            ms = (took.as_secs_f64() * 1e6).round() / 1e3,
            key = key.map(Caller::as_str),
            peer = info.and_then(|info| info.peer).map(tracing::field::display),
            request = info.map(|info| info.id.as_str()),
            trace,
            "request"
        );
    }
}

/// Whether any subscriber records these events.
pub(crate) fn is_enabled() -> bool {
    tracing::enabled!(target: "toolhub::access", tracing::Level::INFO)
}

/// The trace id of a request: the second part of its `traceparent`.
pub(crate) fn trace_id(headers: &HeaderMap) -> Option<String> {
    let mut parts = headers.get("traceparent")?.to_str().ok()?.split('-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (version.len() == 2 && trace.len() == 32 && hex(version) && hex(trace) && trace.bytes().any(|byte| byte != b'0'))
        .then(|| trace.to_owned())
}
