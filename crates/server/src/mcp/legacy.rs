//! Protocol versions before 2026-07-28: sessions, their event streams, and messages of clients about requests in flight.
//!
//! In: HTTP requests. Out: responses. Each request is served by itself; an answer that is ready soon is JSON, any other one is an event
//! stream that can be resumed.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, StatusCode, request::Parts},
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures_util::{Stream, stream};
use rmcp::{
    ServerHandler,
    model::{
        ClientRequest, GetExtensions, InitializeRequestParams, JsonRpcMessage, JsonRpcRequest, ProtocolVersion,
        RequestId, ServerJsonRpcMessage, ServerResult,
    },
    service::serve_directly_with_ct,
};
use serde_json::json;
use toolhub_core::{CallError, ErrorKind};

use super::{
    direct_call::SessionCall,
    envelope::{MessageId, Refusal, read_message},
    list_watch::{ListChange, ListWatch},
    message_log::{MessageLog, Reader},
    meters::Listener,
    request::McpRequest,
    request_transport::RequestTransport,
    server::{HubServer, unfit_params},
    session::{OpenStream, RequestRefused, Session},
    sessions::Sessions,
    stored_sessions::CreateSessionError,
};
use crate::{
    connections::KEEP_ALIVE_INTERVAL,
    json::Json,
    problem::{Code, Problem},
    scope::Scope,
};

/// The header with the id of a session.
pub(super) const SESSION_HEADER: &str = "mcp-session-id";
/// The header with the last event that a client has received.
const LAST_EVENT_HEADER: &str = "last-event-id";
/// How long an answer may take before the response becomes an event stream.
const STREAM_AFTER: Duration = Duration::from_millis(500);
/// When a client should reconnect to a stream that was cut off.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Serves the legacy era.
pub(super) struct Legacy {
    pub(super) server: HubServer,
    pub(super) sessions: Arc<Sessions>,
}

impl Legacy {
    /// Opens a session.
    async fn initialize(&self, request: &McpRequest, id: RequestId, mut params: InitializeRequestParams) -> Response {
        let _timer = self.server.meters().time("initialize");
        let answer = match self.server.negotiate_initialize(&params) {
            Ok(mut answer) => {
                // Tasks, the only extension, came with the modern era.
                answer.capabilities.extensions = None;
                answer
            }
            Err(error) => return Json(ServerJsonRpcMessage::error(error, Some(id))).into_response(),
        };
        params.protocol_version = answer.protocol_version.clone();
        let session = match self.sessions.open(&request.principal, params).await {
            Ok(session) => session,
            Err(error) => return Problem::from(error).into_response(),
        };
        let mut response =
            Json(ServerJsonRpcMessage::response(ServerResult::InitializeResult(answer), id)).into_response();
        if let Ok(value) = HeaderValue::try_from(session.as_str()) {
            response.headers_mut().insert(SESSION_HEADER, value);
        }
        response
    }

    /// Answers a POST.
    pub(super) async fn post(
        &self,
        parts: Parts,
        body: &Bytes,
        request: &McpRequest,
        id: Option<MessageId>,
    ) -> Response {
        let message = match read_message(body) {
            Ok(message) => message,
            Err(refusal) => return refusal.to(id).into_response(),
        };
        match (&request.session, message) {
            (
                None,
                JsonRpcMessage::Request(JsonRpcRequest {
                    id, request: ClientRequest::InitializeRequest(opening), ..
                }),
            ) => self.initialize(request, id, opening.params).await,
            // `rmcp` takes a request whose parameters do not fit for one of an unknown method.
            (None, JsonRpcMessage::Request(JsonRpcRequest { request: ClientRequest::CustomRequest(custom), .. }))
                if custom.method == "initialize" =>
            {
                Refusal::bad_params(&unfit_params(&custom)).to(id).into_response()
            }
            (None, _) => Refusal::no_session().to(id).into_response(),
            (Some(_), JsonRpcMessage::Request(JsonRpcRequest { request: ClientRequest::InitializeRequest(_), .. })) => {
                Refusal::initialized_already().to(id).into_response()
            }
            (Some(session), JsonRpcMessage::Request(mut message)) => {
                message.request.extensions_mut().insert(parts);
                self.serve(session, message, id).await
            }
            (Some(session), message) => {
                let scope = Scope::ApprovalsWrite;
                match session.deliver(message, request.principal.has_scope(scope)) {
                    true => StatusCode::ACCEPTED.into_response(),
                    false => Problem::new(Code::FORBIDDEN, format!("this answer needs a key with the scope `{scope}`"))
                        .with("scope", scope)
                        .into_response(),
                }
            }
        }
    }

