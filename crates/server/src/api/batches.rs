//! Batches: executes the tool calls of one model message and returns the tool messages for the model.
//!
//! In: a model's message or its tool calls, in the provider's format. Out: messages to append to the conversation
//! unchanged. A mistake of the model becomes a message that helps it; only a body that is no message at all is refused.
//! `request` parses the message, `response` formats the results; neither makes a call.

mod request;
mod response;

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhub_core::{
    ErrorKind, Outcome,
    ids::{IdempotencyKey, ThreadId},
};

use super::calls::CallView;
use crate::{
    app::App,
    extract::{Body, IdempotencyHeader, Params, Query, Trace},
    json::Json,
    links::Links,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};
use request::{BatchBody, RequestedCall};

/// The largest number of calls in a batch.
const MAX_BATCH_CALLS: usize = 128;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/v1/threads/{id}/batches", Access::Needs(Scope::ToolsCall), "calls", batch)
            .handles_idempotency()
            .summary("Execute the calls a model asked for, and get the messages to answer it with")
            .json_response::<BatchResponse>(200, "One result per call, in the order of the calls")
            .problems(&[Code::INVALID_KEY, Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// A thread in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ThreadPath {
    /// The thread; created if it does not exist.
    id: String,
}

/// The format of the message.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BatchQuery {
    /// The provider whose format the message has; without it, `{"calls": [{"tool", "arguments", "callId"}]}`.
    format: Option<Provider>,
}

/// The format of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "BatchFormat")]
enum Provider {
    Openai,
    Anthropic,
}

/// The results of the calls of a batch.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BatchAnswers")]
struct BatchResponse {
    /// With a format: messages for the model, to append to the conversation unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<Value>>,
    /// Without a format: the calls with their outcomes.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<Vec<CallView>>,
}

/// The idempotency key of one call. Every call of a batch has its own, so each is replayed on its own.
fn call_key(key: &IdempotencyKey, index: usize) -> String {
    format!("{key}/{index}")
}

#[allow(clippy::too_many_arguments, reason = "a handler takes the parts of a request one by one")]
async fn batch(
    State(app): State<App>,
    principal: Principal,
    Params(ThreadPath { id }): Params<ThreadPath>,
    Query(query): Query<BatchQuery>,
    IdempotencyHeader(key): IdempotencyHeader,
    Trace(trace): Trace,
    links: Links,
    Body(BatchBody(message)): Body<BatchBody>,
) -> ApiResult<Json<BatchResponse>> {
    let unknown = |_| Problem::new(Code::THREAD_NOT_FOUND, format!("`{id}` cannot be a thread"));
    let thread = ThreadId::new(id.as_str()).map_err(unknown)?;
    let requested = match query.format {
        None => request::parse_plain(message)?,
        Some(Provider::Openai) => request::parse_openai(message)?,
        Some(Provider::Anthropic) => request::parse_anthropic(message)?,
    };
    if requested.len() > MAX_BATCH_CALLS {
        return Err(Problem::new(
            Code::INVALID_REQUEST,
            format!("one step has at most {MAX_BATCH_CALLS} calls, not {}", requested.len()),
        ));
    }
    // Refuse this to the client before any call runs: the key was not the model's choice.
    if key.as_ref().is_some_and(|key| IdempotencyKey::new(call_key(key, MAX_BATCH_CALLS)).is_err()) {
        let detail = "the header `Idempotency-Key` is too long: that of a batch takes 1 to 251 characters";
        return Err(Problem::new(Code::INVALID_KEY, detail));
    }
    let hub = app.hub();
    let mut calls = Vec::new();
    for (index, RequestedCall { id, call }) in requested.iter().enumerate() {
        let Ok((tool, arguments)) = call else { continue };
        let mut request = hub
            .call(tool.as_str(), arguments.clone())
            .tenant(principal.tenant.clone())
            .caller(principal.caller.clone())
            .thread(thread.as_str())
            .no_wait();
        if let Some(id) = id {
            request = request.model_call(id.as_str());
        }
        if let Some(trace) = &trace {
            request = request.trace(trace.clone());
        }
        if let Some(key) = &key {
            request = request.idempotency_key(call_key(key, index));
        }
        calls.push(request);
    }
    let mut outcomes = hub.batch(calls).await.into_iter();
    let results = requested.into_iter().filter_map(|RequestedCall { id, call }| match call {
        Ok(_) => outcomes.next().map(|outcome| (id, Ok(outcome))),
        Err(help) => Some((id, Err(help))),
    });
    let results: Vec<(Option<String>, Result<Outcome, String>)> = results.collect();
    Ok(Json(match query.format {
        None => BatchResponse { calls: Some(response::call_views(results, &links)), messages: None },
        Some(Provider::Openai) => {
            BatchResponse { messages: Some(response::openai_messages(&results, &links)), calls: None }
        }
        Some(Provider::Anthropic) => {
            BatchResponse { messages: Some(response::anthropic_messages(&results, &links)), calls: None }
        }
    }))
}
