//! Questions about calls: which there are, and the answers of people.

use axum::{extract::State, http::Method, response::IntoResponse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolhub_core::{
    Answer as Answered, Approval, ApprovalError, ApprovalOutcome, ApprovalState, CallError, Detail, ErrorKind,
    clock::Timestamp,
    ids::{ApprovalId, CallId, Caller, RunId, ThreadId},
};

use crate::{
    app::App,
    extract::{Body, Params, Query},
    json::Json,
    links::Links,
    page::{self, List, RequestUri, list_query},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    let (read, write) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ApprovalsWrite));
    vec![
        Route::new(Method::GET, "/api/v1/approvals", read, "approvals", list)
            .summary("Questions about calls, the newest first")
            .json_response::<List<ApprovalView>>(200, "A page of them")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/approvals/{id}", read, "approvals", get)
            .summary("One question")
            .json_response::<ApprovalView>(200, "What is asked, and how it stands")
            .problems(&[Code::APPROVAL_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::POST, "/api/v1/approvals/{id}", write, "approvals", answer)
            .audited("approval.answer")
            .summary("Answer a question")
            .json_response::<ApprovalView>(200, "It is answered; the call goes on, or is told no")
            .problems(&[Code::APPROVAL_NOT_FOUND, Code::ALREADY_RESOLVED, Code::CONFLICT])
            .refusals(&[ErrorKind::StoreUnavailable, ErrorKind::ArgumentsInvalid, ErrorKind::Forbidden]),
    ]
}

/// A question in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ApprovalPath {
    /// The question.
    id: String,
}

impl ApprovalPath {
    fn parse_id(&self) -> ApiResult<ApprovalId> {
        self.id.parse().map_err(|_| self.not_found())
    }

    fn not_found(&self) -> Problem {
        Problem::new(Code::APPROVAL_NOT_FOUND, format!("there is no approval `{}`", self.id))
    }
}

list_query! {
    /// Which questions are query.
    struct ApprovalsQuery {
        /// Only those that stand so.
        state: Option<ApprovalState>,
    }
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<ApprovalsQuery>,
    links: Links,
    here: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let before = page::decode_cursor_as(query.cursor.as_ref(), "approvals")?;
    let most = query.limit.plus_one();
    let mut found = app.hub().newest_approvals(&principal.tenant, query.state, before, most).await?;
    let next = query.limit.truncate(&mut found).map(|last| last.id.to_string());
    let items = found.into_iter().map(|approval| ApprovalView::of(approval, &links)).collect();
    Ok(here.list_response("approvals", items, next))
}

async fn get(
    State(app): State<App>,
    principal: Principal,
    Params(named): Params<ApprovalPath>,
    links: Links,
) -> ApiResult<Json<ApprovalView>> {
    let found = app.hub().approval(&principal.tenant, named.parse_id()?).await?;
    found.map(|approval| Json(ApprovalView::of(approval, &links))).ok_or_else(|| named.not_found())
}

/// An answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AnswerBody {
    /// What it is.
    outcome: ApprovalOutcome,
    /// The arguments to use instead; with `modify_with_editor` only.
    arguments: Option<Map<String, Value>>,
    /// What the model is told with a no.
    reason: Option<String>,
}

async fn answer(
    State(app): State<App>,
    principal: Principal,
    Params(named): Params<ApprovalPath>,
    links: Links,
    Body(body): Body<AnswerBody>,
) -> ApiResult<Json<ApprovalView>> {
    let mut answer = Answered::new(body.outcome, principal.caller);
    answer.arguments = body.arguments.map(Value::Object);
    answer.message = body.reason;
    let id = named.parse_id()?;
    let answered = app.hub().resolve_approval(&principal.tenant, id, answer).await.map_err(|error| match error {
        // Not the key is too weak, but the arguments are forbidden: this is about the question.
        ApprovalError::Forbidden(_) => approval_problem(error).with("approvalId", id),
        error => approval_problem(error),
    })?;
    Ok(Json(ApprovalView::of(answered, &links)))
}

/// Why an answer was not taken, or a grant not found.
pub(super) fn approval_problem(error: ApprovalError) -> Problem {
    let words = error.to_string();
    match error {
        ApprovalError::Unknown(_) => Problem::new(Code::APPROVAL_NOT_FOUND, words),
        ApprovalError::UnknownGrant(_) => Problem::new(Code::GRANT_NOT_FOUND, words),
        ApprovalError::Resolved(state) => Problem::new(Code::ALREADY_RESOLVED, words).with("state", state),
        ApprovalError::ToolChanged(_) => Problem::new(Code::CONFLICT, words),
        ApprovalError::Arguments { problems, .. } => {
            let error = CallError::new(ErrorKind::ArgumentsInvalid).operator(words).detail(Detail::Problems(problems));
            error.into()
        }
        ApprovalError::Forbidden(_) => CallError::new(ErrorKind::Forbidden).operator(words).into(),
        ApprovalError::Store(error) => error.into(),
        _ => Problem::new(Code::INVALID_REQUEST, words),
    }
}

/// A question to a person: may this call run?
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Approval")]
struct ApprovalView {
    /// The question.
    id: ApprovalId,
    /// Where it can be looked at, and answered.
    url: String,
    /// Where it stands.
    state: ApprovalState,
    /// The call that asked.
    call_id: CallId,
    /// The tool.
    tool: String,
    /// Who wants to call it.
    caller: Caller,
    /// The conversation.
    thread_id: Option<ThreadId>,
    /// The agent run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<RunId>,
    /// What the tool would be given.
    arguments: Value,
    /// The rule that asks.
    rule: String,
    /// Why it asks, in its owner's words.
    reason: Option<String>,
    /// When it was asked.
    asked_at: Timestamp,
    /// When it is too late: to answer, and after a yes, to use it.
    expires_at: Timestamp,
    /// The answer, once there is one.
    answer: Option<AnswerView>,
    /// The call that was made on it, or was told no.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_by: Option<CallId>,
}

/// A person's answer.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ApprovalAnswer")]
struct AnswerView {
    /// What it is.
    outcome: ApprovalOutcome,
    /// Who gave it.
    by: Caller,
    /// When.
    at: Timestamp,
    /// The arguments to use instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    /// What the model is told with a no.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl ApprovalView {
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
