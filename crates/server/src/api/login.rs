//! Logins of the dashboard: a browser cannot keep a key safely, so it gets a cookie that its scripts cannot read.
//!
//! In: a key that a person types. Out: a cookie that stands for the key until a logout, 12 hours without a request, a week, or the end of
//! the key. In local mode there is nothing to log in to.

use axum::{
    extract::State,
    http::Method,
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{CallError, ErrorKind, clock::Timestamp};

use crate::{
    app::App,
    connections::Holder,
    extract::{Body, FromParts, MaybePrincipal},
    features,
    json::Json,
    problem::{ApiResult, Code, Problem},
    request_info::RequestInfo,
    route::Route,
    scope::{Access, Principal, Scope},
    settings::Auth,
    ui,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        // The response sets a cookie, so it must not be stored.
        Route::new(Method::POST, "/ui/login", Access::Open, "dashboard", log_in)
            .handles_idempotency()
            .summary("Log in to the dashboard with a key")
            .json_response::<Session>(200, "The session, and its cookie")
            .response_header(&[200], "Set-Cookie", "The cookie of the login; absent in local mode.")
            .problems(&[Code::UNAUTHENTICATED])
            .refusals(&[ErrorKind::RateLimited, ErrorKind::StoreUnavailable])
            .audited("login")
            .audited_failures("login.failed"),
        Route::new(Method::POST, "/ui/logout", Access::Authenticated, "dashboard", log_out)
            .handles_idempotency()
            .summary("End the login of this browser")
            .empty_response(204, "The login has ended")
            .refusals(&[ErrorKind::StoreUnavailable])
            .audited("logout"),
        Route::new(Method::GET, "/ui/session", Access::Open, "dashboard", session)
            .summary("Who uses the dashboard, and whether a login is needed")
            .json_response::<Session>(200, "The session"),
    ]
}

/// The key to log in with.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Login {
    /// The key.
    key: String,
}

/// Who uses the dashboard.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Session {
    /// Whether a login is needed. If so, all members about the key are null.
    login_needed: bool,
    /// Whether the server needs no keys.
    local: bool,
    /// The tenant of the key.
    tenant: Option<String>,
    /// The name of the key.
    caller: Option<String>,
    /// The permissions of the key; those of `admin` are listed too.
    scopes: Vec<Scope>,
    /// When the login or the key ends; the login only if it is not used until then.
    expires_at: Option<Timestamp>,
    /// The version of the server.
    version: &'static str,
    /// The version of the page. Another one than that of the loaded page asks for a reload.
    ui_version: &'static str,
    /// What this server has, beyond what every server has.
    features: Vec<&'static str>,
}

impl Session {
    fn of(app: &App, principal: Option<&Principal>) -> Self {
        let scopes =
            |principal: &Principal| Scope::ALL.into_iter().filter(|scope| principal.has_scope(*scope)).collect();
        let is_local = app.settings().auth == Auth::Local;
        Self {
            login_needed: principal.is_none(),
            local: is_local,
            tenant: principal.map(|principal| principal.tenant.to_string()),
            caller: principal.map(|principal| principal.caller.to_string()),
            scopes: principal.map(scopes).unwrap_or_default(),
            expires_at: principal.filter(|_| !is_local).and_then(|principal| app.keys().ends_at(principal)),
            version: env!("CARGO_PKG_VERSION"),
            ui_version: ui::version(),
            features: features::of(app),
        }
    }

    fn into_response(self) -> Response {
        ([(header::CACHE_CONTROL, "no-store")], Json(self)).into_response()
    }
}

/// The address that an attempt to log in comes from.
struct Address(Option<Holder>);

impl FromParts for Address {
    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let peer = parts.extensions.get::<RequestInfo>().and_then(|info| info.peer);
        Ok(Self(peer.map(|peer| Holder::of_peer(peer.ip()))))
    }
}

async fn log_in(
    State(app): State<App>,
    local: MaybePrincipal,
    Address(address): Address,
    Body(Login { key }): Body<Login>,
) -> ApiResult<Response> {
    if app.settings().auth == Auth::Local {
        return Ok(Session::of(&app, local.0.as_ref()).into_response());
    }
    let attempts = app.login_attempts();
    if let Err(wait) = attempts.begin(address.as_ref()) {
        let mut error =
            CallError::new(ErrorKind::RateLimited).operator("too many logins from this address have failed");
        error.retry_after = Some(wait);
        return Err(error.into());
    }
    let login = app.keys().log_in(key.trim(), app.now()).await;
    if !matches!(login, Ok(None)) {
        attempts.forgive(address.as_ref());
    }
    let Some((secret, principal)) = login? else {
        return Err(Problem::new(Code::UNAUTHENTICATED, "this is not a valid key of this server"));
    };
    let mut response = Session::of(&app, Some(&principal)).into_response();
    response.headers_mut().extend(app.login_cookie().set(&secret).map(|cookie| (header::SET_COOKIE, cookie)));
    // The request had no principal; the audit log names the one it has got.
    response.extensions_mut().insert(principal);
    Ok(response)
}

async fn log_out(State(app): State<App>, principal: Principal) -> ApiResult<Response> {
    if let Some(login) = &principal.login {
        app.keys().log_out(login).await?;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    response.headers_mut().extend(app.login_cookie().clear().map(|cookie| (header::SET_COOKIE, cookie)));
    Ok(response)
}

async fn session(State(app): State<App>, MaybePrincipal(principal): MaybePrincipal) -> Response {
    Session::of(&app, principal.as_ref()).into_response()
}
