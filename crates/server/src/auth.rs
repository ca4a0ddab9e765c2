//! Middleware of one route: authenticates and authorises its requests, then counts, logs and audits them.
//!
//! In: requests that the router matched to this route. Out: the response of the route, or a problem. Access is a
//! property of the route, not of the path. Catches a panic of the handler, so that a bug ends one request and not the
//! connection.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, request::Parts},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use tokio::time::Instant;
use toolhub_core::{CallError, ErrorKind, ToolName};

use crate::{
    access_log,
    admission::{Permit, Priority},
    app::App,
    audit,
    connections::{ConnState, Executing, Holder},
    metrics::RouteMeter,
    problem::{self, Code, Problem},
    request_info::RequestInfo,
    scope::{Access, Principal, Scope},
    settings::Auth,
};

/// When a client that was refused because of the load should try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Builds a page for a browser that sends no key, from the head of its request. It must show no data.
pub(crate) type KeyPage = fn(&App, &mut Parts) -> Response;

/// Guards one route.
pub(crate) struct RouteGuard {
    pub(crate) app: App,
    pub(crate) access: Access,
    /// Its pattern, such as `/api/v1/tools/{name}`.
    pub(crate) route: &'static str,
    /// The action to record in the audit log, if the route is audited.
    pub(crate) audited: Option<&'static str>,
    /// The action to record instead for a request that does not succeed.
    pub(crate) audited_failures: Option<&'static str>,
    pub(crate) meter: Arc<RouteMeter>,
    pub(crate) key_page: Option<KeyPage>,
    pub(crate) is_health_check: bool,
}

/// Logs and counts a request that no route handles, and answers with `problem`.
pub(crate) fn respond_unrouted(app: &App, request: &Request, problem: Problem) -> Response {
    let response = problem.into_response();
    let meter = app.meters().route("-", "-");
    let summary = RequestSummary::of(request);
    summary.report("-", response.status(), None, None, &meter);
    response
}

impl RouteGuard {
    /// Answers a request with the response of `next`, or with a problem if it is not authorised.
    pub(crate) async fn serve<F>(&self, mut request: Request, next: impl FnOnce(Request) -> F) -> Response
    where
        F: Future<Output = Response>,
    {
        let summary = RequestSummary::of(&request);
        let (authenticated, principal) =
            match self.authenticate(request.method(), request.headers(), summary.info.as_ref()).await {
                Ok(principal) => (Ok(()), principal),
                Err(problem) => (Err(problem), None),
            };
        let admitted = self.authorize(authenticated, principal.as_ref()).and_then(|()| {
            let conn = request.extensions_mut().remove::<Arc<ConnState>>();
            conn.map(|conn| self.begin_execution(&conn, principal.as_ref())).transpose()
        });
        let (response, principal) = match admitted {
            Err(problem) => match self.key_page.filter(|_| is_browser_without_key(&problem, request.headers())) {
                Some(page) => (unauthorized(page(&self.app, &mut request.into_parts().0)), None),
                None => (problem.into_response(), principal),
            },
            // Held until the response begins.
            Ok(_execution) => {
                if let Some(principal) = &principal {
                    request.extensions_mut().insert(principal.clone());
                }
                let mut response = AssertUnwindSafe(next(request)).catch_unwind().await.unwrap_or_else(|_| {
                    Problem::new(Code::INTERNAL, "internal error: the request handler panicked").into_response()
                });
                // A login has one only from then on.
                let principal = response.extensions_mut().remove::<Principal>().or(principal);
                (response, principal)
            }
        };
        let tool = self.logged_tool(&summary);
        summary.report(self.route, response.status(), tool.as_ref(), principal.as_ref(), &self.meter);
        self.audit(summary, response.status(), principal).await;
        response
    }

    /// The tool that the request names, if it is logged.
    fn logged_tool(&self, summary: &RequestSummary) -> Option<ToolName> {
        let is_enabled = access_log::is_enabled();
        is_enabled.then(|| access_log::tool_of(self.app.hub(), self.route, &summary.uri)).flatten()
    }

