//! How the tools of a thread stand, in the shape agents of old know, and how they are reset.
//!
//! In: a thread. Out: `{"success": true, "data": …}`; every problem says `"success": false`. The three members of a tool are all
//! there is, unless more is asked for.

use std::collections::BTreeMap;

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{
    ErrorKind, StatusScope, ThreadInfo, ToolStatusInfo,
    clock::Timestamp,
    ids::{Tenant, ThreadId},
    status::{Language, ToolStatus},
};

use crate::{
    app::App,
    extract::{AcceptLanguage, MaybeBody, Params, Query},
    json::Json,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    let (read, call) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ToolsCall));
    vec![
        Route::new(Method::GET, "/agents/{threadId}/tool-states", read, "threads", get_legacy)
            .summary("How the tools of a thread stand")
            .json_response::<ToolStatesResponse>(200, "Every tool, run or not")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable])
            .with_success_flag(),
        Route::new(Method::POST, "/agents/{threadId}/tool-states/reset", call, "threads", reset)
            .audited("thread.reset")
            .summary("Forget what is held against the tools of a thread, or against one of them")
            .json_response::<ToolStatesResponse>(200, "Which were reset, and how all stand now")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable])
            .with_success_flag(),
        Route::new(Method::GET, "/api/v1/threads/{id}/tool-states", read, "threads", get)
            .summary("How the tools of a thread stand")
            .json_response::<ToolStatesResponse>(200, "Every tool, run or not")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable])
            .with_success_flag(),
    ]
}

/// A thread in a path of old.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct LegacyAgentPath {
    /// The thread.
    thread_id: String,
}

/// A thread in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ThreadPath {
    /// The thread.
    id: String,
}

/// How much is wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct StatesQuery {
    /// `full` for failures in a row, the last success and failure, and whether a list should be bound again.
    detail: Option<Detail>,
}

/// How much is told of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Detail {
    Full,
}

/// What is to be reset.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ToolStatesReset")]
struct ResetBody {
    /// Only this tool.
    tool_name: Option<String>,
    /// Also forget that it has succeeded, so that whatever waits for it waits again.
    #[serde(default)]
    evidence: bool,
}

/// How the tools of a thread stand.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolStatesAnswer")]
struct ToolStatesResponse {
    /// Always true; a problem says false.
    success: bool,
    /// The answer.
    data: ToolStates,
}

/// The tools of a thread.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToolStates {
    /// The thread.
    agent_id: String,
    /// The tools that were reset; only in the answer to a reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<Vec<String>>,
    /// Every tool, by name.
    tool_states: BTreeMap<String, ToolState>,
    /// When it was so.
    timestamp: Timestamp,
}

/// How a tool stands in a thread.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ToolState {
    /// The word.
    status: ToolStatus,
    /// Why.
    reason: String,
    /// When that last changed; when the thread was made, for a tool that never ran there.
    last_updated: Timestamp,
    #[serde(flatten)]
    full: Option<Full>,
}

/// What is told of a tool with `?detail=full`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Full {
    /// How many failures in a row count against it.
    consecutive_failures: u32,
    /// When it last succeeded.
    last_success_time: Option<Timestamp>,
    /// When it last failed in a way that counts.
    last_failure_time: Option<Timestamp>,
    /// Whether a list that somebody holds for the thread should be bound again because of it.
    should_rebind: bool,
}

async fn get_legacy(
    State(app): State<App>,
    principal: Principal,
    Params(LegacyAgentPath { thread_id }): Params<LegacyAgentPath>,
    Query(query): Query<StatesQuery>,
    language: AcceptLanguage,
) -> ApiResult<Json<ToolStatesResponse>> {
    let thread = find_thread(&app, &principal.tenant, &thread_id).await?;
    load_states(&app, &principal.tenant, &thread, query.detail.is_some(), language.0).await.map(respond)
}

async fn get(
    State(app): State<App>,
    principal: Principal,
    Params(ThreadPath { id }): Params<ThreadPath>,
    Query(query): Query<StatesQuery>,
    language: AcceptLanguage,
) -> ApiResult<Json<ToolStatesResponse>> {
    let thread = find_thread(&app, &principal.tenant, &id).await?;
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
    let thread = find_thread(&app, tenant, &thread_id).await?;
    let ResetBody { tool_name, evidence } = body.unwrap_or_default();
    let names = match tool_name {
        Some(name) => vec![name],
        None => {
            let meant = app.agents().thread_toolset(tenant, &thread.id).await?;
            let all = hub.tools().list(&Default::default()).into_iter().map(|tool| tool.definition.name.to_string());
            all.filter(|name| meant.contains(name)).collect()
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

/// The thread, if anybody has ever named it.
async fn find_thread(app: &App, tenant: &Tenant, id: &str) -> ApiResult<ThreadInfo> {
    let unknown = || Problem::new(Code::THREAD_NOT_FOUND, format!("there is no thread `{id}`"));
    let thread = ThreadId::new(id).map_err(|_| unknown())?;
    app.hub().thread(tenant, &thread).await?.ok_or_else(unknown)
}

async fn load_states(
    app: &App,
    tenant: &Tenant,
    thread: &ThreadInfo,
    full: bool,
    language: Language,
) -> ApiResult<ToolStates> {
    let statuses = app.hub().tool_statuses_in(StatusScope::Thread(tenant, &thread.id), language).await?;
    let meant = app.agents().thread_toolset(tenant, &thread.id).await?;
    let meant = statuses.into_iter().filter(|info| meant.contains(&info.tool_name));
    let tool_states = meant.map(|info| {
        let name = info.tool_name.to_string();
        (name, ToolState::of(info, thread.created, full))
    });
    let (agent_id, timestamp) = (thread.id.to_string(), app.now());
    Ok(ToolStates { agent_id, reset: None, tool_states: tool_states.collect(), timestamp })
}

fn respond(data: ToolStates) -> Json<ToolStatesResponse> {
    Json(ToolStatesResponse { success: true, data })
}

impl ToolState {
    fn of(info: ToolStatusInfo, made: Timestamp, full: bool) -> Self {
        Self {
            status: info.status,
            reason: info.reason,
            last_updated: info.last_updated.max(info.last_success_time).unwrap_or(made),
            full: full.then_some(Full {
                consecutive_failures: info.consecutive_failures,
                last_success_time: info.last_success_time,
                last_failure_time: info.last_failure_time,
                should_rebind: info.should_rebind,
            }),
        }
    }
}
