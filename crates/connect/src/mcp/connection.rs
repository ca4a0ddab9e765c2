//! One live connection to an MCP server.
//!
//! In: an endpoint and an era. Out: what the server said about itself, pages of its lists, results of calls, each as raw JSON
//! text. It neither reconnects nor falls back to another era: a supervisor does that, with a new connection. Every request ends at
//! once when the connection does, and a request that is dropped is cancelled at the server.

mod direct;
mod handshake;
mod operation;
mod request;
mod silence;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use rmcp::{
    model::{DiscoverRequest, DiscoverRequestParams, PingRequest, RequestMetaObject, SubscriptionFilter},
    service::{RoleClient, RunningService, ServiceError, Subscription},
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use direct::DirectRequests;
use handshake::Handler;
pub(crate) use operation::Operation;
use silence::Silence;

use super::{
    accepted_input::AcceptedInput,
    connect_error::ConnectError,
    era::Era,
    list_kind::ListKind,
    log_ring::LogRing,
    wire::{
        self, End, EndCause, HttpSettings, JsonRpcFailure, Lifecycle, ListChanges, RequestError, Router, StdioSettings,
        UpdateSender, UpdatedResources,
    },
};
use crate::{
    command::{Command, ProgramSecrets},
    rest::Rest,
};

/// `_meta` key of the idempotency key of a call.
const IDEMPOTENCY_KEY: &str = "dev.toolhub/idempotencyKey";

/// How a server is reached.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there is one per server")]
pub(crate) enum Endpoint {
    /// A program that speaks on its stdin and stdout.
    Stdio(Command),
    /// An address that speaks streamable HTTP, with its headers, credentials and connection settings. The method and the body of
    /// the request are not used.
    Http(Box<Rest>),
}

impl Endpoint {
    /// The endpoint for people, without anything that may be secret.
    pub(crate) fn description(&self) -> Map<String, Value> {
        match self {
            Self::Stdio(_) => Map::from_iter([("transport".to_owned(), "stdio".into())]),
            Self::Http(request) => Map::from_iter([
                ("transport".to_owned(), "http".into()),
                ("url".to_owned(), request.description()["url"].clone()),
            ]),
        }
    }

    /// What only administrators may know.
    pub(crate) fn admin_description(&self) -> Map<String, Value> {
        match self {
            Self::Stdio(command) => Map::from_iter([("command".to_owned(), command.program_text().into())]),
            Self::Http(_) => Map::new(),
        }
    }

    /// What its tools do depends on this. Secrets are left out, so that a new one voids no grant.
    pub(crate) fn implementation(&self) -> Value {
        match self {
            Self::Stdio(command) => command.implementation(),
            Self::Http(request) => request.implementation(),
        }
    }
}

/// Limits of a connection, and what the client offers to the server.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionOptions {
    /// For the whole handshake.
    pub(crate) startup_timeout: Duration,
    /// For each write that the server does not accept.
    pub(crate) write_timeout: Duration,
    /// Maximum size of one message, in bytes.
    pub(crate) max_message: usize,
    /// The input requests that callers may be asked, as far as each call says so.
    pub(crate) input: AcceptedInput,
    pub(crate) roots: Vec<Root>,
    /// Where the log lines of the server go.
    pub(crate) logs: Arc<LogRing>,
}

impl ConnectionOptions {
    /// The roots, as in the protocol.
    pub(crate) fn roots(&self) -> Vec<Value> {
        self.roots.iter().map(|root| json!({"uri": root.uri, "name": root.name})).collect()
    }
}

/// A folder that the server may ask for.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) uri: String,
    pub(crate) name: Option<String>,
}

/// What a server says about itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PeerFacts {
    pub(crate) era: Era,
    pub(crate) protocol_version: String,
    /// Name and version. Informative only: any server may claim any name.
    pub(crate) server: Option<(String, String)>,
    pub(crate) tools: ListSupport,
    pub(crate) prompts: ListSupport,
    /// Resources and their templates.
    pub(crate) resources: ListSupport,
    /// Whether it reports changes of single resources.
    pub(crate) watches_resources: bool,
    /// Whether it completes arguments.
    pub(crate) completes: bool,
    pub(crate) sends_logs: bool,
}

/// Whether a server has a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ListSupport {
    pub(crate) is_there: bool,
    /// Whether the server reports its changes.
    pub(crate) reports_changes: bool,
}

/// What a server is asked to report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ReportedChanges {
    pub(crate) tools: bool,
    pub(crate) prompts: bool,
    pub(crate) resources: bool,
    /// The resources whose changes are to be reported.
    pub(crate) uris: Vec<String>,
}

