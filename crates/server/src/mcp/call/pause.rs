//! A call until it ends or asks its caller, whichever comes first.
//!
//! In: a running call, or the state of one that waits for its caller and the answers. Out: its outcome, or what it asks for and the state
//! to go on with. The call may wait on another node of the hub: that goes on with it then. Progress is not passed on between nodes.

use std::sync::Arc;

use rmcp::{
    ErrorData,
    model::{ClientCapabilities, InputRequests, InputRequiredResult},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use toolhub_core::{NodeRequestError, Outcome, ToolHub};

use super::{
    super::{
        input::to_result,
        interactive_calls::{CallStep, InteractiveCall, ResumeError, ResumeKey, SuspendedCalls},
        request::McpContext,
    },
    Calls, cancelled, start_again, store_fault,
};

const REQUEST_KIND: &str = "mcp.call.resume";

/// How far a call has come.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::mcp) enum Pause {
    /// It has ended. `missing`: what its tool needed the client to declare.
    Ended { outcome: Box<Outcome>, missing: Option<ClientCapabilities> },
    /// It asked its caller, and waits.
    InputRequired(InputRequiredResult),
}

/// A call that was found by its state.
pub(super) enum Resumed {
    /// It goes on here.
    Here(InteractiveCall),
    /// It went on on another node.
    Elsewhere(Pause),
}

/// What the node needs on which a call waits.
#[derive(Serialize, Deserialize)]
struct Resumption {
    state: String,
    key: ResumeKey,
    answers: Map<String, Value>,
}

/// Lets other nodes go on with the calls that wait here.
pub(super) fn answer_other_nodes(hub: &ToolHub, suspended: &Arc<SuspendedCalls>) {
    let suspended = Arc::downgrade(suspended);
    hub.on_node_request(REQUEST_KIND, move |body| {
        let suspended = suspended.upgrade();
        async move {
            let (Some(suspended), Ok(resumption)) = (suspended, serde_json::from_value(body)) else {
                return Value::Null;
            };
            let Resumption { state, key, answers } = resumption;
            let Ok(mut call) = suspended.take(&state, &key) else { return Value::Null };
            call.answer(answers);
            serde_json::to_value(run_until_pause(&suspended, call, &key).await).unwrap_or_default()
        }
    });
}

/// Waits until a call has ended or asks its caller. Dropping the future cancels the call, unless it has an idempotency key.
async fn run_until_pause(suspended: &Arc<SuspendedCalls>, mut call: InteractiveCall, key: &ResumeKey) -> Pause {
    loop {
        let requests = match call.next().await {
            CallStep::Ended(outcome) => return Pause::Ended { outcome, missing: call.missing().capabilities() },
            CallStep::InputRequired(requests) => requests,
        };
        let (requests, inexpressible) = to_result(requests);
        call.decline(&inexpressible);
        if requests.is_empty() {
            continue;
        }
        match suspend(suspended, call, requests, key.clone()) {
            Ok(result) => return Pause::InputRequired(result),
            Err(declined) => call = *declined,
        }
    }
}

/// Keeps a call that asked its caller. Returns the answer to the request that ends with it.
///
/// # Errors
/// The call, whose requests are declined, if too many calls wait for an answer.
pub(super) fn suspend(
    suspended: &Arc<SuspendedCalls>,
    call: InteractiveCall,
    requests: InputRequests,
    key: ResumeKey,
) -> Result<InputRequiredResult, Box<InteractiveCall>> {
    let state = suspended.park(key, call).map_err(|mut call| {
        call.decline_all();
        call
    })?;
    Ok(InputRequiredResult::new(Some(requests), Some(state)))
}

impl Calls {
    /// Waits until a call has ended or asks its caller, or the request is cancelled.
    pub(in crate::mcp) async fn run_until_pause(
        &self,
        call: InteractiveCall,
        key: &ResumeKey,
        context: &McpContext,
    ) -> Result<Pause, ErrorData> {
        tokio::select! {
            pause = run_until_pause(&self.suspended, call, key) => Ok(pause),
            () = context.cancelled.cancelled() => Err(cancelled()),
        }
    }

    /// Goes on with a call that waits for its caller, until it has ended or asks again.
    pub(in crate::mcp) async fn resume_until_pause(
        &self,
        state: String,
        key: &ResumeKey,
        answers: Map<String, Value>,
        context: &McpContext,
    ) -> Result<Pause, ErrorData> {
        match self.resume(state, key, answers, context).await? {
            Resumed::Here(call) => self.run_until_pause(call, key, context).await,
            Resumed::Elsewhere(pause) => Ok(pause),
        }
    }

    /// Gives a call that waits for its caller the answers.
    pub(super) async fn resume(
        &self,
        state: String,
        key: &ResumeKey,
        answers: Map<String, Value>,
        context: &McpContext,
    ) -> Result<Resumed, ErrorData> {
        let node = match self.suspended.take(&state, key) {
            Ok(mut call) => {
                call.answer(answers);
                return Ok(Resumed::Here(call));
            }
            Err(ResumeError::OtherNode(node)) => node,
            Err(error) => return Err(not_resumed(&error)),
        };
        let body = json!(Resumption { state, key: key.clone(), answers });
        let answer = tokio::select! {
            answer = self.hub.ask_node(&node, REQUEST_KIND, body) => answer,
            () = context.cancelled.cancelled() => return Err(cancelled()),
        };
        match answer {
            Ok(answer) => match serde_json::from_value(answer) {
                Ok(pause) => Ok(Resumed::Elsewhere(pause)),
                Err(_) => Err(not_resumed(&ResumeError::NotFound)),
            },
            Err(NodeRequestError::Store(error)) => Err(store_fault(error)),
            Err(NodeRequestError::Gone) => Err(not_resumed(&ResumeError::OtherNode(node))),
            Err(error) => Err(start_again(&format!("the call waits on another node of this hub, and {error}"))),
        }
    }
}

fn not_resumed(error: &ResumeError) -> ErrorData {
    ErrorData::invalid_params(error.to_string(), None)
}
