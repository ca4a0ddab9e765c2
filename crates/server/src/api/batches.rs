//! The calls of one step, as a model asked for them, and the messages to answer it with.
//!
//! In: a model's message or its tool calls, in the words of its provider. Out: messages that can be sent back as they are. What a
//! model got wrong becomes a message that helps it; the whole is refused only where it is no message at all. `read` takes a
//! message apart, `write` puts the answers together; neither makes a call.

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

/// How many calls one step may have.
const MAX_BATCH_CALLS: usize = 128;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/v1/threads/{id}/batches", Access::Needs(Scope::ToolsCall), "calls", batch)
            .handles_idempotency()
            .summary("Make the calls a model asked for, and get the messages to answer it with")
            .json_response::<BatchResponse>(200, "One answer for each call, in their order")
            .problems(&[Code::INVALID_KEY, Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// A thread in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct ThreadPath {
    /// The thread; made when it is not there.
    id: String,
}

/// In whose words.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BatchQuery {
    /// The provider whose message it is; `{"calls": [{"tool", "arguments", "callId"}]}` where none is named.
    format: Option<Provider>,
}

/// A provider's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "BatchFormat")]
enum Provider {
    Openai,
    Anthropic,
}

/// The answers to the calls of one step.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "BatchAnswers")]
struct BatchResponse {
    /// Where a provider was named: messages for the model, to be added to the conversation as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<Value>>,
    /// Where none was named: each call as it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<Vec<CallView>>,
}

/// The key of one call. Each call of a step is a call of its own, and so is its repetition.
fn call_key(key: &IdempotencyKey, at: usize) -> String {
    format!("{key}/{at}")
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
    let asked = match query.format {
        None => request::parse_plain(message)?,
        Some(Provider::Openai) => request::parse_openai(message)?,
        Some(Provider::Anthropic) => request::parse_anthropic(message)?,
    };
    if asked.len() > MAX_BATCH_CALLS {
        return Err(Problem::new(
            Code::INVALID_REQUEST,
            format!("one step has at most {MAX_BATCH_CALLS} calls, not {}", asked.len()),
        ));
    }
    // Told before anything is done, and to the client: the model has not chosen the key.
    if key.as_ref().is_some_and(|key| IdempotencyKey::new(call_key(key, MAX_BATCH_CALLS)).is_err()) {
        let detail = "the header `Idempotency-Key` is too long: that of a batch takes 1 to 251 characters";
        return Err(Problem::new(Code::INVALID_KEY, detail));
    }
    let hub = app.hub();
    let mut calls = Vec::new();
    for (at, RequestedCall { id, call }) in asked.iter().enumerate() {
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
            request = request.idempotency_key(call_key(key, at));
        }
        calls.push(request);
    }
    let mut outcomes = hub.batch(calls).await.into_iter();
    let ends = asked.into_iter().filter_map(|RequestedCall { id, call }| match call {
        Ok(_) => outcomes.next().map(|outcome| (id, Ok(outcome))),
        Err(help) => Some((id, Err(help))),
    });
    let ends: Vec<(Option<String>, Result<Outcome, String>)> = ends.collect();
    Ok(Json(match query.format {
        None => BatchResponse { calls: Some(response::call_views(ends, &links)), messages: None },
        Some(Provider::Openai) => {
            BatchResponse { messages: Some(response::openai_messages(&ends, &links)), calls: None }
        }
        Some(Provider::Anthropic) => {
            BatchResponse { messages: Some(response::anthropic_messages(&ends, &links)), calls: None }
        }
    }))
}
