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

/// What is said about a secret that a tool refused.
const REFUSED: &str = "is refused by the tool";
/// A text that contains so many bytes of a secret quotes it.
const MIN_QUOTED_BYTES: usize = 8;

pub(super) fn check(engine: &Engine, found: Found) -> Result<Valid, CallError> {
    check_schema(found).map_err(|refusal| {
        let (error, envelope) = *refusal;
        note_mistake(engine, &envelope, error)
    })
}

/// Validates without counting a mistake: for arguments that a person has edited.
pub(super) fn check_schema(found: Found) -> Result<Valid, Box<(CallError, CallEnvelope)>> {
    let Found(envelope) = found;
    let checked = envelope.tool.schema.check(&envelope.call.arguments.to_value(), &envelope.tool.services.redactor);
    match checked {
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

/// The error for arguments that the tool itself refused. Its texts may quote them, so a text that names a secret or contains one is
/// replaced.
pub(super) fn refused_by_tool(envelope: &CallEnvelope, problems: Vec<Problem>) -> CallError {
    let (redactor, arguments) = (&envelope.tool.services.redactor, envelope.call.arguments.to_value());
    let secrets = redactor.secret_texts(&arguments);
    let quotes_secret = |text: &str| {
        // A long text may have been truncated inside the secret.
        let mut starts = secrets.iter().map(|secret| &secret[..secret.floor_char_boundary(MIN_QUOTED_BYTES)]);
        starts.any(|start| !start.is_empty() && text.contains(start))
    };
    let redact = |problem: Problem| match redactor.secret_part(&problem.pointer) {
        Some(secret) => Problem::at(secret.to_owned(), &arguments, REFUSED),
        None if quotes_secret(&problem.to_string()) => Problem::at(problem.pointer, &arguments, REFUSED),
        None => problem,
    };
    invalid_arguments(&envelope.tool.definition.name, problems.into_iter().map(redact).collect())
}

/// The error for invalid arguments, with a text that a model can act on.
fn invalid_arguments(tool: &str, problems: Vec<Problem>) -> CallError {
    let text = schema::problems_text(tool, &problems);
    CallError::new(ErrorKind::ArgumentsInvalid).operator(text.clone()).model(text).detail(Detail::Problems(problems))
}
