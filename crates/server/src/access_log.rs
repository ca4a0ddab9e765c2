//! The access log: one `tracing` event per request.
//!
//! In: the facts known when a request has been answered. Out: an event with tool, status, duration, method, route, key,
//! request id and trace id. It never contains query values, headers or bodies, nor an unknown path or tool name, because
//! people paste secrets into URLs. The host program decides where the events go.

use std::time::Duration;

use axum::http::{HeaderMap, Method, Uri};
use toolhub_core::{ToolHub, ToolName, ids::Caller, millis::fractional};

use crate::request_info::RequestInfo;

/// Polled by machines every few seconds: a line per successful response would bury all others.
const PROBE_ROUTES: [&str; 4] = ["/livez", "/readyz", "/healthz", "/metrics"];

/// The facts of one request.
pub(crate) struct LogLine<'a> {
    pub(crate) tool: Option<&'a ToolName>,
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
        let LogLine { tool, method, route, status, took, key, info, trace } = *self;
        if status < 400 && PROBE_ROUTES.contains(&route) {
            return;
        }
        tracing::info!(
            target: "toolhub::access",
            tool = tool.map(ToolName::as_str),
            status,
            ms = fractional::from_duration(took),
            %method,
            route,
            key = key.map(Caller::as_str),
            peer = info.and_then(|info| info.peer).map(tracing::field::display),
            request = info.map(|info| info.id.as_str()),
            trace,
            "request"
        );
    }
}

/// The registered tool that a request to this route names.
pub(crate) fn tool_of(hub: &ToolHub, route: &str, uri: &Uri) -> Option<ToolName> {
    const TOOL_ROUTE: &str = "/api/v1/tools/{name}";
    let name = uri.path().strip_prefix(TOOL_ROUTE.strip_suffix("{name}")?)?.split('/').next()?;
    let is_tool_route = route.strip_prefix(TOOL_ROUTE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_tool_route.then(|| hub.get(name).map(|tool| tool.definition.name.clone())).flatten()
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
