//! The API as a page: every route with what it takes and answers, and a form to try it. Nothing is fetched from outside.
//!
//! In: nothing. Out: three files that are part of the binary. The page reads `/openapi.json` and makes itself of that.

use axum::{
    http::{HeaderName, Method, header},
    response::{Html, IntoResponse},
};

use crate::{route::Route, scope::Access};

/// Scripts and styles of our own only, nothing inline, no frames, no forms that leave by themselves.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Vec<Route> {
    let open = Access::Open;
    vec![
        Route::new(Method::GET, "/docs", open, "system", page).says("This API as a page to read and try").answers_as(
            200,
            "text/html",
            "The page",
        ),
        Route::new(Method::GET, "/docs/page.js", open, "system", script).says("The page's script").answers_as(
            200,
            "text/javascript",
            "The script",
        ),
        Route::new(Method::GET, "/docs/page.css", open, "system", style).says("The page's style").answers_as(
            200,
            "text/css",
            "The style",
        ),
    ]
}

async fn page() -> impl IntoResponse {
    (safe(), Html(include_str!("docs/page.html")))
}

async fn script() -> impl IntoResponse {
    (safe(), [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("docs/page.js"))
}

async fn style() -> impl IntoResponse {
    (safe(), [(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("docs/page.css"))
}

/// A small page in the same dress. `title` and `up`, the way to the root, are ours; `body` is HTML.
pub(super) fn html(title: &str, body: &str, up: &str) -> impl IntoResponse {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title} · Toolhub</title>\
         <link rel=\"stylesheet\" href=\"{up}docs/page.css\"></head>\
         <body class=\"small\"><main><h1>{title}</h1>{body}</main></body></html>\n"
    );
    (safe(), Html(page))
}

/// A text inside HTML.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn safe() -> [(HeaderName, &'static str); 4] {
    [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ]
}