    /// Records the request in the audit log if it was denied or the route is audited.
    async fn audit(&self, summary: RequestSummary, status: StatusCode, principal: Option<Principal>) {
        let denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let failure = self.audited_failures.filter(|_| !status.is_success()).or(denied.then_some("denied"));
        let Some(act) = failure.or(self.audited) else { return };
        let now = self.app.now();
        let not_kept = match failure.is_some().then(|| self.app.audit().try_admit_denial(now)) {
            None => 0,
            Some(Some(dropped)) => dropped,
            Some(None) => return,
        };
        let peer = summary.info.as_ref().and_then(|info| info.peer);
        let has_keys = matches!(self.app.settings().auth, Auth::Keys(_));
        let via = principal.as_ref().map(|principal| audit::Via::of(principal, has_keys, peer));
        let (who, tenant) = principal.map(|principal| (principal.caller, principal.tenant)).unzip();
        let entry = audit::Entry {
            id: audit::mint_id(now),
            at: now,
            act: act.into(),
            who,
            tenant,
            object: audit::object_of(self.route, summary.uri.path()),
            via,
            from: peer.map(|peer| peer.ip()),
            method: summary.method.to_string(),
            path: summary.uri.path().to_owned(),
            status: status.as_u16(),
            request: summary.info.map(|info| info.id),
            not_kept,
        };
        self.app.audit().record(entry).await;
    }

    /// The principal of a request; `None` if it has no key where keys are needed.
    async fn authenticate(
        &self,
        method: &Method,
        headers: &HeaderMap,
        info: Option<&RequestInfo>,
    ) -> Result<Option<Principal>, Problem> {
        match &self.app.settings().auth {
            Auth::Local => authenticate_local(info).map(Some),
            Auth::Keys(_) => self.authenticate_key(method, headers).await,
        }
    }

    /// Whether the principal may use the route.
    fn authorize(&self, authenticated: Result<(), Problem>, principal: Option<&Principal>) -> Result<(), Problem> {
        let scope = match self.access {
            // An open route shows more to an authenticated client, and still serves every other one.
            Access::Open => return Ok(()),
            Access::Authenticated => None,
            Access::Needs(scope) => Some(scope),
        };
        authenticated?;
        let principal = principal.ok_or_else(missing_key_problem)?;
        match scope.filter(|scope| !principal.has_scope(*scope)) {
            None => Ok(()),
            Some(scope) => Err(Problem::new(Code::FORBIDDEN, format!("this needs a key with the scope `{scope}`"))
                .with("scope", scope)),
        }
    }

    /// Whether the request may be executed now: many that are leave places for other clients, administrators and health
    /// checks.
    fn begin_execution(
        &self,
        conn: &Arc<ConnState>,
        principal: Option<&Principal>,
    ) -> Result<(Permit, Option<Executing>), Problem> {
        let has_keys = matches!(self.app.settings().auth, Auth::Keys(_));
        let key = principal.filter(|_| has_keys).map(Holder::of_key);
        if principal.is_some() {
            conn.on_authenticated(key.as_ref());
        }
        // An operator must be able to withhold a tool when the server is full.
        let is_operation = matches!(self.access, Access::Needs(Scope::Admin | Scope::ToolsWrite));
        let is_reserved = self.is_health_check || is_operation;
        let priority = if is_reserved { Priority::Reserved } else { Priority::Normal };
        let holder = key.unwrap_or_else(|| conn.peer().clone());
        let permit = self.app.admission().try_acquire(holder, priority).ok_or_else(overloaded_problem)?;
        Ok((permit, principal.is_some().then(|| conn.begin_execution())))
    }