/// A request on behalf of a call.
pub(crate) struct OutgoingCall {
    pub(crate) operation: Operation,
    /// Trace context, `traceparent` of W3C.
    pub(crate) traceparent: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    /// Further members of `params`, to answer input requests of the modern era: `inputResponses`, `requestState`.
    pub(crate) input: Option<InputAnswers>,
    /// Where progress, log lines and questions go.
    pub(crate) updates: UpdateSender,
}

/// Answers to the input requests of an earlier result.
#[derive(Debug, Clone, Default)]
pub(crate) struct InputAnswers {
    pub(crate) responses: std::collections::BTreeMap<String, Value>,
    pub(crate) state: Option<String>,
}

/// A live connection.
pub(crate) struct Connection {
    running: RunningService<RoleClient, Handler>,
    /// Of a program: over HTTP all requests go through `rmcp`.
    direct: Option<DirectRequests>,
    router: Arc<Router>,
    lifecycle: Arc<Lifecycle>,
    secrets: Arc<ProgramSecrets>,
    facts: PeerFacts,
    silence: Silence,
    /// Held while a call that was given up makes the connection be checked.
    pub(crate) checking: tokio::sync::Mutex<()>,
}

impl Connection {
    /// Connects, and completes the handshake of an era.
    pub(crate) async fn open(endpoint: &Endpoint, era: Era, options: &ConnectionOptions) -> Result<Self, ConnectError> {
        let timeout = options.startup_timeout;
        let opening = async {
            match endpoint {
                Endpoint::Stdio(command) => Self::open_stdio(command, era, options).await,
                Endpoint::Http(rest) => Self::open_http(rest, era, options).await,
            }
        };
        tokio::time::timeout(timeout, opening).await.unwrap_or(Err(ConnectError::Silent(timeout)))
    }

    async fn open_stdio(command: &Command, era: Era, options: &ConnectionOptions) -> Result<Self, ConnectError> {
        let settings = StdioSettings {
            era,
            max_message: options.max_message,
            write_timeout: options.write_timeout,
            roots: options.roots(),
            logs: options.logs.clone(),
        };
        let started = wire::start_stdio(command, settings).map_err(ConnectError::Start)?;
        let (router, lifecycle, secrets) = (started.router, started.lifecycle, started.secrets);
        let running = handshake::run(started.transport, era, options, (&lifecycle, &secrets.all)).await?;
        let facts = handshake::facts(&running, era, &secrets.all)?;
        let modern =
            (era == Era::Modern).then(|| (handshake::implementation(), handshake::capabilities(options.input)));
        let direct = Some(DirectRequests::new(started.sender, modern));
        Ok(Self {
            running,
            direct,
            router,
            lifecycle,
            secrets,
            facts,
            silence: Default::default(),
            checking: Default::default(),
        })
    }

    async fn open_http(rest: &Rest, era: Era, options: &ConnectionOptions) -> Result<Self, ConnectError> {
        let settings =
            HttpSettings { era, max_message: options.max_message, roots: options.roots(), logs: options.logs.clone() };
        let started = wire::start_http(rest, settings).await.map_err(handshake::start_error)?;
        let (router, lifecycle, secrets) = (started.router, started.lifecycle, started.secrets);
        let running = match handshake::run(started.transport, era, options, (&lifecycle, &secrets.all)).await {
            Ok(running) => running,
            Err(error) => return Err(handshake::http_error(error, era, &started.handle).await),
        };
        let facts = handshake::facts(&running, era, &secrets.all)?;
        Ok(Self {
            running,
            direct: None,
            router,
            lifecycle,
            secrets,
            facts,
            silence: Default::default(),
            checking: Default::default(),
        })
    }

    /// What the server says about itself.
    pub(crate) fn facts(&self) -> &PeerFacts {
        &self.facts
    }

    /// The secrets of the server's program, to be masked in results.
    pub(crate) fn secrets(&self) -> &ProgramSecrets {
        &self.secrets
    }

    /// One page of a list: the raw JSON text of the result.
    pub(crate) async fn list_page(&self, kind: ListKind, cursor: Option<String>) -> Result<String, RequestError> {
        request::send(self, operation::list_request(kind, cursor), None, None).await
    }

