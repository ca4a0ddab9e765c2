//! The API documentation as a page: every route with its inputs and responses, and a form to try it. Loads nothing from
//! other servers.
//!
//! In: nothing. Out: three files that are part of the binary. The page renders itself from `/openapi.json`.

use axum::{
    extract::State,
    http::{HeaderName, Method, header},
    response::{Html, IntoResponse, Redirect},
};

use super::ui;
use crate::{app::App, route::Route, scope::Access};

/// Only the server's own scripts and styles, nothing inline, no frames, no native form submission.
const CSP_HEADER: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The same for a page without scripts.
const STATIC_CSP_HEADER: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Vec<Route> {
    let open = Access::Open;
    vec![
        Route::new(Method::GET, "/", open, "system", root)
            .summary("Leads to the dashboard, or without one to the page with this API")
            .empty_response(307, "The page is at `/ui/` or `/docs`")
            .response_header(&[307], "Location", "The address of the page."),
        Route::new(Method::GET, "/docs", open, "system", page).summary("This API as a page to read and try").response(
            200,
            "text/html",
            "The page",
        ),
        Route::new(Method::GET, "/docs/page.js", open, "system", script).summary("The page's script").response(
            200,
            "text/javascript",
            "The script",
        ),
        Route::new(Method::GET, "/docs/page.css", open, "system", style).summary("The page's style").response(
            200,
            "text/css",
            "The style",
        ),
    ]
}

/// A browser that opens the address of the server gets a page. Temporary, because the dashboard can be switched off.
async fn root(State(app): State<App>) -> Redirect {
    match app.settings().ui {
        true => Redirect::temporary(&ui::address(&app)),
        false => Redirect::temporary(&format!("{}/docs", app.settings().base_path())),
    }
}

async fn page() -> impl IntoResponse {
    (security_headers(CSP_HEADER), Html(include_str!("docs/page.html")))
}

async fn script() -> impl IntoResponse {
    (
        security_headers(CSP_HEADER),
        [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")],
        include_str!("docs/page.js"),
    )
}

async fn style() -> impl IntoResponse {
    (security_headers(CSP_HEADER), [(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("docs/page.css"))
}

/// A small page in the same style, without scripts. `title` and `up`, the relative path to the root, must be trusted; `body` is HTML.
pub(super) fn html_page(title: &str, body: &str, up: &str) -> impl IntoResponse + use<> {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title} · Toolhub</title>\
         <link rel=\"stylesheet\" href=\"{up}docs/page.css\"></head>\
         <body class=\"small\"><main><h1>{title}</h1>{body}</main></body></html>\n"
    );
    (security_headers(STATIC_CSP_HEADER), Html(page))
}

/// Escapes a text for HTML.
pub(super) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

fn security_headers(csp: &'static str) -> [(HeaderName, &'static str); 4] {
    [
        (header::CONTENT_SECURITY_POLICY, csp),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ]
}
