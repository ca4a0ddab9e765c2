//! Input requests of a server: elicitation, sampling, roots.
//!
//! In: questions of a server about a running call, or a result that asks for input. Out: the answers of the call's caller, as the
//! protocol wants them. What the caller cannot answer is declined; where the protocol has no word for that, the call ends.

use std::collections::BTreeMap;

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use serde_json::{Value, json};
use toolhub_core::{BoxFuture, CallContext, InputError, InputKind, InputRequest};

use super::{
    accepted_input::AcceptedInput,
    connection::InputAnswers,
    reply::InputRequired,
    wire::{JsonRpcFailure, Question},
};
use crate::secret_mask::SecretMask;

/// How often a server may ask during one call.
pub(super) const MAX_ROUNDS: usize = 10;
/// How many things a server may ask for at once.
const MAX_REQUESTS: usize = 16;
/// JSON-RPC error code: a person has to visit addresses first.
pub(super) const URL_ELICITATION_REQUIRED: i32 = -32042;

/// JSON-RPC error code: the caller lacks a capability that the request needs.
pub(super) const MISSING_CAPABILITY: i32 = -32021;

/// Why a server does not get the input it asked for. The texts are for models.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputFailure {
    #[error("The tool asked its caller for input more than {MAX_ROUNDS} times.")]
    TooManyRounds,
    #[error("The tool asks its caller for more than {MAX_REQUESTS} things at once.")]
    TooManyRequests,
    #[error("The caller declined a request of the tool.")]
    Declined,
    #[error("The tool asks its caller for input, which this caller cannot give.")]
    NotAccepted,
    #[error("The tool needs a person to open a page in a browser first, which this caller cannot ask for.")]
    VisitNotAccepted,
    #[error("The caller did not open the page that the tool needs.")]
    NotVisited,
}

/// The questions about one call while it runs.
pub(super) struct Questions<'a> {
    context: &'a CallContext,
    secrets: &'a SecretMask,
    asked: usize,
    open: FuturesUnordered<BoxFuture<'a, ()>>,
}

impl<'a> Questions<'a> {
    pub(super) fn new(context: &'a CallContext, secrets: &'a SecretMask) -> Self {
        Self { context, secrets, asked: 0, open: FuturesUnordered::new() }
    }

    /// Asks the caller. A question that is dropped is declined.
    pub(super) fn ask(&mut self, question: Question) {
        self.asked += 1;
        let Ok(mut params) = serde_json::from_str::<Value>(&question.params) else { return };
        if self.asked > MAX_ROUNDS {
            return;
        }
        self.secrets.value(&mut params);
        let request = InputRequest::new(question.kind, params);
        let context = self.context;
        self.open.push(Box::pin(async move {
            if let Ok(answer) = context.request_input(request).await
                && answer.is_object()
            {
                question.answer(&answer);
            }
        }));
    }

    /// Waits until a question is answered; for ever if none is open.
    pub(super) async fn answered(&mut self) {
        if self.open.next().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

/// Who answers the input requests of a result.
pub(super) struct Answerer<'a> {
    pub(super) context: &'a CallContext,
    pub(super) accepted: AcceptedInput,
    /// The roots of the config, as in the protocol.
    pub(super) roots: &'a [Value],
}

impl Answerer<'_> {
    /// The answers to the input requests of a result.
    ///
    /// # Errors
    /// When the caller cannot give one of them.
    pub(super) async fn answer(&self, asked: InputRequired) -> Result<InputAnswers, InputFailure> {
        let InputRequired { requests, request_state } = asked;
        if requests.len() > MAX_REQUESTS {
            return Err(InputFailure::TooManyRequests);
        }
        let answers = join_all(requests.into_iter().map(async |(key, request)| {
            let answer = self.answer_one(&key, request).await?;
            Ok::<_, InputFailure>((key, answer))
        }));
        let responses = answers.await.into_iter().collect::<Result<BTreeMap<_, _>, _>>()?;
        Ok(InputAnswers { responses, state: request_state })
    }

    async fn answer_one(&self, key: &str, mut request: Value) -> Result<Value, InputFailure> {
        let params = request.get_mut("params").map(Value::take).filter(Value::is_object).unwrap_or_else(|| json!({}));
        let kind = input_kind(request["method"].as_str().unwrap_or_default(), params["mode"].as_str());
        match kind {
            Some(InputKind::Roots) if !self.roots.is_empty() => Ok(json!({"roots": self.roots})),
            Some(kind) if self.accepted.contains(kind) => {
                let answer = self.context.request_input(InputRequest::new(kind, params).key(key)).await;
                match (answer, kind) {
                    (Ok(answer), _) if answer.is_object() => Ok(answer),
                    (Err(InputError::TimedOut), InputKind::Form | InputKind::Url) => Ok(json!({"action": "cancel"})),
                    (_, InputKind::Form | InputKind::Url) => Ok(json!({"action": "decline"})),
                    _ => Err(InputFailure::Declined),
                }
            }
            kind => {
                kind.into_iter().for_each(|kind| self.context.miss_input(kind));
                Err(InputFailure::NotAccepted)
            }
        }
    }

    /// Asks the caller to visit the addresses that a server names in an error. The call may be made again after it.
    ///
    /// # Errors
    /// When the caller cannot, or does not want to.
    pub(super) async fn visit(&self, failure: JsonRpcFailure) -> Result<(), InputFailure> {
        let elicitations = failure.data.and_then(|mut data| data.get_mut("elicitations").map(Value::take));
        let Some(Value::Array(elicitations)) = elicitations.filter(|_| self.accepted.url) else {
            return Err(InputFailure::VisitNotAccepted);
        };
        for params in elicitations.into_iter().take(MAX_ROUNDS) {
            let answer = self.context.request_input(InputRequest::new(InputKind::Url, params)).await;
            if answer.ok().as_ref().and_then(|answer| answer["action"].as_str()) != Some("accept") {
                return Err(InputFailure::NotVisited);
            }
        }
        Ok(())
    }
}

/// What a server needs its caller to answer, if that is why it refused a request.
pub(super) fn missing_kinds(failure: &JsonRpcFailure) -> Vec<InputKind> {
    let required = failure.data.as_ref().filter(|_| failure.code == MISSING_CAPABILITY);
    let Some(required) = required.and_then(|data| data["requiredCapabilities"].as_object()) else { return Vec::new() };
    let kinds = [("elicitation", InputKind::Form), ("sampling", InputKind::Sampling), ("roots", InputKind::Roots)];
    kinds.into_iter().filter(|(name, _)| required.contains_key(*name)).map(|(_, kind)| kind).collect()
}

/// What a request of a server asks for.
fn input_kind(method: &str, mode: Option<&str>) -> Option<InputKind> {
    match method {
        "elicitation/create" if mode == Some("url") => Some(InputKind::Url),
        "elicitation/create" => Some(InputKind::Form),
        "sampling/createMessage" => Some(InputKind::Sampling),
        "roots/list" => Some(InputKind::Roots),
        _ => None,
    }
}
