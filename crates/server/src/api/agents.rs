//! Statuses of a thread's tools, their reset, in the response format of existing agent clients, and the rebind of its offer.
//!
//! In: a thread. Out: `{"success": true, "data": …}`; every problem carries `"success": false`. A tool has exactly
//! three members, unless `?detail=full` asks for more.

use std::collections::BTreeMap;

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{
    DependencyStatus, ErrorKind, OfferOptions, StatusScope, ThreadInfo, ToolStatusDetails,
    clock::Timestamp,
    ids::Tenant,
    status::{Language, ToolStatus},
};

use super::threads::{self, ThreadPath};
use crate::{
    app::App,
    extract::{AcceptLanguage, MaybeBody, Params, Query},
    json::Json,
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    let (read, call) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ToolsCall));
    vec![
        Route::new(Method::GET, "/agents/{threadId}/tool-states", read, "threads", get_legacy)
            .summary("Tool statuses of a thread")
            .json_response::<ToolStatesResponse>(200, "Every tool, called or not")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable])
            .with_success_flag(),
        Route::new(Method::POST, "/agents/{threadId}/tool-states/reset", call, "threads", reset)
            .audited("thread.reset")
            .summary("Reset the statuses of a thread's tools, or of one of them")
            .json_response::<ToolStatesResponse>(200, "The tools that were reset, and all statuses now")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable])
            .with_success_flag(),
        Route::new(Method::GET, "/api/v1/threads/{id}/tool-states", read, "threads", get)
            .summary("Tool statuses of a thread")
            .json_response::<ToolStatesResponse>(200, "Every tool, called or not")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable])
            .with_success_flag(),
        Route::new(Method::POST, "/api/v1/threads/{id}/rebind", call, "threads", rebind)
            .audited("thread.rebind")
            .summary("Offer the thread the tools that are available now; needed only with `auto_rebind = false`")
            .json_response::<BoundTools>(200, "The tools that the thread is offered from now on")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// A thread in a path outside `/api/v1`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LegacyAgentPath {
    /// The thread.
    thread_id: String,
}

/// How much detail to return.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StatesQuery {
    /// `full` adds consecutive failures, the last success and failure, whether a rebind is due, the dependencies, and a
    /// summary.
    detail: Option<Detail>,
}

/// The level of detail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Detail {
    Full,
}

/// What to reset.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ToolStatesReset")]
struct ResetBody {
    /// Only this tool.
    tool_name: Option<String>,
    /// Also discard the evidence of its successes, so that tools that depend on it wait again.
    #[serde(default)]
    evidence: bool,
}

/// The tool statuses of a thread.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolStatesAnswer")]
struct ToolStatesResponse {
    /// Always true; problems carry false.
    success: bool,
    /// The statuses.
    data: ToolStates,
}

/// The tools of a thread.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToolStates {
    /// The thread.
    agent_id: String,
    /// The tools that were reset; only in the response to a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<Vec<String>>,
    /// All tools in one line; only with `?detail=full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    /// The summary and one line per tool, as text; only with `?detail=full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<String>,
    /// Every tool, by name.
    tool_states: BTreeMap<String, ToolState>,
    /// When the statuses were read.
    timestamp: Timestamp,
}

/// The status of a tool in a thread.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToolState {
    /// The status.
    status: ToolStatus,
    /// The reason for the status.
    reason: String,
    /// When it last changed: by a result, an operator, a dependency or with time. When the thread was created, if it never did.
    last_updated: Timestamp,
    #[serde(flatten)]
    full: Option<ToolStateDetails>,
}

/// Additional members with `?detail=full`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToolStateDetails {
    /// Consecutive failures that count against it.
    consecutive_failures: u32,
    /// When it last succeeded.
    last_success_time: Option<Timestamp>,
    /// When it last failed in a way that counts.
    last_failure_time: Option<Timestamp>,
    /// Whether a list of offered tools that is bound for the thread should be bound again because of it.
    should_rebind: bool,
    /// The tools it depends on.
    dependencies: Vec<DependencyStatus>,
}

/// The tools that a thread is offered.
#[derive(Debug, Serialize, JsonSchema)]
struct BoundTools {
    /// Their names.
    tools: Vec<String>,
}

