//! Why a tool is, or is not, offered, and what would change that; and what would happen to a call.

use axum::{
    extract::State,
    http::{Method, header},
    response::IntoResponse,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolhub_core::{ErrorKind, Explanation, ids::ThreadId, status::Language};

use super::{threads, tools::ToolPath};
use crate::{
    app::App,
    extract::{AcceptLanguage, Body, Params, Query},
    json::Json,
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/tools/{name}/explain", Access::Needs(Scope::ToolsRead), "tools", explain)
            .summary("Why a tool is, or is not, offered, and what would change that")
            .json_response::<ExplainResponse>(200, "The facts, and an explanation in words")
            .response_header(&[200], "Content-Language", "The language of the explanation.")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
        Route::new(
            Method::POST,
            "/api/v1/tools/{name}/explain",
            Access::Needs(Scope::ToolsRead),
            "tools",
            explain_call,
        )
        .summary("What would happen to a call that is made now; nothing runs or counts")
        .json_response::<ExplainResponse>(200, "The facts about the tool and, in `call`, about the call")
        .response_header(&[200], "Content-Language", "The language of the explanation.")
        .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
    ]
}

/// The thread to explain for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExplainQuery {
    /// The thread; without it, the answer for a new thread.
    thread_id: Option<String>,
}

/// The call to explain.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ExplainCall")]
struct ExplainBody {
    /// The tool's arguments.
    #[serde(default)]
    arguments: Map<String, Value>,
    /// The thread. It is not created.
    thread_id: Option<ThreadId>,
}

/// Why a tool is, or is not, offered.
#[derive(Debug, Serialize, JsonSchema)]
struct ExplainResponse {
    /// The explanation in words, in the language of `Accept-Language`.
    text: String,
    #[serde(flatten)]
    facts: Explanation,
}

async fn explain(
    State(app): State<App>,
    principal: Principal,
    Params(ToolPath { name }): Params<ToolPath>,
    Query(query): Query<ExplainQuery>,
    AcceptLanguage(language): AcceptLanguage,
) -> ApiResult<impl IntoResponse> {
    let thread = match &query.thread_id {
        Some(id) => Some(threads::find(&app, &principal.tenant, id).await?.id),
        None => None,
    };
    let facts = app.hub().explain(&name, &principal.tenant, thread.as_ref()).await?;
    respond(&app, &principal, facts, language).await
}

async fn explain_call(
    State(app): State<App>,
    principal: Principal,
    Params(ToolPath { name }): Params<ToolPath>,
    AcceptLanguage(language): AcceptLanguage,
    Body(ExplainBody { arguments, thread_id }): Body<ExplainBody>,
) -> ApiResult<impl IntoResponse> {
    let call = app.hub().call(name.as_str(), Value::Object(arguments));
    let mut call = call.tenant(principal.tenant.clone()).caller(principal.caller.clone());
    if let Some(thread) = &thread_id {
        call = call.thread(thread.as_str());
    }
    let facts = call.explain().await?;
    respond(&app, &principal, facts, language).await
}

async fn respond(
    app: &App,
    principal: &Principal,
    mut facts: Explanation,
    language: Language,
) -> ApiResult<impl IntoResponse + use<>> {
    facts = facts.in_language(language);
    if !principal.has_scope(Scope::Admin) {
        // A shared failure may come from another tenant, and its text may contain that tenant's data: replace it by the
        // generic text of its kind.
        let shared = app.hub().explain(&facts.tool_name, &principal.tenant, None).await?.last_failure;
        if let Some(failure) = facts.last_failure.as_mut().filter(|failure| shared.as_ref() == Some(*failure)) {
            failure.text = failure.kind.row().operator.into();
        }
    }
    let language_tag = match language {
        Language::English => "en",
        Language::Chinese => "zh",
    };
    Ok(([(header::CONTENT_LANGUAGE, language_tag)], Json(ExplainResponse { text: facts.text(language), facts })))
}
