//! Batches: executes the tool calls of one model message and returns the tool messages for the model.
//!
//! In: a model's message or its tool calls, in the provider's format. Out: messages to append to the conversation
//! unchanged, and beside them where each call stands. A mistake of the model becomes a message that helps it; only a body
//! that is no message at all, or whose calls are in another format, is refused. `request` parses the message, `execution` makes the calls, `response` formats
//! the results.

mod execution;
mod request;
mod response;
mod shape;

use axum::{
    extract::State,
    http::{HeaderValue, Method, StatusCode},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};
use toolhub_core::{
    ErrorKind,
    export::Format,
    ids::{IdempotencyKey, ThreadId},
};

use crate::{
    app::App,
    extract::{Body, IdempotencyHeader, Params, Prefer, Query, Trace},
    json::Json,
    links::Links,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};
use execution::{Batch, CallEnd};
use request::BatchBody;
use response::BatchResponse;

/// The largest number of calls in a batch.
const MAX_BATCH_CALLS: usize = 128;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/v1/threads/{id}/batches", Access::Needs(Scope::ToolsCall), "calls", batch)
            .handles_idempotency()
            .summary("Execute the calls a model asked for, and get the messages to answer it with")
            .json_response::<BatchResponse>(200, "One result per call, in the order of the calls")
            .json_response::<BatchResponse>(
                202,
                "The calls continue in the background; send the same batch with the same key for their results",
            )
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
    /// The format of the message and of the results; without it, `{"calls": [{"tool", "arguments", "callId"}]}`.
    #[serde(default, deserialize_with = "parse_format")]
    format: Option<Format>,
}

fn parse_format<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Format>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(de::Error::custom)
}

#[allow(clippy::too_many_arguments, reason = "a handler takes the parts of a request one by one")]
async fn batch(
    State(app): State<App>,
    principal: Principal,
    Params(ThreadPath { id }): Params<ThreadPath>,
    Query(query): Query<BatchQuery>,
    IdempotencyHeader(key): IdempotencyHeader,
    prefer: Prefer,
    Trace(trace): Trace,
    links: Links,
    Body(BatchBody(message)): Body<BatchBody>,
) -> ApiResult<Response> {
    let unknown = |_| Problem::new(Code::THREAD_NOT_FOUND, format!("`{id}` cannot be a thread"));
    let thread = ThreadId::new(id.as_str()).map_err(unknown)?;
    let requested = request::parse(query.format, message)?;
    if requested.len() > MAX_BATCH_CALLS {
        return Err(Problem::new(
            Code::INVALID_REQUEST,
            format!("one step has at most {MAX_BATCH_CALLS} calls, not {}", requested.len()),
        ));
    }
    check_key(key.as_ref(), prefer)?;
    let batch =
        Batch { hub: app.hub(), principal: &principal, thread: &thread, key: key.as_ref(), trace: trace.as_ref() };
    let ends = batch.execute(requested, prefer).await;
    let accepted = prefer.respond_async && ends.iter().any(CallEnd::is_open);
    let body =
        BatchResponse::new(query.format.filter(|_| !accepted), ends, app.hub(), &principal.tenant, &links).await?;
    let status = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
    let mut response = (status, Json(body)).into_response();
    if let Some(value) = prefer.applied_header().and_then(|value| HeaderValue::try_from(value).ok()) {
        response.headers_mut().insert("preference-applied", value);
    }
    Ok(response)
}

/// Refuses an invalid key to the client before any call runs: the key was not the model's choice.
fn check_key(key: Option<&IdempotencyKey>, prefer: Prefer) -> ApiResult<()> {
    match key {
        Some(key) if IdempotencyKey::new(execution::call_key(key, MAX_BATCH_CALLS)).is_err() => {
            let detail = "the header `Idempotency-Key` is too long: that of a batch takes 1 to 251 characters";
            Err(Problem::new(Code::INVALID_KEY, detail))
        }
        None if prefer.respond_async => {
            let detail = "`Prefer: respond-async` needs the header `Idempotency-Key` on a batch";
            Err(Problem::new(Code::INVALID_KEY, detail)
                .hint("the results are fetched by sending the same batch with the same key again"))
        }
        _ => Ok(()),
    }
}
