//! What each code of a problem means and what to do about it: the pages that `type` leads to.
//!
//! In: a code. Out: its rows of the two tables, and advice, as JSON or as a page for people.

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
            .summary("Every code a problem may have")
            .json_response::<CodeList>(200, "What each means and what to do about it")
            .response(200, "text/html", "The same as a page"),
        Route::new(Method::GET, "/problems/{code}", Access::Open, "problems", page)
            .summary("What a code means and what to do about it")
            .json_response::<CodeInfo>(200, "Its meaning")
            .response(200, "text/html", "The same as a page"),
    ]
}

/// A code in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct CodePath {
    /// The code.
    code: String,
}

/// Every code.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ProblemCodes")]
struct CodeList {
    /// The codes, by name.
    items: Vec<CodeInfo>,
}

/// What a code means.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ProblemCode")]
struct CodeInfo {
    /// The code.
    code: &'static str,
    /// The statuses it is answered with. 200: the call ran, and its outcome has the code.
    statuses: Vec<u16>,
    /// What it means.
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
    // What the core says of a code is nearer to the matter than the title of the same code here.
    let mut meaning: Vec<&str> = rows().map(|row| row.operator).collect();
    if meaning.is_empty() {
        meaning.extend(codes().map(|code| code.title));
    }
    let retryable = rows().any(|row| row.retryable) || statuses.contains(&503) || statuses.contains(&429);
    Some(CodeInfo { code, statuses, meaning, advice: advice::advice_for(code), retryable })
}

async fn index(headers: HeaderMap) -> Response {
    let all = all_codes();
    if prefers_html(&headers) {
        let each = all.iter().map(|one| {
            format!(
                "<li><a href=\"problems/{0}\"><code>{0}</code></a> {1}</li>",
                one.code,
                docs::escape_html(&one.meaning.join("; "))
            )
        });
        return docs::html_page("Problems", &format!("<ul class=\"codes\">{}</ul>", each.collect::<String>()), "")
            .into_response();
    }
    Json(CodeList { items: all }).into_response()
}

async fn page(headers: HeaderMap, Params(CodePath { code }): Params<CodePath>) -> ApiResult<Response> {
    let unknown = || Problem::new(Code::NOT_FOUND, "no problem has this code").hint("GET /problems lists every code");
    let one = describe_code(&code).ok_or_else(unknown)?;
    if !prefers_html(&headers) {
        return Ok(Json(one).into_response());
    }
    let statuses: Vec<String> = one.statuses.iter().map(ToString::to_string).collect();
    let again = if one.retryable { "The same request may succeed later." } else { "The same request will fail again." };
    let body = format!(
        "<p class=\"lead\">{}.</p><p>{}</p><dl><dt>Status</dt><dd>{}</dd><dt>Again?</dt><dd>{again}</dd></dl>\
         <p><a href=\"../problems\">All codes</a> · <a href=\"../docs\">The API</a></p>",
        docs::escape_html(&one.meaning.join("; ")),
        docs::escape_html(one.advice),
        statuses.join(", "),
    );
    Ok(docs::html_page(one.code, &body, "../").into_response())
}

/// Whether it is a browser that asks.
fn prefers_html(headers: &HeaderMap) -> bool {
    let said = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = said.flat_map(|value| value.split(',')).filter_map(|kind| kind.split(';').next());
    // Whoever names both takes what is named first.
    let first = kinds.find(|kind| matches!(kind.trim(), "text/html" | "application/json" | "application/problem+json"));
    first.is_some_and(|kind| kind.trim() == "text/html")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_meaning_and_advice_of_its_own() {
        for one in all_codes() {
            assert!(!one.meaning.is_empty() && !one.statuses.is_empty(), "{}", one.code);
            assert_ne!(one.advice, advice::NO_ADVICE, "`{}` needs advice", one.code);
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