    /// The principal of the key in a request, or of its login. A key takes precedence, also one that is not valid.
    async fn authenticate_key(&self, method: &Method, headers: &HeaderMap) -> Result<Option<Principal>, Problem> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let key = match (values.next(), values.next()) {
            (None, _) => return self.authenticate_login(method, headers).await,
            (Some(_), Some(_)) => return Err(invalid_key_problem()),
            (Some(value), None) => bearer_token(value).ok_or_else(invalid_key_problem)?,
        };
        let found = self.app.keys().find(key, self.app.now()).await?;
        found.map(Some).ok_or_else(invalid_key_problem)
    }

    async fn authenticate_login(&self, method: &Method, headers: &HeaderMap) -> Result<Option<Principal>, Problem> {
        let secrets = self.app.login_cookie().secrets(method, headers)?;
        for secret in &secrets {
            if let Some(principal) = self.app.keys().find_login(secret, self.app.now()).await? {
                return Ok(Some(principal));
            }
        }
        let ended = || Problem::new(Code::UNAUTHENTICATED, "the login has ended").hint("log in again at `/ui/`");
        if secrets.is_empty() { Ok(None) } else { Err(ended()) }
    }
}

/// The problem for a request that finds too many others being executed.
fn overloaded_problem() -> Problem {
    let mut error = CallError::new(ErrorKind::Overloaded)
        .operator("the server executes as many requests as it may (`server.max_connections`)");
    error.retry_after = Some(RETRY_AFTER);
    Problem::from(error)
}

/// The page for a client without a key. HTTP requires `WWW-Authenticate` with a 401.
fn unauthorized(mut response: Response) -> Response {
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    response.headers_mut().insert(header::WWW_AUTHENTICATE, problem::AUTHENTICATE);
    response
}

/// Whether a request was refused because it has no key, and its sender shows pages to a person.
fn is_browser_without_key(problem: &Problem, headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    problem.is_unauthenticated() && !headers.contains_key(header::AUTHORIZATION) && accept.contains("text/html")
}

/// Without keys only loopback peers are served, even if a proxy or forwarder brought another connection here.
fn authenticate_local(info: Option<&RequestInfo>) -> Result<Principal, Problem> {
    let remote_peer = info.and_then(|info| info.peer).filter(|peer| !peer.ip().to_canonical().is_loopback());
    match remote_peer {
        None => Ok(Principal::local()),
        Some(_) => Err(Problem::new(Code::FORBIDDEN, "without keys only clients on this machine are served")
            .hint("create a key with `toolhub keys create`")),
    }
}

/// The key in `Bearer <key>`.
fn bearer_token(value: &HeaderValue) -> Option<&str> {
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_matches(' '))
}

fn missing_key_problem() -> Problem {
    Problem::new(Code::UNAUTHENTICATED, "the request has no key")
        .hint("send `Authorization: Bearer thk_…`; `toolhub keys create` creates one")
}

/// One problem for every invalid key: the response must not say what is wrong with it.
fn invalid_key_problem() -> Problem {
    Problem::new(Code::UNAUTHENTICATED, "the key is unknown, expired or malformed")
        .hint("send `Authorization: Bearer thk_…`; `toolhub keys create` creates one")
}

/// The facts of a request that are needed after the handler has consumed it.
struct RequestSummary {
    method: Method,
    uri: Uri,
    started: Instant,
    info: Option<RequestInfo>,
    trace: Option<String>,
}

impl RequestSummary {
    fn of(request: &Request) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            started: Instant::now(),
            info: request.extensions().get::<RequestInfo>().cloned(),
            trace: if access_log::is_enabled() { access_log::trace_id(request.headers()) } else { None },
        }
    }

    fn report(
        &self,
        route: &'static str,
        status: StatusCode,
        tool: Option<&ToolName>,
        principal: Option<&Principal>,
        meter: &RouteMeter,
    ) {
        let took = self.started.elapsed();
        meter.record(status.as_u16(), took);
        let line = access_log::LogLine {
            tool,
            method: &self.method,
            route,
            status: status.as_u16(),
            took,
            key: principal.map(|principal| &principal.caller),
            info: self.info.as_ref(),
            trace: self.trace.as_deref(),
        };
        line.emit();
    }
}
