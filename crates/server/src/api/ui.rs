//! The dashboard: its page at every address below `/ui/`, and the files that the page loads.
//!
//! In: an address below `/ui/`. Out: a file of the binary. The page holds no data, so it needs no key: it reads everything through the API.

use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderName, Method, StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::docs::escape_html;
use crate::{
    app::App,
    extract::Params,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::Access,
    ui::{self, Asset},
};

/// Only the server's own scripts and styles, nothing inline, no frames, no native form submission.
const CSP: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                   base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const SECURITY_HEADERS: [(HeaderName, &str); 5] = [
    // Also for scripts: a worker has the policy of its own response.
    (header::CONTENT_SECURITY_POLICY, CSP),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

pub(super) fn routes() -> Vec<Route> {
    let page_route = |path, handler_summary| {
        Route::new(Method::GET, path, Access::Open, "dashboard", page)
            .summary(handler_summary)
            .response(200, "text/html", "The page")
            .empty_response(304, "The page has not changed")
            .problems(&[Code::NOT_FOUND])
    };
    vec![
        Route::new(Method::GET, "/ui", Access::Open, "dashboard", root)
            .summary("Leads to the dashboard")
            .empty_response(308, "The dashboard is at `/ui/`")
            .response_header(&[308], "Location", "The address of the dashboard.")
            .problems(&[Code::NOT_FOUND]),
        page_route("/ui/", "The dashboard"),
        // The addresses of other routes with another method.
        page_route("/ui/login", "The dashboard's page to log in"),
        page_route("/ui/logout", "The dashboard's page after a logout"),
        Route::new(Method::GET, "/ui/{*path}", Access::Open, "dashboard", file_or_page)
            .summary("A page of the dashboard, or a file it loads")
            .response(200, "text/html", "The page, or the file")
            .empty_response(304, "The page has not changed"),
    ]
}

/// The address below `/ui/`.
#[derive(Debug, Deserialize, JsonSchema)]
struct UiPath {
    /// The page; or the version and the name of a file.
    path: String,
}

async fn root(State(app): State<App>) -> ApiResult<Redirect> {
    check_enabled(&app)?;
    Ok(Redirect::permanent(&address(&app)))
}

async fn page(State(app): State<App>, headers: HeaderMap) -> ApiResult<Response> {
    check_enabled(&app)?;
    let (page, tag) = ui::page(&escape_html(app.settings().base_path()));
    let is_known = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|tags| tags.to_str().ok())
        .any(|tags| tags.split(',').any(|known| known.trim().trim_start_matches("W/") == tag));
    let caching = [(header::CACHE_CONTROL, "no-cache".to_owned()), (header::ETAG, tag)];
    Ok(match is_known {
        true => (StatusCode::NOT_MODIFIED, SECURITY_HEADERS, caching).into_response(),
        false => (SECURITY_HEADERS, caching, Html(page)).into_response(),
    })
}

async fn file_or_page(
    state: State<App>,
    Params(UiPath { path }): Params<UiPath>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let found = path.split_once('/').and_then(|(version, name)| Some((version, ui::asset(name)?)));
    match found {
        None => page(state, headers).await,
        Some((version, asset)) => {
            check_enabled(&state)?;
            if version != ui::version() {
                let problem = Problem::new(Code::NOT_FOUND, "the page belongs to another version of the server");
                return Err(problem.hint("reload the page"));
            }
            Ok(file_response(asset, &headers))
        }
    }
}

fn file_response(asset: &'static Asset, headers: &HeaderMap) -> Response {
    let caching = [
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::VARY, "accept-encoding"),
        (header::CONTENT_TYPE, asset.media),
    ];
    if accepts_gzip(headers) {
        let encoding = [(header::CONTENT_ENCODING, "gzip")];
        return (SECURITY_HEADERS, caching, encoding, asset.gzip.clone()).into_response();
    }
    (SECURITY_HEADERS, caching, Bytes::from_static(asset.bytes)).into_response()
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let is_refused = weight.trim().strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0_f32));
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// The address of the dashboard, as a browser reaches it.
pub(super) fn address(app: &App) -> String {
    format!("{}/ui/", app.settings().base_path())
}

fn check_enabled(app: &App) -> ApiResult<()> {
    if app.settings().ui {
        return Ok(());
    }
    let hint = "set `server.ui = true`, or start the server without `--no-ui`";
    Err(Problem::new(Code::NOT_FOUND, "this server has no dashboard").hint(hint))
}
