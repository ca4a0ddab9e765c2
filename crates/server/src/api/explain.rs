//! Why a tool is, or is not, offered, and what would change that.

use axum::{
    extract::State,
    http::{Method, header},
    response::IntoResponse,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{ErrorKind, Explanation, ids::ThreadId, status::Language};

use super::{stats::ToolPath, threads};
use crate::{
    app::App,
    extract::{AcceptLanguage, Params, Query},
    json::Json,
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/tools/{name}/explain", Access::Needs(Scope::ToolsRead), "tools", explain)
            .summary("Why a tool is, or is not, offered, and what would change that")
            .json_response::<Explained>(200, "The facts, and the answer in words")
            .response_header(&[200], "Content-Language", "The language of the words.")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
    ]
}

/// For whom it is explained.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExplainQuery {
    /// The thread; as a new one sees it where none is named.
    thread_id: Option<String>,
}

/// Why a tool is, or is not, offered.
#[derive(Debug, Serialize, JsonSchema)]
struct Explained {
    /// The answer in words, in the language of `Accept-Language`.
    text: String,
    #[serde(flatten)]
    facts: Explanation,
}

async fn explain(
    State(app): State<App>,
    who: Principal,
    Params(ToolPath { name }): Params<ToolPath>,
    Query(query): Query<ExplainQuery>,
    AcceptLanguage(language): AcceptLanguage,
) -> ApiResult<impl IntoResponse> {
    let thread = match &query.thread_id {
        Some(id) => threads::find(&app, &who.tenant, id).await?.id,
        // A thread that nobody has used sees what all share, and nothing else. It is not made by being asked for.
        None => ThreadId::mint(),
    };
    let mut facts = app.hub().explain(&name, &who.tenant, &thread).await?;
    if !who.has_scope(Scope::Admin) {
        // What all tenants share may have happened to another: its words may hold what that one asked for.
        let shared = app.hub().explain(&name, &who.tenant, &ThreadId::mint()).await?.last_failure;
        if let Some(failure) = facts.last_failure.as_mut().filter(|failure| shared.as_ref() == Some(*failure)) {
            failure.text = failure.kind.row().operator.into();
        }
    }
    let tongue = match language {
        Language::English => "en",
        Language::Chinese => "zh",
    };
    Ok(([(header::CONTENT_LANGUAGE, tongue)], Json(Explained { text: facts.text(language), facts })))
}