async fn rebind(
    State(app): State<App>,
    principal: Principal,
    Params(ThreadPath { id }): Params<ThreadPath>,
) -> ApiResult<Json<BoundTools>> {
    let thread = threads::find(&app, &principal.tenant, &id).await?;
    let toolset = app.agents().thread_toolset(&principal.tenant, &thread.id).await?;
    let offer = app.hub().rebind_with(&principal.tenant, &thread.id, &toolset.into()).await?;
    Ok(Json(BoundTools { tools: offer.names().iter().map(ToString::to_string).collect() }))
}

async fn get_legacy(
    State(app): State<App>,
    principal: Principal,
    Params(LegacyAgentPath { thread_id }): Params<LegacyAgentPath>,
    Query(query): Query<StatesQuery>,
    language: AcceptLanguage,
) -> ApiResult<Json<ToolStatesResponse>> {
    let thread = threads::find(&app, &principal.tenant, &thread_id).await?;
    load_states(&app, &principal.tenant, &thread, query.detail.is_some(), language.0).await.map(respond)
}

async fn get(
    State(app): State<App>,
    principal: Principal,
    Params(ThreadPath { id }): Params<ThreadPath>,
    Query(query): Query<StatesQuery>,
    language: AcceptLanguage,
) -> ApiResult<Json<ToolStatesResponse>> {
    let thread = threads::find(&app, &principal.tenant, &id).await?;
    load_states(&app, &principal.tenant, &thread, query.detail.is_some(), language.0).await.map(respond)
}

async fn reset(
    State(app): State<App>,
    principal: Principal,
    Params(LegacyAgentPath { thread_id }): Params<LegacyAgentPath>,
    language: AcceptLanguage,
    MaybeBody(body): MaybeBody<ResetBody>,
) -> ApiResult<Json<ToolStatesResponse>> {
    let (hub, tenant) = (app.hub(), &principal.tenant);
    let thread = threads::find(&app, tenant, &thread_id).await?;
    let ResetBody { tool_name, evidence } = body.unwrap_or_default();
    let names = match tool_name {
        Some(name) => vec![name],
        None => {
            let toolset = app.agents().thread_toolset(tenant, &thread.id).await?;
            let all = hub.tools().list(&Default::default()).into_iter().map(|tool| tool.definition.name.to_string());
            all.filter(|name| toolset.contains(name)).collect()
        }
    };
    for name in &names {
        hub.reset_tool_status(name, StatusScope::Thread(tenant, &thread.id)).await?;
        if evidence {
            hub.reset_tool_evidence(name, tenant, &thread.id).await?;
        }
    }
    let mut data = load_states(&app, tenant, &thread, false, language.0).await?;
    data.reset = Some(names);
    Ok(respond(data))
}

async fn load_states(
    app: &App,
    tenant: &Tenant,
    thread: &ThreadInfo,
    full: bool,
    language: Language,
) -> ApiResult<ToolStates> {
    let toolset = app.agents().thread_toolset(tenant, &thread.id).await?;
    let options = OfferOptions { toolset, language };
    let details = app.hub().status_details(tenant, &thread.id, &options).await?;
    let (summary, text) = full.then(|| (details.summary.clone(), details.text())).unzip();
    let tool_states = details.tools.into_iter().map(|tool| {
        let name = tool.info.tool_name.to_string();
        (name, ToolState::of(tool, full))
    });
    let (agent_id, timestamp) = (thread.id.to_string(), app.now());
    let tool_states = tool_states.collect();
    Ok(ToolStates { agent_id, reset: None, summary, details: text, tool_states, timestamp })
}

fn respond(data: ToolStates) -> Json<ToolStatesResponse> {
    Json(ToolStatesResponse { success: true, data })
}

impl ToolState {
    fn of(ToolStatusDetails { info, dependencies, .. }: ToolStatusDetails, full: bool) -> Self {
        Self {
            status: info.status,
            reason: info.reason,
            last_updated: info.last_updated,
            full: full.then_some(ToolStateDetails {
                consecutive_failures: info.consecutive_failures,
                last_success_time: info.last_success_time,
                last_failure_time: info.last_failure_time,
                should_rebind: info.should_rebind,
                dependencies,
            }),
        }
    }
}
