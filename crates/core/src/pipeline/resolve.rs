//! Stage 1: finds the tool a call names, and creates a thread if the tool needs one.
//!
//! In: a submission. Out: `Found`, or the refused call with the error, which suggests similar tool names.

use serde_json::{Map, Value};

use super::{Found, Submission};
use crate::{
    call::Call,
    execution::CallEnvelope,
    registry::{Registry, Tools},
};
use toolhub_types::{
    error::{CallError, Detail, ErrorKind},
    ids::ThreadId,
    tool::ToolName,
};

/// How many characters of an unknown name are shown; a valid name is never longer.
const MAX_NAME_SHOWN: usize = 64;

/// A call that is refused before it has a tool.
pub(super) struct RefusedCall {
    pub(super) call: Box<Call>,
    pub(super) error: CallError,
}

pub(super) fn find(registry: &Registry, submission: Submission) -> Result<Found, RefusedCall> {
    let Submission { mut call, offer, step_call } = submission;
    if let Some(id_error) = &call.id_error {
        let model = format!("Nothing was done: {id_error}.");
        let error = CallError::new(ErrorKind::ArgumentsInvalid).operator(id_error.to_string()).model(model);
        return Err(RefusedCall { call, error });
    }
    let tool = match &offer {
        Some(offer) => offer.get(&call.tool).map(|tool| (tool.clone(), offer.evidence_demand(&call.tool))),
        None => registry.find(&call.tool),
    };
    call.from_offer = offer.is_some();
    let Some(tool) = tool else {
        let error = not_found(registry, offer.as_deref(), &call.tool);
        return Err(RefusedCall { call, error });
    };
    // Models often send `null` for "no arguments" where an empty object is meant.
    if call.arguments.is_null() {
        call.arguments = Value::Object(Map::new()).into();
    }
    if tool.0.needs_thread && call.thread.is_none() {
        call.head_mut().mint_thread(ThreadId::mint());
    }
    Ok(Found(CallEnvelope::new(call, tool, step_call)))
}

fn not_found(registry: &Registry, offer: Option<&Tools>, tool: &str) -> CallError {
    let name: String = tool.chars().take(MAX_NAME_SHOWN).collect();
    let error = CallError::new(ErrorKind::ToolNotFound);
    if let Some(source) = ToolName::new(tool).ok().and_then(|name| registry.absent_owner(&name)) {
        return error
            .operator(format!(
                "no tool is named `{name}`; the server `{source}`, which may add it, is not connected yet"
            ))
            .model(format!("`{name}` is not available now: the server that may provide it is not connected yet."));
    }
    let suggestions = offer.unwrap_or(&registry.snapshot()).suggest(tool);
    let hint = suggestions.first().map_or_else(String::new, |name| format!(" Did you mean `{name}`?"));
    error
        .operator(format!("no tool is named `{name}`"))
        .model(format!("There is no tool named `{name}`.{hint}"))
        .detail(Detail::Suggestions(suggestions))
}
