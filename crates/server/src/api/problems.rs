//! Explanations of problem codes: the pages that `type` links to.
//!
//! In: a code. Out: its rows of the two code tables, and advice, as JSON or as an HTML page.

mod advice;

use axum::{
    http::{HeaderMap, Method, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::ErrorKind;

use super::docs;
use crate::{
    extract::Params,
    json::Json,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::Access,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/problems", Access::Open, "problems", index)
            .summary("All problem codes")
            .json_response::<CodeList>(200, "The codes, with meaning and advice")
            .response(200, "text/html", "The same as a page"),
        Route::new(Method::GET, "/problems/{code}", Access::Open, "problems", page)
            .summary("Meaning of a problem code, and what to do about it")
            .json_response::<CodeInfo>(200, "The code")
            .response(200, "text/html", "The same as a page"),
    ]
}

/// A code in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct CodePath {
    /// The code.
    code: String,
}

/// All problem codes.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProblemCodes")]
struct CodeList {
    /// The codes, by name.
    items: Vec<CodeInfo>,
}

/// A problem code.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ProblemCode")]
struct CodeInfo {
    /// The code.
    code: &'static str,
    /// The statuses of responses with it. 200: the call ran, and its outcome has the code.
    statuses: Vec<u16>,
    /// Its meaning.
    meaning: Vec<&'static str>,
    /// What to do about it.
    advice: &'static str,
    /// Whether the same request may succeed later.
    retryable: bool,
}

/// Every code of both tables, by name, each once.
fn all_codes() -> Vec<CodeInfo> {
    let mut names: Vec<&'static str> = Code::ALL.iter().map(|code| code.name).collect();
    names.extend(ErrorKind::TABLE.iter().map(|row| row.name));
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter_map(describe_code).collect()
}

fn describe_code(name: &str) -> Option<CodeInfo> {
    let codes = || Code::ALL.iter().filter(|code| code.name == name);
    let rows = || ErrorKind::TABLE.iter().filter(|row| row.name == name);
    let code = codes().map(|code| code.name).chain(rows().map(|row| row.name)).next()?;
    let mut statuses: Vec<u16> = codes().map(|code| code.status).chain(rows().map(|row| row.http)).collect();
    statuses.sort_unstable();
    statuses.dedup();
    // The text of the core's table is more specific than the title of the same code here.
    let mut meaning: Vec<&str> = rows().map(|row| row.operator).collect();
    if meaning.is_empty() {
        meaning.extend(codes().map(|code| code.title));
    }
    let retryable = rows().any(|row| row.retryable) || statuses.contains(&503) || statuses.contains(&429);
    Some(CodeInfo { code, statuses, meaning, advice: advice::advice_for(code), retryable })
}

async fn index(headers: HeaderMap) -> Response {
    let codes = all_codes();
    if prefers_html(&headers) {
        let items = codes.iter().map(|info| {
            format!(
                "<li><a href=\"problems/{0}\"><code>{0}</code></a> {1}</li>",
                info.code,
                docs::escape_html(&info.meaning.join("; "))
            )
        });
        return docs::html_page("Problems", &format!("<ul class=\"codes\">{}</ul>", items.collect::<String>()), "")
            .into_response();
    }
    Json(CodeList { items: codes }).into_response()
}

async fn page(headers: HeaderMap, Params(CodePath { code }): Params<CodePath>) -> ApiResult<Response> {
    let unknown = || Problem::new(Code::NOT_FOUND, "no problem has this code").hint("GET /problems lists every code");
    let info = describe_code(&code).ok_or_else(unknown)?;
    if !prefers_html(&headers) {
        return Ok(Json(info).into_response());
    }
    let statuses: Vec<String> = info.statuses.iter().map(ToString::to_string).collect();
    let retry =
        if info.retryable { "The same request may succeed later." } else { "The same request will fail again." };
    let body = format!(
        "<p class=\"lead\">{}.</p><p>{}</p><dl><dt>Status</dt><dd>{}</dd><dt>Retry?</dt><dd>{retry}</dd></dl>\
         <p><a href=\"../problems\">All codes</a> · <a href=\"../docs\">The API</a></p>",
        docs::escape_html(&info.meaning.join("; ")),
        docs::escape_html(info.advice),
        statuses.join(", "),
    );
    Ok(docs::html_page(info.code, &body, "../").into_response())
}

/// Whether the client prefers HTML, as browsers do.
fn prefers_html(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut media_types =
        values.flat_map(|value| value.split(',')).filter_map(|media_type| media_type.split(';').next());
    // The media type named first decides.
    let first = media_types
        .find(|media_type| matches!(media_type.trim(), "text/html" | "application/json" | "application/problem+json"));
    first.is_some_and(|media_type| media_type.trim() == "text/html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_meaning_and_advice_of_its_own() {
        for info in all_codes() {
            assert!(!info.meaning.is_empty() && !info.statuses.is_empty(), "{}", info.code);
            assert_ne!(info.advice, advice::NO_ADVICE, "`{}` needs advice", info.code);
        }
    }

    #[test]
    fn browsers_get_pages_and_programs_get_json() {
        for (accept, page) in [
            ("text/html,application/xhtml+xml,*/*;q=0.8", true),
            ("*/*", false),
            ("application/json", false),
            ("application/json, text/html;q=0.5", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(prefers_html(&headers), page, "{accept}");
        }
    }
}
