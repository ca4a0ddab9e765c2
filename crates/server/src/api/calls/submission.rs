//! Makes a call over HTTP: synchronously, with a bounded wait, or asynchronously.
//!
//! In: a tool, arguments, and the client's preferences. Out: 200 with the outcome of a call that ran, 202 with its
//! progress if it waits for an approval or the client does not wait, or a problem if it was refused. A client that
//! disconnects cancels its call, unless the call has an idempotency key or a 202 was promised.

use std::time::Duration;

use axum::{
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::DropGuard;
use toolhub_core::{
    CallError, CallReceipt, CallRequest, CancellationToken, Effect, ErrorKind, Outcome,
    ids::{CallId, Tenant, ThreadId},
};

use super::{CallView, find, rate_limit_headers};
use crate::{
    api::tools::ToolPath,
    app::App,
    extract::{Body, IdempotencyHeader, Params, Prefer, Trace},
    json::Json,
    links::{self, Links},
    problem::{ApiResult, Code, FieldError, Problem},
    scope::Principal,
};

/// The body of a call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CallBody {
    /// The tool's arguments.
    #[serde(default)]
    arguments: Map<String, Value>,
    /// The thread.
    #[schemars(regex(pattern = r"^(\.{0,2}[A-Za-z0-9_:-]|\.{3})[A-Za-z0-9._:-]{0,127}$"))]
    thread_id: Option<String>,
    /// A timeout shorter than the tool's own, in milliseconds. A longer one has no effect.
    #[schemars(range(min = 1, max = 86_400_000))]
    timeout_ms: Option<u64>,
    /// The id the model gave to the call; returned as `modelCallId`.
    #[schemars(length(min = 1, max = 256))]
    call_id: Option<String>,
}

#[allow(clippy::too_many_arguments, reason = "a handler takes the parts of a request one by one")]
pub(super) async fn call(
    State(app): State<App>,
    principal: Principal,
    Params(ToolPath { name }): Params<ToolPath>,
    IdempotencyHeader(key): IdempotencyHeader,
    prefer: Prefer,
    Trace(trace): Trace,
    links: Links,
    Body(body): Body<CallBody>,
) -> ApiResult<Response> {
    body.check()?;
    let Principal { tenant, caller, .. } = principal;
    let thread = body.thread_id.and_then(|thread| ThreadId::new(thread).ok());
    let arguments = Value::Object(body.arguments);
    let mut call = app.hub().call(name.as_str(), arguments).tenant(tenant.clone()).caller(caller.clone());
    if let Some(thread) = &thread {
        call = call.thread(thread.as_str());
    }
    if let Some(trace) = trace {
        call = call.trace(trace);
    }
    if let Some(time) = body.timeout_ms {
        call = call.timeout(Duration::from_millis(time));
    }
    if let Some(id) = body.call_id {
        call = call.model_call(id);
    }
    let keyed = key.is_some();
    if let Some(key) = key {
        call = call.idempotency_key(key.as_str());
    }
    let responder = CallResponder { app: &app, tenant: &tenant, links: &links, prefer, keyed };
    let mut response = responder.respond(call).await?;
    rate_limit_headers::insert_headers(
        &app.hub().rate_quotas(&name, &tenant, thread.as_ref(), &caller),
        response.headers_mut(),
    );
    Ok(response)
}

/// Makes a call for a client, and decides which response it gets.
struct CallResponder<'a> {
    app: &'a App,
    tenant: &'a Tenant,
    links: &'a Links,
    prefer: Prefer,
    keyed: bool,
}