    /// Serves a call in a session whose client cannot be asked.
    pub(super) async fn call(
        &self,
        session: &Arc<Session>,
        call: SessionCall,
        request: Arc<McpRequest>,
        id: Option<MessageId>,
    ) -> Response {
        let begun = match session.begin(call.id().clone()) {
            Ok(begun) => begun,
            Err(refused) => return refuse(refused, id),
        };
        let (log, number) = (begun.0.log().clone(), begun.0.stream());
        tokio::spawn(call.run(request, self.server.clone(), session.clone(), begun));
        answer(session, &log, number).await
    }

    /// Serves one request of a session.
    async fn serve(
        &self,
        session: &Arc<Session>,
        request: JsonRpcRequest<ClientRequest>,
        id: Option<MessageId>,
    ) -> Response {
        let begun = match session.begin(request.id.clone()) {
            Ok(begun) => begun,
            Err(refused) => return refuse(refused, id),
        };
        let (log, number) = (begun.0.log().clone(), begun.0.stream());
        let transport = RequestTransport::new(JsonRpcMessage::Request(request), session.clone(), begun);
        let (client, ended) = (session.client.clone(), session.ended.child_token());
        let running = serve_directly_with_ct(self.server.clone(), transport, Some(client), ended);
        tokio::spawn(running.waiting());
        answer(session, &log, number).await
    }

