//! Answers requests to the MCP endpoint.
//!
//! In: a request, its caller and its address. Out: a response. The era of the protocol is decided per request; scope and session are
//! checked before anything is handled.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Method, Request, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use http_body_util::Full;
use rmcp::{
    model::ProtocolVersion,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use toolhub_core::{CancellationToken, ToolHub, backend::Backend, json::JsonLimits};

use super::{
    direct_call::{ModernCall, SessionCall},
    envelope::{Envelope, Refusal, VERSION_HEADER, read_message},
    legacy::{Legacy, SESSION_HEADER, unknown_session},
    meters::EndpointMeters,
    request::McpRequest,
    server::HubServer,
    session::Session,
    sessions::Sessions,
};
use crate::{
    audit::Audit,
    problem::{Code, Problem},
    scope::{Principal, Scope},
    settings::Settings,
};

/// Set on a response whose stream lasts as long as its client wants.
#[derive(Debug, Clone)]
pub(crate) struct EndlessStream;

/// The MCP endpoint of a server.
pub(crate) struct McpEndpoint {
    legacy: Legacy,
    modern: StreamableHttpService<HubServer, NeverSessionManager>,
    limits: JsonLimits,
}

impl McpEndpoint {
    pub(crate) fn new(
        hub: &ToolHub,
        store: &Arc<dyn Backend>,
        audit: &Arc<Audit>,
        settings: &Settings,
        stopping: &CancellationToken,
    ) -> Self {
        let server = HubServer::new(hub, audit, settings, stopping);
        let legacy =
            Legacy { server: server.clone(), sessions: Sessions::new(store, hub.clock(), &settings.mcp, stopping) };
        let config = StreamableHttpServerConfig::default()
            // The listener has checked both.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(usize::MAX);
        let modern = StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config);
        Self { legacy, modern, limits: settings.limits.json() }
    }

    /// The durations of requests, and the clients that listen.
    pub(crate) fn meters(&self) -> &EndpointMeters {
        self.legacy.server.meters()
    }

    /// The number of sessions.
    pub(crate) fn sessions(&self) -> usize {
        self.legacy.sessions.count()
    }

    /// Answers a request of an authenticated caller.
    pub(crate) async fn serve(&self, parts: Parts, body: Bytes, request: McpRequest) -> Response {
        let served = match parts.method {
            Method::POST => self.post(parts, body, request).await,
            Method::GET | Method::DELETE => Box::pin(self.session_request(&parts, request)).await,
            // A HEAD request is routed like a GET.
            _ => Err(Rejection::Method { detail: "use POST, GET or DELETE".into(), allowed: "POST, GET, DELETE" }),
        };
        served.unwrap_or_else(IntoResponse::into_response)
    }

    async fn post(&self, mut parts: Parts, body: Bytes, mut request: McpRequest) -> Result<Response, Rejection> {
        let envelope = Envelope::read(&body, self.limits)?;
        check_scope(&request.principal, envelope.scope())?;
        let is_legacy = is_legacy(&parts, &envelope)?;
        if !is_legacy {
            if let Some(method) = envelope.method.as_deref().filter(|method| LEGACY_METHODS.contains(method)) {
                return Err(Refusal::unknown_method(method).to(envelope.id.clone()).into());
            }
            envelope.check_subscriptions().map_err(|refusal| refusal.to(envelope.id.clone()))?;
        }
        let (id, listens) = (envelope.id.clone(), envelope.method.as_deref() == Some("subscriptions/listen"));
        if is_legacy {
            request.session = match parts.headers.get(SESSION_HEADER) {
                Some(id) => Some(self.find_session(id, &request.principal).await?),
                None => None,
            };
            let request = Arc::new(request);
            let call = request.session.as_ref().and_then(|session| SessionCall::read(&envelope, session));
            drop(envelope);
            if let (Some(session), Some(call)) = (&request.session, call) {
                return Ok(self.legacy.call(session, call, request.clone(), id).await);
            }
            parts.extensions.insert(request.clone());
            return Ok(Box::pin(self.legacy.post(parts, &body, &request, id)).await);
        }
        if let Some(call) = ModernCall::read(&envelope, &parts.headers, &self.legacy.server) {
            drop(envelope);
            return Ok(call.answer(Arc::new(request), &self.legacy.server).await);
        }
        drop(envelope);
        read_message(&body).map_err(|refusal| refusal.to(id))?;
        // `rmcp` refuses clients that do not list both types; an answer is of one of them.
        parts.headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        // It compares the type as a text; the body was parsed.
        parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        parts.extensions.insert(Arc::new(request));
        let handled = Box::pin(self.modern.handle(Request::from_parts(parts, Full::new(body)))).await;
        let mut response = handled.map(Body::new);
        if listens {
            response.extensions_mut().insert(EndlessStream);
        }
        Ok(response)
    }

    /// Answers a GET or DELETE, which are about a session.
    async fn session_request(&self, parts: &Parts, request: McpRequest) -> Result<Response, Rejection> {
        let Some(id) = parts.headers.get(SESSION_HEADER) else {
            let version = parts.headers.get(VERSION_HEADER).map_or(&[][..], HeaderValue::as_bytes);
            if version < ProtocolVersion::V_2026_07_28.as_str().as_bytes() {
                return Err(Refusal::no_session().into());
            }
            let detail = format!("protocol version 2026-07-28 has no {}; use POST", parts.method);
            return Err(Rejection::Method { detail, allowed: "POST" });
        };
        if parts.method == Method::GET {
            check_scope(&request.principal, Some(Scope::ToolsRead))?;
            let session = self.find_session(id, &request.principal).await?;
            let mut response = self.legacy.get(parts, &session, &request).await;
            response.extensions_mut().insert(EndlessStream);
            return Ok(response);
        }
        let is_closed = self.legacy.sessions.close(id.to_str().unwrap_or_default(), &request.principal).await;
        match is_closed.map_err(Problem::from)? {
            true => Ok(StatusCode::NO_CONTENT.into_response()),
            false => Err(unknown_session().into()),
        }
    }

    async fn find_session(&self, id: &HeaderValue, principal: &Principal) -> Result<Arc<Session>, Rejection> {
        let Ok(id) = id.to_str() else { return Err(unknown_session().into()) };
        let found = self.legacy.sessions.find(id, principal).await.map_err(Problem::from)?;
        found.ok_or_else(|| unknown_session().into())
    }
}

