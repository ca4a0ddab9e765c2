//! Stage 6: validates the arguments against the tool's schema.
//!
//! In: a found call. Out: `Valid`, or a refusal that names each wrong field. The third identical mistake of a run or a
//! thread adds a text that tells the model to stop.

use super::{Found, Valid};
use crate::{
    engine::Engine,
    execution::CallEnvelope,
    runaway::{MistakeScope, mistake_text},
};
use toolhub_schema::schema;
use toolhub_types::{
    digest,
    error::{CallError, Detail, ErrorKind},
    problem::Problem,
};

pub(super) fn check(engine: &Engine, found: Found) -> Result<Valid, CallError> {
    check_schema(found).map_err(|refusal| {
        let (error, envelope) = *refusal;
        note_mistake(engine, &envelope, error)
    })
}

/// Validates without counting a mistake: for arguments that a person has edited.
pub(super) fn check_schema(found: Found) -> Result<Valid, Box<(CallError, CallEnvelope)>> {
    let Found(envelope) = found;
    match envelope.tool.schema.check(&envelope.call.arguments.to_value()) {
        Ok(()) => Ok(Valid(envelope)),
        Err(problems) => Err(Box::new((invalid_arguments(&envelope.tool.definition.name, problems), envelope))),
    }
}

/// Counts the mistake; from the third identical one on, the model's text says to stop.
fn note_mistake(engine: &Engine, envelope: &CallEnvelope, mut error: CallError) -> CallError {
    let CallEnvelope { call, tool, .. } = envelope;
    let scope = match (call.run, &call.thread) {
        (Some(run), _) => MistakeScope::Run(run),
        (None, Some(thread)) => MistakeScope::Thread(call.tenant.clone(), thread.clone()),
        (None, None) => return error,
    };
    let (arguments, now) = (digest::canonical_json(&call.arguments.to_value()), engine.services.clock.instant());
    let count = engine.scheduler.runaway_guard.count_mistake(scope, &tool.definition.name, &arguments, now);
    if let Some(stop) = mistake_text(count) {
        error.model = format!("{}\n{stop}", error.model);
    }
    error
}

/// The error for invalid arguments, with a text that a model can act on.
pub(super) fn invalid_arguments(tool: &str, problems: Vec<Problem>) -> CallError {
    let text = schema::problems_text(tool, &problems);
    CallError::new(ErrorKind::ArgumentsInvalid).operator(text.clone()).model(text).detail(Detail::Problems(problems))
}
