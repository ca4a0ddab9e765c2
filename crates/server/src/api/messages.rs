//! Messages of a thread: sent to its agent, and listed.
//!
//! In: a user's message. Out: 200 with the agent's answer, 202 if the run waits for an approval or a result or the
//! client does not wait, or a stream of the run's events until its end. A run belongs to its thread, not to the
//! request: a client that disconnects does not end it.

mod answer;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use smol_str::SmolStr;
use toolhub_agent::{AgentError, RunHandle, RunRecord, StoredMessage, UserMessage};
use toolhub_core::{
    CallError, ErrorKind,
    ids::{ThreadId, ThreadKey},
};

use super::{
    runs::event_stream,
    threads::{self, ThreadPath, truncate},
};
use crate::{
    app::App,
    extract::{Body, IdempotencyHeader, Params, Prefer, Query, Trace},
    json::Json,
    links::{self, Links},
    page::{self, List, ListQuery, ListResponse, RequestUri},
    problem::{ApiResult, Code, FieldError, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
    sse,
};
use answer::MessageAnswer;

const LIST_NAME: &str = "messages";
/// Longest name of an agent.
const MAX_AGENT_NAME_LEN: usize = 64;

pub(super) fn routes() -> Vec<Route> {
    let (read, call) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ToolsCall));
    vec![
        Route::new(Method::POST, "/api/v1/threads/{id}/messages", call, "agents", send)
            .handles_idempotency()
            .summary("Send a message to the agent of a thread; creates the thread if it does not exist")
            .json_response::<MessageAnswer>(200, "The run has ended; the body has its result")
            .response(200, "text/event-stream", "The events of the run, until `run.completed` or `run.failed`")
            .json_response::<MessageAnswer>(
                202,
                "The run continues in the background, or waits for an approval or for results; poll `Location` for its end",
            )
            .problems(&[Code::INVALID_KEY, Code::THREAD_NOT_FOUND, Code::AGENT_NOT_FOUND, Code::RUN_OPEN])
            .refusals(&[ErrorKind::IdempotencyKeyReused, ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/threads/{id}/messages", read, "agents", list)
            .summary("Messages of a thread, oldest first")
            .json_response::<List<StoredMessage>>(200, "A page of messages")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// The message to send.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "NewMessage")]
struct MessageBody {
    /// The text.
    #[schemars(length(min = 1))]
    content: String,
    /// The agent; by default the one used last in the thread, or `default`.
    #[schemars(length(min = 1, max = 64))]
    agent: Option<String>,
}

#[allow(clippy::too_many_arguments, reason = "a handler takes the parts of a request one by one")]
async fn send(
    State(app): State<App>,
    principal: Principal,
    Params(ThreadPath { id }): Params<ThreadPath>,
    IdempotencyHeader(key): IdempotencyHeader,
    prefer: Prefer,
    Trace(trace): Trace,
    headers: HeaderMap,
    links: Links,
    Body(body): Body<MessageBody>,
) -> ApiResult<Response> {
    let unknown = |_| Problem::new(Code::THREAD_NOT_FOUND, format!("`{}` cannot be a thread", truncate(&id)));
    let thread = ThreadId::new(id.as_str()).map_err(unknown)?;
    if body.agent.as_ref().is_some_and(|name| name.is_empty() || name.len() > MAX_AGENT_NAME_LEN) {
        return Err(field_problem("/agent", "must have 1 to 64 characters"));
    }
    let streams = accepts_event_stream(&headers);
    // Subscribe before the run starts, so that no event is missed. Only streams need the subscription.
    let events = streams.then(|| app.hub().subscribe());
    let (agent, caller) = (body.agent.map(SmolStr::from), principal.caller.clone());
    let message = UserMessage { content: body.content, agent: agent.clone(), key, caller, trace };
    let sent = app.agents().send(&principal.tenant, &thread, message).await;
    let mut run = sent.map_err(|error| agent_problem(error, &thread, agent.as_deref()))?;
    let replayed = run.is_replayed();
    let mut response = match events {
        Some(events) => {
            let tenant = &principal.tenant;
            // A run that was just started may have ended already, but its events are in the subscription.
            let run_events = match replayed {
                true => event_stream::follow_existing(&app, tenant, &run.record(), events, links),
                false => event_stream::follow_new(&app, &ThreadKey::new(tenant, &thread), run.id(), events, links),
            };
            sse::stream(&app, principal, run_events)
        }
        None => respond(wait_for_run(&mut run, prefer).await, prefer, &links),
    };
    if replayed {
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// Waits as long as the client prefers, and returns the run's record.
async fn wait_for_run(run: &mut RunHandle, prefer: Prefer) -> RunRecord {
    match prefer {
        Prefer { wait: Some(wait), .. } => match tokio::time::timeout(wait, run.wait_ended()).await {
            Ok(record) => record,
            Err(_) => run.record(),
        },
        Prefer { respond_async: true, .. } => run.record(),
        _ => run.wait_while_running().await,
    }
}

fn respond(record: RunRecord, prefer: Prefer, links: &Links) -> Response {
    let (has_ended, id) = (record.status.is_end(), record.id);
    let body = Json(MessageAnswer::of(record, links));
    let mut response = if has_ended {
        body.into_response()
    } else {
        (StatusCode::ACCEPTED, [(header::LOCATION, links::run_path(id))], body).into_response()
    };
    if let Some(value) = prefer.applied_header().and_then(|value| HeaderValue::try_from(value).ok()) {
        response.headers_mut().insert("preference-applied", value);
    }
    response
}

/// Whether the client accepts an event stream.
fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut media_types = values
        .flat_map(|value| value.split(','))
        .map(|media_type| media_type.split(';').next().unwrap_or_default().trim());
    media_types.any(|media_type| media_type.eq_ignore_ascii_case("text/event-stream"))
}

fn field_problem(pointer: &str, detail: &str) -> Problem {
    let field_error = FieldError::new(pointer, detail);
    Problem::new(Code::INVALID_REQUEST, format!("`{}` {detail}", &pointer[1..])).with("errors", [field_error])
}

/// The problem for a message that was not delivered.
fn agent_problem(error: AgentError, thread: &ThreadId, agent: Option<&str>) -> Problem {
    match error {
        AgentError::Busy(run) => Problem::new(Code::RUN_OPEN, error.to_string())
            .hint(format!("GET /api/v1/runs/{run} shows what it waits for; POST /api/v1/runs/{run}/cancel ends it"))
            .with("runId", run),
        AgentError::NoSuchAgent { ref name, available: ref known } => match known.as_slice() {
            [] => Problem::new(Code::AGENT_NOT_FOUND, "this server has no agents").hint(
                "add [llm] to its config: provider = \"scripted\" to try it out; or \"openai\" or \"anthropic\", with \
                 `model` and `api_key`",
            ),
            known => Problem::new(Code::AGENT_NOT_FOUND, format!("there is no agent `{}`", truncate(name)))
                .hint(format!("known are `{}`", known.join("`, `")))
                .with("suggestions", known),
        },
        AgentError::Empty => field_problem("/content", "is empty"),
        AgentError::KeyReused => CallError::new(ErrorKind::IdempotencyKeyReused).operator(error.to_string()).into(),
        AgentError::Stopping => Problem::new(Code::SHUTTING_DOWN, error.to_string()),
        AgentError::Store(error) => error.into(),
        other => {
            tracing::error!(%thread, agent, error = %other, "could not deliver message to agent");
            Problem::new(Code::INTERNAL, other.to_string())
        }
    }
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadPath>,
    Query(query): Query<ListQuery>,
    uri: RequestUri,
) -> ApiResult<ListResponse<StoredMessage>> {
    let thread = threads::find(&app, &principal.tenant, &path.id).await?;
    let after = page::decode_cursor_as(query.cursor.as_ref(), LIST_NAME)?;
    let fetch = |limit, after| app.agents().messages(&principal.tenant, &thread.id, limit, after);
    let (messages, has_more) = page::fetch_page(query.limit, after, |last| last.seq, fetch).await?;
    let position = |items: &[StoredMessage]| items.last().map(|last| last.seq.to_string()).unwrap_or_default();
    let next = has_more.then(|| position(&messages));
    Ok(uri.bounded_list_response(LIST_NAME, messages, next, position))
}
