//! Approvals of calls: listed, looked up and decided by people.

use axum::{extract::State, http::Method, response::IntoResponse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolhub_core::{
    Answer, Approval, ApprovalError, ApprovalOutcome, ApprovalState, CallError, Detail, ErrorKind,
    clock::Timestamp,
    ids::{ApprovalId, CallId, Caller, RunId, ThreadId},
};

use crate::{
    app::App,
    extract::{Body, Params, Query},
    json::Json,
    links::Links,
    list_detail,
    page::{self, List, RequestUri, list_query},
    problem::{ApiResult, Code, FieldError, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    let (read, write) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ApprovalsWrite));
    vec![
        Route::new(Method::GET, "/api/v1/approvals", read, "approvals", list)
            .summary("Approvals, newest first")
            .json_response::<List<ApprovalView>>(200, "A page of approvals")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/approvals/{id}", read, "approvals", get)
            .summary("One approval")
            .json_response::<ApprovalView>(200, "The approval")
            .problems(&[Code::APPROVAL_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::POST, "/api/v1/approvals/{id}", write, "approvals", answer)
            .audited("approval.answer")
            .summary("Decide an approval")
            .json_response::<ApprovalView>(200, "The approval is decided; the call continues or is refused")
            .problems(&[Code::APPROVAL_NOT_FOUND, Code::ALREADY_RESOLVED, Code::CONFLICT])
            .refusals(&[ErrorKind::StoreUnavailable, ErrorKind::ArgumentsInvalid, ErrorKind::Forbidden]),
    ]
}

/// An approval in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ApprovalPath {
    /// The approval.
    id: String,
}

impl ApprovalPath {
    pub(super) fn parse_id(&self) -> ApiResult<ApprovalId> {
        self.id.parse().map_err(|_| self.not_found())
    }

    pub(super) fn not_found(&self) -> Problem {
        Problem::new(Code::APPROVAL_NOT_FOUND, format!("there is no approval `{}`", self.id))
    }
}

list_query! {
    /// Which approvals to list.
    struct ApprovalsQuery {
        /// Only those in this state.
        state: Option<ApprovalState>,
    }
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<ApprovalsQuery>,
    links: Links,
    uri: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let before = page::decode_cursor_as(query.cursor.as_ref(), "approvals")?;
    let fetch = |limit, before| app.hub().newest_approvals(&principal.tenant, query.state, before, limit);
    let (approvals, has_more) = page::fetch_page(query.limit, before, |last| last.id, fetch).await?;
    let items: Vec<_> = approvals.into_iter().map(|approval| ApprovalView::of(approval, &links).shortened()).collect();
    let position = |items: &[ApprovalView]| items.last().map(|last| last.id.to_string()).unwrap_or_default();
    let next = has_more.then(|| position(&items));
    Ok(uri.bounded_list_response("approvals", items, next, position))
}

async fn get(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ApprovalPath>,
    links: Links,
) -> ApiResult<Json<ApprovalView>> {
    let approval = app.hub().approval(&principal.tenant, path.parse_id()?).await?;
    let approval = approval.ok_or_else(|| path.not_found())?;
    let call_waits = app.hub().is_awaited(&principal.tenant, &approval).await?;
    Ok(Json(ApprovalView { call_waits: Some(call_waits), ..ApprovalView::of(approval, &links) }))
}

/// A decision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AnswerBody {
    /// The decision.
    outcome: ApprovalOutcome,
    /// The arguments to use instead; with `modify_with_editor` only.
    arguments: Option<Map<String, Value>>,
    /// The text for the model when the call is refused.
    reason: Option<String>,
}

async fn answer(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ApprovalPath>,
    links: Links,
    Body(body): Body<AnswerBody>,
) -> ApiResult<Json<ApprovalView>> {
    let mut answer = Answer::new(body.outcome, principal.caller);
    answer.arguments = body.arguments.map(Value::Object);
    answer.message = body.reason;
    let id = path.parse_id()?;
    // Looked up before the answer: the call may end at once after it.
    let (call_waits, call) = match app.hub().approval(&principal.tenant, id).await? {
        Some(approval) => (app.hub().is_awaited(&principal.tenant, &approval).await?, Some(approval.call_id)),
        None => (false, None),
    };
    let approval = app.hub().resolve_approval(&principal.tenant, id, answer).await.map_err(|error| match error {
        // The key is sufficient, but policy forbids the edited arguments: the problem is about this approval.
        ApprovalError::Forbidden(_) => approval_problem(error).with("approvalId", id),
        ApprovalError::Resolved(_) => approval_problem(error).with_some("callId", call),
        error => approval_problem(error),
    })?;
    Ok(Json(ApprovalView { call_waits: Some(call_waits), ..ApprovalView::of(approval, &links) }))
}