    /// Makes the request of a call: the raw JSON text of the result. Dropping the future cancels it at the server.
    #[allow(deprecated, reason = "log levels are deprecated, but servers send no log lines without one")]
    pub(crate) async fn call(&self, call: OutgoingCall) -> Result<String, RequestError> {
        let mut meta = RequestMetaObject::new();
        if let Some(traceparent) = call.traceparent {
            meta.set_traceparent(traceparent);
        }
        if let Some(key) = call.idempotency_key {
            meta.insert(IDEMPOTENCY_KEY.into(), key.into());
        }
        if self.facts.era == Era::Modern {
            if self.facts.sends_logs {
                meta.set_log_level(rmcp::model::LoggingLevel::Info);
            }
            // Of this call: its caller may answer less than others.
            meta.set_client_capabilities(handshake::capabilities(call.updates.accepted()));
        }
        request::send(self, call.operation.into_request(call.input), Some(meta), Some(call.updates)).await
    }

    /// Asks the server to report changes of a resource, or not to do so any more. Only in the legacy era.
    pub(crate) async fn watch_resource(&self, uri: &str, is_watched: bool) -> Result<(), RequestError> {
        request::send(self, operation::watch_request(uri, is_watched), None, None).await.map(drop)
    }

    /// A cheap request that shows whether the server still answers.
    pub(crate) async fn probe(&self) -> Result<(), RequestError> {
        let probe = match self.facts.era {
            Era::Legacy => PingRequest::default().into(),
            Era::Modern => DiscoverRequest::new(DiscoverRequestParams {}).into(),
        };
        request::send(self, probe, None, None).await.map(|_| ())
    }

    /// Asks the server to report changes. In the legacy era lists need no request, and resources
    /// [one each](Self::watch_resource).
    pub(crate) async fn listen(&self, changes: &ReportedChanges) -> Result<ListSubscription, RequestError> {
        if self.facts.era == Era::Legacy {
            return Ok(ListSubscription(None));
        }
        let mut filter = SubscriptionFilter::builder();
        if changes.tools {
            filter = filter.tools_list_changed();
        }
        if changes.prompts {
            filter = filter.prompts_list_changed();
        }
        if changes.resources {
            filter = filter.resources_list_changed();
        }
        if !changes.uris.is_empty() {
            filter = filter.resource_subscriptions(changes.uris.iter().cloned());
        }
        let filter = filter.build();
        let subscription = tokio::select! {
            biased;
            end = self.lifecycle.ended() => return Err(RequestError::Lost(end)),
            subscription = self.running.listen(filter) => subscription,
        };
        match subscription {
            Ok(subscription) => Ok(ListSubscription(Some(subscription))),
            Err(ServiceError::McpError(error)) => {
                let failure = JsonRpcFailure { code: error.code.0, message: error.message.into(), data: error.data };
                Err(RequestError::Refused(failure))
            }
            Err(ServiceError::UnexpectedResponse) => Err(RequestError::Invalid(wire::Violation::NotAMessage(
                "the answer to `subscriptions/listen` is not as the protocol says",
            ))),
            Err(_) => Err(RequestError::Lost(self.end_reason())),
        }
    }

    /// Numbers that change whenever the server says that one of its lists has changed. Any number of changes between two looks
    /// count as one.
    pub(crate) fn list_changes(&self) -> watch::Receiver<ListChanges> {
        self.router.list_changes()
    }

    /// The resources that the server says have changed.
    pub(crate) fn updated_resources(&self) -> &UpdatedResources {
        &self.router.updated_resources
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) -> Arc<End> {
        self.lifecycle.ended().await
    }

    /// Whether the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lifecycle.reason().is_some()
    }

    /// How many requests wait for an answer.
    pub(crate) fn in_flight(&self) -> usize {
        self.router.in_flight()
    }

    /// How many calls wait for an answer.
    pub(crate) fn calls_in_flight(&self) -> usize {
        self.router.calls_in_flight()
    }

    /// Ends the connection, because the server does not answer.
    pub(crate) fn end_unresponsive(&self) {
        self.lifecycle.end(EndCause::Unresponsive);
    }

    /// Closes the connection and waits until its process is gone: closed stdin, SIGTERM, SIGKILL. Dropping a connection does the
    /// same without waiting.
    pub(crate) async fn close(&self) {
        self.lifecycle.request_close();
        self.lifecycle.released().await;
    }

    fn end_reason(&self) -> Arc<End> {
        self.lifecycle.reason().unwrap_or_else(|| Arc::new(EndCause::Closed.into()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.lifecycle.request_close();
    }
}

/// A subscription to changes. Dropping it ends it at the server.
pub(crate) struct ListSubscription(Option<Subscription>);

impl ListSubscription {
    /// Waits until the server has ended the subscription, so that changes are not reported any more. Never, in the legacy era.
    pub(crate) async fn ended(&mut self) {
        match &mut self.0 {
            // The router consumes the notifications.
            Some(subscription) => while let Ok(Some(_)) = subscription.next().await {},
            None => std::future::pending().await,
        }
    }
}
