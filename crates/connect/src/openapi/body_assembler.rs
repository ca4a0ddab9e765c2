//! Executor that assembles a request body from separate arguments.
//!
//! In: a call whose arguments are parameters and members of a body side by side. Out: the same call with the body as one argument,
//! passed to the inner executor. A member that is `null` is sent as `null`: to many services, that differs from its absence.

use std::sync::Arc;

use serde_json::{Map, Value};
use toolhub_core::{BoxFuture, CallContext, Definition, Executor, Job, Reply, ToolError};

use super::arguments::RequestBody;

/// Assembles the body, and lets another executor send the request.
pub(super) struct BodyAssembler {
    inner: Arc<dyn Executor>,
    body: RequestBody,
}

impl BodyAssembler {
    pub(super) fn new(inner: Arc<dyn Executor>, body: &RequestBody) -> Self {
        Self { inner, body: body.clone() }
    }

    fn assemble(&self, arguments: &Value) -> Value {
        let mut rest = arguments.as_object().cloned().unwrap_or_default();
        let members = self.body.members.iter();
        let body: Map<String, Value> =
            members.filter_map(|(argument, name)| Some((name.clone(), rest.remove(argument)?))).collect();
        if self.body.required || !body.is_empty() {
            rest.insert(self.body.argument.clone(), body.into());
        }
        rest.into()
    }
}

impl Executor for BodyAssembler {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let arguments = self.assemble(job.arguments);
            self.inner.execute(Job { arguments: &arguments, ..job }).await
        })
    }

    fn prepare<'a>(&'a self, context: &'a CallContext) -> BoxFuture<'a, Result<(), ToolError>> {
        self.inner.prepare(context)
    }

    fn needs_thread(&self) -> bool {
        self.inner.needs_thread()
    }

    fn stops_when_dropped(&self) -> bool {
        self.inner.stops_when_dropped()
    }

    fn health_check<'a>(&'a self, definition: &'a Definition) -> Option<BoxFuture<'a, bool>> {
        self.inner.health_check(definition)
    }

    fn validate_definition(&self, definition: &Definition) -> Result<(), String> {
        self.inner.validate_definition(definition)
    }
}
