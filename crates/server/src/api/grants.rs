//! Grants: standing approvals by people, listed and revoked.

use axum::{
    extract::State,
    http::{Method, StatusCode},
    response::IntoResponse,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{
    ErrorKind, Grant, GrantScope, ToolHub, ToolName,
    clock::Timestamp,
    ids::{ApprovalId, Caller},
};

use super::approvals::approval_problem;
use crate::{
    app::App,
    extract::{Params, Query},
    page::{self, List, ListQuery, RequestUri},
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    let (read, write) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ApprovalsWrite));
    vec![
        Route::new(Method::GET, "/api/v1/grants", read, "approvals", list)
            .summary("Grants, by id")
            .json_response::<List<GrantView>>(200, "A page of grants")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::DELETE, "/api/v1/grants/{id}", write, "approvals", revoke)
            .audited("grant.revoke")
            .summary("Revoke a grant")
            .empty_response(204, "The grant is revoked; the next call requires an approval again")
            .problems(&[Code::GRANT_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// A grant in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct GrantPath {
    /// The grant.
    id: String,
}

/// A person's standing approval.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Grant")]
struct GrantView {
    /// The grant.
    id: String,
    /// What it covers: a tool in one thread, a tool, or all tools of a server.
    covers: GrantScope,
    /// The rule whose approval it replaces.
    rule: String,
    /// The tools it applies to.
    tools: Vec<String>,
    /// Tools it was given for, whose definition has changed since: their calls require an approval again.
    changed_tools: Vec<String>,
    /// The key that gave it.
    granted_by: Caller,
    /// When it was given.
    granted_at: Timestamp,
    /// The approval it was decided with.
    approval_id: ApprovalId,
}

impl GrantView {
    fn new(grant: Grant, hub: &ToolHub) -> Self {
        let (tools, changed): (Vec<_>, Vec<_>) =
            grant.definitions.keys().partition(|tool| hub.grant_applies(&grant, tool));
        let names = |tools: Vec<&ToolName>| tools.into_iter().map(ToString::to_string).collect();
        Self {
            tools: names(tools),
            changed_tools: names(changed),
            id: grant.id.into(),
            covers: grant.covers,
            rule: grant.rule,
            granted_by: grant.granted_by,
            granted_at: grant.granted_at,
            approval_id: grant.approval,
        }
    }
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<ListQuery>,
    uri: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "grants")?;
    let mut grants = app.hub().grants(&principal.tenant).await?;
    grants.sort_unstable_by(|a, b| a.id.cmp(&b.id));
    grants.retain(|grant| after.as_deref().is_none_or(|after| grant.id.as_str() > after));
    let next = query.limit.truncate(&mut grants).map(|last| last.id.to_string());
    let items = grants.into_iter().map(|grant| GrantView::new(grant, app.hub())).collect();
    Ok(uri.list_response("grants", items, next))
}

async fn revoke(
    State(app): State<App>,
    principal: Principal,
    Params(GrantPath { id }): Params<GrantPath>,
) -> ApiResult<StatusCode> {
    app.hub().revoke_grant(&principal.tenant, &id).await.map_err(approval_problem)?;
    Ok(StatusCode::NO_CONTENT)
}