impl CallResponder<'_> {
    /// Makes the call, and answers as soon as the client's preferences allow.
    async fn respond(&self, call: CallRequest<'_>) -> ApiResult<Response> {
        let (id, prefer) = (call.id(), self.prefer);
        if prefer == Prefer::default() {
            return match call.until_approval().await {
                CallReceipt::Ended(outcome) => Ok(ended_response(outcome, self.links)),
                _ => self.respond_accepted(id).await,
            };
        }
        // From here on the call may outlive the request. Until the 202 is certain, a client that disconnects still
        // cancels it.
        let cancel = CancellationToken::new();
        let cancel_on_disconnect = (!self.keyed && !prefer.respond_async).then(|| cancel.clone().drop_guard());
        let mut running = call.detached().cancel_on(&cancel).start();
        let outcome = match prefer.wait {
            Some(wait) => tokio::time::timeout(wait, running.outcome()).await.ok(),
            None => None,
        };
        let in_time = outcome.is_some();
        let receipt = match outcome {
            Some(outcome) => CallReceipt::Ended(outcome),
            None => running.accepted().await,
        };
        cancel_on_disconnect.map(DropGuard::disarm);
        if let CallReceipt::Ended(outcome) = &receipt
            && self.continues_after_restart(outcome).await?
        {
            return self.respond_accepted(id).await;
        }
        match receipt {
            // The call ended before it was accepted; the client asked for a 202, so it gets one.
            CallReceipt::Ended(outcome) if !in_time && !was_refused(&outcome) => {
                // Only the first call of a repetition can be looked up.
                let (id, replayed) = (outcome.id, outcome.replayed);
                Ok(mark_replayed(self.accepted_response(CallView::from_outcome(outcome, self.links), id), replayed))
            }
            CallReceipt::Ended(outcome) => Ok(add_preference_applied(ended_response(outcome, self.links), prefer)),
            _ => self.respond_accepted(id).await,
        }
    }

    /// Whether a call was interrupted by the shutdown of this process and continues after a restart.
    async fn continues_after_restart(&self, outcome: &Outcome) -> ApiResult<bool> {
        if outcome.error.as_ref().is_none_or(|error| error.kind != ErrorKind::Interrupted) {
            return Ok(false);
        }
        let record = self.app.hub().call_record(self.tenant, outcome.id).await?;
        Ok(record.is_some_and(|record| record.outcome.is_none()))
    }

    /// The 202 for a call that continues.
    async fn respond_accepted(&self, id: CallId) -> ApiResult<Response> {
        let view = find(self.app, self.tenant, id, self.links).await?;
        Ok(self.accepted_response(view.ok_or_else(|| super::not_found(&id.to_string()))?, id))
    }

    fn accepted_response(&self, view: CallView, id: CallId) -> Response {
        let location = [(header::LOCATION, links::call_path(id))];
        add_preference_applied((StatusCode::ACCEPTED, location, Json(view)).into_response(), self.prefer)
    }
}

impl CallBody {
    fn check(&self) -> ApiResult<()> {
        let refuse = |pointer: &str, detail: &str| {
            let field_error = FieldError::new(pointer, detail);
            Err(Problem::new(Code::INVALID_REQUEST, format!("`{}` {detail}", &pointer[1..]))
                .with("errors", [field_error]))
        };
        if self.timeout_ms.is_some_and(|time| !(1..=86_400_000).contains(&time)) {
            return refuse("/timeoutMs", "must be a number from 1 to 86400000");
        }
        if self.call_id.as_ref().is_some_and(|id| id.is_empty() || id.chars().count() > 256) {
            return refuse("/callId", "must have 1 to 256 characters");
        }
        if self.thread_id.as_ref().is_some_and(|id| ThreadId::new(id.as_str()).is_err()) {
            return refuse("/threadId", "must have 1 to 128 letters, digits, `.`, `_`, `:` or `-`");
        }
        Ok(())
    }
}

/// Whether a call was refused before its tool ran. The state and the connection of a tool are acquired inside its first attempt;
/// if that fails, the call had no effect and no result.
fn was_refused(outcome: &Outcome) -> bool {
    let did_nothing = outcome.effect == Effect::None && outcome.output.is_null() && outcome.content.is_empty();
    let is_refusal = |error: &CallError| error.kind.row().http != 200;
    (outcome.attempts == 0 || did_nothing) && outcome.error.as_ref().is_some_and(is_refusal)
}

/// The response to a call that has ended: its outcome if it ran, a problem if it was refused.
fn ended_response(outcome: Outcome, links: &Links) -> Response {
    let replayed = outcome.replayed;
    let refusal = outcome.error.as_ref().filter(|_| was_refused(&outcome));
    let response = match refusal {
        Some(error) => {
            let problem = Problem::from(error.clone()).with("callId", outcome.id);
            problem
                .with("model", outcome.model_text())
                .with_some("threadId", outcome.thread.as_ref())
                .with_some("traceId", outcome.trace_id)
                .into_response()
        }
        None => Json(CallView::from_outcome(outcome, links)).into_response(),
    };
    mark_replayed(response, replayed)
}

fn mark_replayed(mut response: Response, replayed: bool) -> Response {
    if replayed {
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    response
}

fn add_preference_applied(mut response: Response, prefer: Prefer) -> Response {
    if let Some(value) = prefer.applied_header().and_then(|value| HeaderValue::try_from(value).ok()) {
        response.headers_mut().insert("preference-applied", value);
    }
    response
}
