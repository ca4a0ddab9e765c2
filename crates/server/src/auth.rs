//! Authenticates and authorises the requests of one route, then counts, logs and audits what came of them.
//!
//! In: requests the router has brought to this route. Out: the answer of the route, or a refusal. The access is the
//! route's own; the path plays no part. A handler that panics is answered for here, so that a mistake of ours ends one request
//! and not a connection.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::{
    access_log,
    app::App,
    audit,
    metrics::RouteMeter,
    problem::{Code, Problem},
    request_info::RequestInfo,
    scope::{Access, Principal},
    settings::Auth,
};

/// Guards one route: what must be known of the route when one of its requests comes.
pub(crate) struct RouteGuard {
    pub(crate) app: App,
    pub(crate) access: Access,
    /// Its pattern, such as `/api/v1/tools/{name}`.
    pub(crate) route: &'static str,
    /// The word in the audit, where what happens here is kept.
    pub(crate) audited: Option<&'static str>,
    pub(crate) meter: Arc<RouteMeter>,
}

/// A request nobody has a route for, which is told like any other.
pub(crate) fn respond_unrouted(app: &App, request: &Request, problem: Problem) -> Response {
    let response = problem.into_response();
    let meter = app.meters().route("-", "-");
    let seen = RequestSummary::of(request);
    seen.report("-", response.status(), None, &meter);
    response
}

impl RouteGuard {
    /// Answers a request with what `next` answers, or refuses it.
    pub(crate) async fn serve<F>(&self, mut request: Request, next: impl FnOnce(Request) -> F) -> Response
    where
        F: Future<Output = Response>,
    {
        let seen = RequestSummary::of(&request);
        let (response, principal) = match self.admit(request.headers(), seen.info.as_ref()).await {
            Err(problem) => (refusal_response(problem), None),
            Ok(principal) => {
                if let Some(principal) = &principal {
                    request.extensions_mut().insert(principal.clone());
                }
                let response = AssertUnwindSafe(next(request)).catch_unwind().await.unwrap_or_else(|_| {
                    Problem::new(Code::INTERNAL, "the request met a mistake in toolhub").into_response()
                });
                (response, principal)
            }
        };
        seen.report(self.route, response.status(), principal.as_ref(), &self.meter);
        self.audit(seen, response.status(), principal).await;
        response
    }

    /// Keeps what happened, where that is to be kept.
    async fn audit(&self, seen: RequestSummary, status: StatusCode, principal: Option<Principal>) {
        let denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let act = match self.audited {
            _ if denied => "denied",
            Some(word) => word,
            None => return,
        };
        let now = self.app.now();
        let not_kept = match denied.then(|| self.app.audit().try_admit_denial(now)) {
            None => 0,
            Some(Some(many)) => many,
            Some(None) => return,
        };
        let (who, tenant) = principal.map(|principal| (principal.caller, principal.tenant)).unzip();
        let entry = audit::Entry {
            id: audit::mint_id(now),
            at: now,
            act: act.into(),
            who,
            tenant,
            from: seen.info.as_ref().and_then(|info| info.peer).map(|peer| peer.ip()),
            method: seen.method.to_string(),
            path: seen.uri.path().to_owned(),
            status: status.as_u16(),
            request: seen.info.map(|info| info.id),
            not_kept,
        };
        self.app.audit().record(entry).await;
    }

    /// Who asks. Only an open route serves nobody in particular.
    async fn admit(&self, headers: &HeaderMap, info: Option<&RequestInfo>) -> Result<Option<Principal>, Problem> {
        let found = match &self.app.settings().auth {
            Auth::Local => authenticate_local(info).map(Some),
            Auth::Keys(_) => self.authenticate_key(headers).await,
        };
        let scope = match self.access {
            // Whoever says who they are may be told more; whoever does not is served as well.
            Access::Open => return Ok(found.unwrap_or_default()),
            Access::Needs(scope) => scope,
        };
        let principal = found?.ok_or_else(missing_key_problem)?;
        if !principal.has_scope(scope) {
            return Err(Problem::new(Code::FORBIDDEN, format!("this needs a key with the scope `{scope}`"))
                .with("scope", scope));
        }
        Ok(Some(principal))
    }

    async fn authenticate_key(&self, headers: &HeaderMap) -> Result<Option<Principal>, Problem> {
        let mut sent = headers.get_all(header::AUTHORIZATION).iter();
        let key = match (sent.next(), sent.next()) {
            (None, _) => return Ok(None),
            (Some(_), Some(_)) => return Err(invalid_key_problem()),
            (Some(one), None) => bearer_token(one).ok_or_else(invalid_key_problem)?,
        };
        let found = self.app.keys().find(key, self.app.now()).await?;
        found.map(Some).ok_or_else(invalid_key_problem)
    }
}

/// The answer to somebody who may not pass. HTTP wants to be told what would help.
fn refusal_response(problem: Problem) -> Response {
    let mut response = problem.into_response();
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Without keys only this machine is served, even if something brought a connection from elsewhere.
fn authenticate_local(info: Option<&RequestInfo>) -> Result<Principal, Problem> {
    let strange = info.and_then(|info| info.peer).filter(|peer| !peer.ip().to_canonical().is_loopback());
    match strange {
        None => Ok(Principal::local()),
        Some(_) => Err(Problem::new(Code::FORBIDDEN, "without keys only this machine is served")
            .hint("make a key with `toolhub keys create`")),
    }
}

/// The key in `Bearer <key>`.
fn bearer_token(value: &HeaderValue) -> Option<&str> {
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_matches(' '))
}

fn missing_key_problem() -> Problem {
    Problem::new(Code::UNAUTHENTICATED, "the request has no key")
        .hint("send `Authorization: Bearer thk_…`; `toolhub keys create` makes one")
}

/// One answer for every key that opens nothing, whatever is wrong with it.
fn invalid_key_problem() -> Problem {
    Problem::new(Code::UNAUTHENTICATED, "the key is unknown, has ended, or is not written as one")
        .hint("send `Authorization: Bearer thk_…`; `toolhub keys create` makes one")
}

/// What must be known of a request when it has been answered, and is gone by then.
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

    fn report(&self, route: &'static str, status: StatusCode, principal: Option<&Principal>, meter: &RouteMeter) {
        let took = self.started.elapsed();
        meter.record(status.as_u16(), took);
        let line = access_log::LogLine {
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