/// Whether a message belongs to a protocol version before 2026-07-28.
fn is_legacy(parts: &Parts, envelope: &Envelope<'_>) -> Result<bool, Rejection> {
    let mut headers = parts.headers.get_all(VERSION_HEADER).iter();
    let header = headers.next().map(|value| String::from_utf8_lossy(value.as_bytes()));
    if headers.next().is_some() {
        return Err(Refusal::repeated_header("MCP-Protocol-Version").to(envelope.id.clone()).into());
    }
    let is_known = |version: &str| ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.as_str() == version);
    match envelope.method.as_deref() {
        // A client that falls back to the legacy era names no version in `_meta`.
        Some("initialize") if envelope.version().is_some_and(|version| is_modern(&version)) => {
            return Err(Refusal::unknown_method("initialize").to(envelope.id.clone()).into());
        }
        Some("initialize") => return Ok(true),
        Some("server/discover") => return Ok(false),
        _ => {}
    }
    if let Some(header) = header.as_deref().filter(|header| !is_known(header)) {
        return Err(Refusal::unknown_version(header).to(envelope.id.clone()).into());
    }
    let (header, body) = (header.as_deref(), envelope.version());
    if header.is_some_and(|header| !is_modern(header)) && body.as_deref().is_some_and(is_modern) {
        return Err(Refusal::header_mismatch("MCP-Protocol-Version").to(envelope.id.clone()).into());
    }
    Ok(header.or(body.as_deref()).is_none_or(|version| !is_modern(version)))
}

/// The methods that version 2026-07-28 has no more.
const LEGACY_METHODS: [&str; 5] =
    ["initialize", "logging/setLevel", "ping", "resources/subscribe", "resources/unsubscribe"];

fn is_modern(version: &str) -> bool {
    version >= ProtocolVersion::V_2026_07_28.as_str()
}

/// Refuses a caller whose key lacks the scope; without one, a caller that may neither list nor call.
fn check_scope(principal: &Principal, scope: Option<Scope>) -> Result<(), Rejection> {
    let sufficient = scope.map_or_else(|| vec![Scope::ToolsRead, Scope::ToolsCall], |scope| vec![scope]);
    if sufficient.iter().any(|scope| principal.has_scope(*scope)) {
        return Ok(());
    }
    Err(Rejection::Scope(sufficient[0]))
}

/// Why a request is not handled.
enum Rejection {
    Message(Box<Refusal>),
    Problem(Box<Problem>),
    /// The caller's key lacks a scope.
    Scope(Scope),
    /// The address does not take the method of the request.
    Method {
        detail: String,
        allowed: &'static str,
    },
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        Self::Message(Box::new(refusal))
    }
}

impl From<Problem> for Rejection {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let scope = match self {
            Self::Message(refusal) => return refusal.into_response(),
            Self::Problem(problem) => return problem.into_response(),
            Self::Method { detail, allowed } => {
                let problem = Problem::new(Code::METHOD_NOT_ALLOWED, detail);
                return ([(header::ALLOW, allowed)], problem).into_response();
            }
            Self::Scope(scope) => scope,
        };
        let detail = format!("this needs a key with the scope `{scope}`");
        let mut response = Problem::new(Code::FORBIDDEN, detail).with("scope", scope).into_response();
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
        if let Ok(challenge) = HeaderValue::try_from(challenge) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