    /// Answers a GET: resumes a stream, or opens the stream of the session.
    pub(super) async fn get(&self, parts: &Parts, session: &Arc<Session>, request: &McpRequest) -> Response {
        let last = parts.headers.get(LAST_EVENT_HEADER).and_then(|value| value.to_str().ok());
        let resumed = last.and_then(|last| {
            let (stream, events) = last.split_once('-')?;
            let stream = stream.parse().ok()?;
            Some((stream, session.resume(stream, events.parse().ok()?)?))
        });
        if let Some((number, reader)) = resumed {
            // A client would resume an empty stream again and again: of a cancelled request, or after the answer.
            if reader.is_at_end() {
                return StatusCode::NO_CONTENT.into_response();
            }
            return event_stream(session, number, None, reader);
        }
        if last.is_some() {
            return Refusal::events_gone().into_response();
        }
        let thread = request.thread.clone().unwrap_or_else(|| session.thread.clone());
        match Box::pin(self.server.watch_lists(request, Some(thread), session.updates.clone())).await {
            Ok(watch) => session_stream(session, watch, self.server.meters().listener()),
            Err(error) => {
                let message = Json(ServerJsonRpcMessage::error(error, None));
                (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
            }
        }
    }
}

/// Says that a request of a session is refused.
fn refuse(refused: RequestRefused, id: Option<MessageId>) -> Response {
    match refused {
        RequestRefused::SameId => Refusal::id_in_use().to(id).into_response(),
        RequestRefused::TooMany => {
            overloaded("as many requests of this MCP session are in flight as there may be").into_response()
        }
    }
}

/// Answers a request from its log: with its answer, or with an event stream if the answer takes a while.
async fn answer(session: &Arc<Session>, log: &Arc<MessageLog>, number: u64) -> Response {
    match tokio::time::timeout(STREAM_AFTER, log.read_from(0).next()).await {
        Ok(Some((_, message, true))) => json_message(&message),
        // It was cancelled, or its session has ended.
        Ok(None) if session.ended.is_cancelled() => unknown_session().into_response(),
        Ok(None) => StatusCode::ACCEPTED.into_response(),
        Ok(Some(_)) | Err(_) => {
            session.keep_stream(number, log.clone());
            // An event before the first message, so that a client can resume from it.
            let first = (session.client.protocol_version >= ProtocolVersion::V_2025_11_25)
                .then(|| Bytes::from(format!("id: {number}-0\nretry: {}\ndata: \n\n", RECONNECT_DELAY.as_millis())));
            event_stream(session, number, first, log.read_from(0))
        }
    }
}

fn json_message(message: &str) -> Response {
    ([(axum::http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], message.to_owned())
        .into_response()
}

/// The messages of a request as an event stream. The id of an event is the stream and the number of messages up to it.
///
/// `first` is a whole event as text: `Event` cannot express empty data, and parsers ignore an event without data.
fn event_stream(session: &Arc<Session>, number: u64, first: Option<Bytes>, reader: Reader) -> Response {
    let open = session.open_stream();
    let messages = stream::unfold((reader, open), move |(mut reader, open): (Reader, OpenStream)| async move {
        let (event, message, _) = reader.next().await?;
        let event = Event::default().id(format!("{number}-{}", event + 1)).data(&*message);
        Some((event, (reader, open)))
    });
    let (parts, body) = sse_response(messages).into_parts();
    let first = stream::iter(first.map(Ok::<_, axum::Error>));
    Response::from_parts(parts, Body::from_stream(futures_util::StreamExt::chain(first, body.into_data_stream())))
}

/// The stream of a session: says when its lists and resources have changed, until the session ends or the client opens another one.
fn session_stream(session: &Arc<Session>, watch: ListWatch, listener: Listener) -> Response {
    let (replaced, ended, open) = (session.replace_stream(), session.ended.clone(), session.open_stream());
    sse_response(stream::unfold((watch, open, listener), move |(mut watch, open, listener)| {
        let (replaced, ended) = (replaced.clone(), ended.clone());
        async move {
            let change = replaced.run_until_cancelled(ended.run_until_cancelled(watch.changed())).await???;
            Some((Event::default().data(notification(change)), (watch, open, listener)))
        }
    }))
}

/// The message that says what has changed.
fn notification(change: ListChange) -> String {
    let (method, params) = match change {
        ListChange::Tools => ("notifications/tools/list_changed", None),
        ListChange::Prompts => ("notifications/prompts/list_changed", None),
        ListChange::Resources => ("notifications/resources/list_changed", None),
        ListChange::Updated(uri) => ("notifications/resources/updated", Some(json!({"uri": uri}))),
    };
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if let Some(params) = params {
        message["params"] = params;
    }
    message.to_string()
}

fn sse_response(events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let events = futures_util::StreamExt::map(events, Ok::<_, std::convert::Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL).text("ka")).into_response()
}

impl From<CreateSessionError> for Problem {
    fn from(error: CreateSessionError) -> Self {
        match error {
            CreateSessionError::Store(error) => error.into(),
            CreateSessionError::TooLarge(_) => Self::new(Code::TOO_LARGE, error.to_string()),
            CreateSessionError::TooMany(_) | CreateSessionError::TooManyOfCaller(_) => overloaded(&error.to_string()),
        }
    }
}

fn overloaded(text: &str) -> Problem {
    let mut error = CallError::new(ErrorKind::Overloaded).operator(text);
    error.retry_after = Some(RETRY_AFTER);
    error.into()
}

/// The same for a session that has ended, that never existed, and that another caller owns.
pub(super) fn unknown_session() -> Problem {
    Problem::new(Code::SESSION_NOT_FOUND, "there is no such session, or it has ended")
        .hint("send `initialize` again, without the header `Mcp-Session-Id`")
}

/// When a client should try again if too much is open.
const RETRY_AFTER: Duration = Duration::from_secs(30);
