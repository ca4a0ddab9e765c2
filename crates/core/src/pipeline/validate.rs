//! Door 6: the arguments fit the tool's schema, or the caller learns what is wrong with which of them.

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
    check_schema(found).map_err(|refused| {
        let (error, envelope) = *refused;
        note_mistake(engine, &envelope, error)
    })
}

/// The same for arguments that a person has edited: the model has made no mistake.
pub(super) fn check_schema(found: Found) -> Result<Valid, Box<(CallError, CallEnvelope)>> {
    let Found(envelope) = found;
    match envelope.tool.schema.check(&envelope.call.arguments) {
        Ok(()) => Ok(Valid(envelope)),
        Err(problems) => Err(Box::new((invalid_arguments(&envelope.tool.definition.name, problems), envelope))),
    }
}

/// A model that makes the same mistake for the third time is told to stop.
fn note_mistake(engine: &Engine, envelope: &CallEnvelope, mut error: CallError) -> CallError {
    let CallEnvelope { call, tool, .. } = envelope;
    let whose = match (call.run, &call.thread) {
        (Some(run), _) => MistakeScope::Run(run),
        (None, Some(thread)) => MistakeScope::Thread(call.tenant.clone(), thread.clone()),
        (None, None) => return error,
    };
    let (arguments, now) = (digest::canonical_json(&call.arguments), engine.services.clock.instant());
    let times = engine.scheduler.runaway_guard.count_mistake(whose, &tool.definition.name, &arguments, now);
    if let Some(stop) = mistake_text(times) {
        error.model = format!("{}\n{stop}", error.model);
    }
    error
}

/// The refusal of arguments, in words a model can act on.
pub(super) fn invalid_arguments(tool: &str, problems: Vec<Problem>) -> CallError {
    let text = schema::problems_text(tool, &problems);
    CallError::new(ErrorKind::ArgumentsInvalid).operator(text.clone()).model(text).detail(Detail::Problems(problems))
}
