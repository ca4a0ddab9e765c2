//! What is said in a thread: sent to its agent, and looked up.
//!
//! In: a message of a user. Out: 200 with the agent's answer, 202 where the run waits for somebody or the client does not wait, or a
//! stream of everything that happens until the end of the run. A run belongs to its thread, not to the request: a client that
//! goes away ends nothing.

mod answer;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_agent::{AgentError, KeptMessage, RunHandle, RunRecord, UserMessage};
use toolhub_core::{CallError, ErrorKind, ids::ThreadId};

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
    problem::{ApiResult, Code, Flaw, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
    sse,
};
use answer::MessageAnswer;

const LIST_NAME: &str = "messages";
/// The name of an agent is not longer.
const MAX_AGENT_NAME_LEN: usize = 64;

pub(super) fn routes() -> Vec<Route> {
    let (read, call) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ToolsCall));
    vec![
        Route::new(Method::POST, "/api/v1/threads/{id}/messages", call, "agents", send)
            .handles_idempotency()
            .summary("Say something to the agent of a thread; the thread is made when it is not there")
            .json_response::<MessageAnswer>(200, "The run has ended; how is in it")
            .response(200, "text/event-stream", "What happens in the run, until `run.completed` or `run.failed`")
            .json_response::<MessageAnswer>(
                202,
                "The run goes on alone, or waits for a person or for results; look at `Location` for its end",
            )
            .problems(&[Code::INVALID_KEY, Code::THREAD_NOT_FOUND, Code::AGENT_NOT_FOUND, Code::RUN_OPEN])
            .refusals(&[ErrorKind::IdempotencyKeyReused, ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/threads/{id}/messages", read, "agents", list)
            .summary("What was said in a thread, the oldest first")
            .json_response::<List<KeptMessage>>(200, "A page of it")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// What is said.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "NewMessage")]
struct MessageBody {
    /// The text.
    #[schemars(length(min = 1))]
    content: String,
    /// The agent it is said to; the one that was spoken to last in the thread, or `default`, where nothing is said.
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
        return Err(field_problem("/agent", "takes 1 to 64 characters"));
    }
    let streams = accepts_event_stream(&headers);
    // Listened to before it begins: nothing of it is missed. Who does not stream does not listen.
    let news = streams.then(|| app.hub().subscribe());
    let (agent, caller) = (body.agent.map(Into::into), principal.caller.clone());
    let said = UserMessage { content: body.content, agent, key, caller, trace };
    let mut run = app.agents().send(&principal.tenant, &thread, said).await.map_err(agent_problem)?;
    let replayed = run.is_replayed();
    let mut response = match news {
        Some(news) => {
            let tenant = principal.tenant.clone();
            // One that was begun now may have ended already, but not unheard.
            let following = match replayed {
                true => event_stream::follow_existing(&app, tenant, &run.record(), news),
                false => event_stream::follow_new(&app, tenant, run.id(), news),
            };
            sse::stream(&app, principal, following)
        }
        None => respond(wait_for_run(&mut run, prefer).await, prefer, &links),
    };
    if replayed {
        response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// The run as it is when the client has waited long enough.
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
    let (over, id) = (record.status.is_end(), record.id);
    let body = Json(MessageAnswer::of(record, links));
    let mut response = if over {
        body.into_response()
    } else {
        (StatusCode::ACCEPTED, [(header::LOCATION, links::run_path(id))], body).into_response()
    };
    if let Some(value) = prefer.applied_header().and_then(|words| HeaderValue::try_from(words).ok()) {
        response.headers_mut().insert("preference-applied", value);
    }
    response
}

/// Whether a client names streams among what it takes.
fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let said = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut media = said.flat_map(|value| value.split(',')).map(|one| one.split(';').next().unwrap_or_default().trim());
    media.any(|one| one.eq_ignore_ascii_case("text/event-stream"))
}

fn field_problem(pointer: &str, detail: &str) -> Problem {
    let flaw = Flaw { pointer: pointer.into(), detail: detail.into() };
    Problem::new(Code::INVALID_REQUEST, format!("`{}` {detail}", &pointer[1..])).with("errors", [flaw])
}

/// Why nobody was spoken to.
fn agent_problem(error: AgentError) -> Problem {
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
                .hint(format!("there are `{}`", known.join("`, `")))
                .with("suggestions", known),
        },
        AgentError::Empty => field_problem("/content", "is empty"),
        AgentError::KeyReused => CallError::new(ErrorKind::IdempotencyKeyReused).operator(error.to_string()).into(),
        AgentError::Stopping => Problem::new(Code::SHUTTING_DOWN, error.to_string()),
        AgentError::Store(error) => error.into(),
        other => {
            tracing::error!(error = %other, "an agent was not spoken to");
            Problem::new(Code::INTERNAL, other.to_string())
        }
    }
}

async fn list(
    State(app): State<App>,
    who: Principal,
    Params(of): Params<ThreadPath>,
    Query(query): Query<ListQuery>,
    here: RequestUri,
) -> ApiResult<ListResponse<KeptMessage>> {
    let thread = threads::find(&app, &who.tenant, &of.id).await?;
    let after = page::decode_cursor_as(query.cursor.as_ref(), LIST_NAME)?;
    let mut messages = app.agents().messages(&who.tenant, &thread.id, query.limit.plus_one(), after).await?;
    let next = query.limit.truncate(&mut messages).map(|last| last.seq.to_string());
    Ok(here.list_response(LIST_NAME, messages, next))
}
