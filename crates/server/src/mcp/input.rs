//! Input requests of running tools, as the client's era of the protocol knows them.
//!
//! In: what a tool asks its caller for. Out: in the legacy era a request to the client, in the modern one a part of the result. Only what
//! the client has declared it can answer is asked.
#![allow(deprecated, reason = "sampling and roots are deprecated, but clients and servers still have them")]

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rmcp::{
    RoleServer,
    model::{ClientCapabilities, CustomRequest, InputRequest as McpInputRequest, InputRequests, ServerRequest},
    service::{PeerRequestOptions, RequestHandle},
};
use serde_json::{Value, json};
use toolhub_core::{BoxFuture, InputHandler, InputKind, InputRequest};

use super::request::ClientChannel;

/// How long a cancellation may take to be queued.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// What a client can be asked for.
pub(super) fn accepted_kinds(capabilities: &ClientCapabilities) -> Vec<InputKind> {
    let mut kinds = Vec::new();
    if let Some(elicitation) = &capabilities.elicitation {
        // Before URLs there was one sort of elicitation, and an empty object declares it.
        if elicitation.form.is_some() || elicitation.url.is_none() {
            kinds.push(InputKind::Form);
        }
        if elicitation.url.is_some() {
            kinds.push(InputKind::Url);
        }
    }
    if capabilities.sampling.is_some() {
        kinds.push(InputKind::Sampling);
    }
    if capabilities.roots.is_some() {
        kinds.push(InputKind::Roots);
    }
    kinds
}

/// What the tool of a call needs its caller to answer and the caller has not declared. As a handler it answers nothing.
#[derive(Default)]
pub(super) struct MissingInput(Mutex<Vec<InputKind>>);

impl MissingInput {
    /// The capabilities that the client would need, if any is missing.
    pub(super) fn capabilities(&self) -> Option<ClientCapabilities> {
        let kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut required = ClientCapabilities::default();
        for kind in kinds.iter() {
            match kind {
                InputKind::Form => required.elicitation.get_or_insert_default().form = Some(Default::default()),
                InputKind::Url => required.elicitation.get_or_insert_default().url = Some(Default::default()),
                InputKind::Sampling => required.sampling = Some(Default::default()),
                InputKind::Roots => required.roots = Some(Default::default()),
                _ => {}
            }
        }
        (!kinds.is_empty()).then_some(required)
    }
}

impl InputHandler for MissingInput {
    fn accepts(&self, _: InputKind) -> bool {
        false
    }

    fn answer(&self, _: InputRequest) -> BoxFuture<'_, Option<Value>> {
        Box::pin(std::future::ready(None))
    }

    fn missed(&self, kind: InputKind) {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
}

fn method_of(kind: InputKind) -> Option<&'static str> {
    match kind {
        InputKind::Form | InputKind::Url => Some("elicitation/create"),
        InputKind::Sampling => Some("sampling/createMessage"),
        InputKind::Roots => Some("roots/list"),
        _ => None,
    }
}

/// The requests of a result of the modern era, and the keys of those that it cannot express.
pub(super) fn to_result(requests: BTreeMap<String, InputRequest>) -> (InputRequests, Vec<String>) {
    let convert = |request: InputRequest| {
        let request = json!({"method": method_of(request.kind)?, "params": request.params});
        serde_json::from_value::<McpInputRequest>(request).ok()
    };
    let (mut expressed, mut others) = (InputRequests::new(), Vec::new());
    for (key, request) in requests {
        match convert(request) {
            Some(request) => drop(expressed.insert(key, request)),
            None => others.push(key),
        }
    }
    (expressed, others)
}

/// Asks a client of the legacy era by requests on the stream of its call.
pub(super) struct ClientInput {
    pub(super) client: ClientChannel,
    pub(super) accepted: Vec<InputKind>,
}

impl InputHandler for ClientInput {
    fn accepts(&self, kind: InputKind) -> bool {
        self.accepted.contains(&kind)
    }

    fn answer(&self, request: InputRequest) -> BoxFuture<'_, Option<Value>> {
        Box::pin(async move {
            let request = CustomRequest::new(method_of(request.kind)?, Some(request.params));
            let options = PeerRequestOptions::no_options();
            let ClientChannel::Service(client) = &self.client else { return None };
            let handle = client.send_cancellable_request(ServerRequest::CustomRequest(request), options).await;
            let mut open = OpenRequest(Some(handle.ok()?));
            let answer = match &mut open.0 {
                Some(handle) => (&mut handle.rx).await.ok()?,
                None => return None,
            };
            open.0 = None;
            serde_json::to_value(answer.ok()?).ok()
        })
    }
}

/// Withdraws a request that is not waited for any more.
struct OpenRequest(Option<RequestHandle<RoleServer>>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        if let Some(handle) = self.0.take() {
            tokio::spawn(tokio::time::timeout(CANCEL_TIMEOUT, handle.cancel(Some("not needed any more".into()))));
        }
    }
}