/// The problem for a decision that was not accepted, or an unknown approval or grant.
pub(super) fn approval_problem(error: ApprovalError) -> Problem {
    let detail = error.to_string();
    match error {
        ApprovalError::Unknown(_) => Problem::new(Code::APPROVAL_NOT_FOUND, detail),
        ApprovalError::UnknownGrant(_) => Problem::new(Code::GRANT_NOT_FOUND, detail),
        ApprovalError::Resolved(state) => Problem::new(Code::ALREADY_RESOLVED, detail).with("state", state),
        ApprovalError::ToolChanged(_) => Problem::new(Code::CONFLICT, detail),
        ApprovalError::Arguments { problems, .. } => {
            let error = CallError::new(ErrorKind::ArgumentsInvalid).operator(detail).detail(Detail::Problems(problems));
            error.into()
        }
        ApprovalError::Forbidden(_) => CallError::new(ErrorKind::Forbidden).operator(detail).into(),
        ApprovalError::ArgumentsMissing => {
            let missing = FieldError::new("/arguments", "is required");
            Problem::new(Code::INVALID_REQUEST, detail).with("errors", [missing])
        }
        ApprovalError::Store(error) => error.into(),
        _ => Problem::new(Code::INVALID_REQUEST, detail),
    }
}

/// A request to a person: may this call run?
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Approval")]
struct ApprovalView {
    /// The approval.
    id: ApprovalId,
    /// The URL of its page, for people.
    url: String,
    /// Its state.
    state: ApprovalState,
    /// The call that requires it.
    call_id: CallId,
    /// The tool.
    tool: String,
    /// Whether that call waits for the answer and continues by itself; false if it runs when it is made again. Not in
    /// lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_waits: Option<bool>,
    /// The key that makes the call.
    caller: Caller,
    /// The thread.
    thread_id: Option<ThreadId>,
    /// The agent run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    /// The arguments of the call.
    arguments: Value,
    /// The rule that requires the approval.
    rule: String,
    /// Why, as configured with the rule.
    reason: Option<String>,
    /// When it was requested.
    asked_at: Timestamp,
    /// Until when it can be decided and, once approved, used.
    expires_at: Timestamp,
    /// The decision, once there is one.
    answer: Option<AnswerView>,
    /// The call that consumed it, or was refused because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_by: Option<CallId>,
}

/// A person's decision.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ApprovalAnswer")]
struct AnswerView {
    /// The decision.
    outcome: ApprovalOutcome,
    /// The key that decided.
    by: Caller,
    /// When it was decided.
    at: Timestamp,
    /// The arguments to use instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    /// The text for the model when the call is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl ApprovalView {
    /// The view for a list: instead of long arguments their size.
    fn shortened(mut self) -> Self {
        list_detail::shorten_value(&mut self.arguments);
        self.answer.iter_mut().filter_map(|answer| answer.arguments.as_mut()).for_each(list_detail::shorten_value);
        self
    }

    fn of(approval: Approval, links: &Links) -> Self {
        let answer = approval.answer.map(|answer| AnswerView {
            outcome: answer.outcome,
            by: answer.by,
            at: answer.at,
            arguments: answer.arguments,
            reason: answer.message,
        });
        Self {
            id: approval.id,
            url: links.approval(approval.id),
            state: approval.state,
            call_id: approval.call_id,
            tool: approval.tool.to_string(),
            call_waits: None,
            caller: approval.caller,
            thread_id: approval.thread,
            run_id: approval.run,
            arguments: approval.arguments,
            rule: approval.rule,
            reason: approval.reason,
            asked_at: approval.asked_at,
            expires_at: approval.expires_at,
            answer,
            used_by: approval.used_by,
        }
    }
}
