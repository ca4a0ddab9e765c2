//! Runs the calls of one tool of a server, or those that read its prompts and resources.
//!
//! In: a job. Out: the server's reply. A call is sent once, and again only if the server asks for input first: whether it may be
//! repeated is decided by the pipeline, from the effect in the error.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::time::Instant;
use toolhub_core::{BoxFuture, CallContext, Definition, Executor, Job, Reply, ToolError, TraceContext};

use super::{
    accepted_input::AcceptedInput,
    connection::{InputAnswers, OutgoingCall},
    connections::{CallConnection, Connections},
    error,
    input::{self, Answerer, InputFailure, MAX_ROUNDS, Questions, URL_ELICITATION_REQUIRED},
    reply::{self, CallResult, ExpectedResult, InputRequired},
    target::Target,
    wire::{JsonRpcFailure, RequestError, Update, updates},
};

pub(super) struct McpExecutor {
    pub(super) connections: Arc<Connections>,
    pub(super) target: Target,
    /// Whether an output that does not fit its schema was logged.
    pub(super) has_warned: AtomicBool,
}

impl Executor for McpExecutor {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let context = job.context;
            let connection = self.connections.for_call(context).await?;
            let roots = self.connections.roots();
            let answerer = Answerer { context, accepted: self.connections.accepted_input(context), roots: &roots };
            let (mut answers, mut rounds) = (None, 0);
            loop {
                let end = self.run(&job, &connection, answerer.accepted, answers.take()).await;
                connection.record_session(context);
                rounds += 1;
                let answered = match end? {
                    CallEnd::Reply(reply) => return Ok(reply),
                    _ if rounds > MAX_ROUNDS => Err(InputFailure::TooManyRounds),
                    CallEnd::InputRequired(asked) => Box::pin(answerer.answer(asked)).await.map(Some),
                    CallEnd::VisitRequired(failure) => Box::pin(answerer.visit(failure)).await.map(|()| None),
                };
                answers = answered.map_err(|failure| error::input_error(&failure, job.tool.annotations.read_only))?;
            }
        })
    }

    fn prepare<'a>(&'a self, context: &'a CallContext) -> BoxFuture<'a, Result<(), ToolError>> {
        Box::pin(async move { self.connections.for_call(context).await.map(drop) })
    }

    fn needs_thread(&self) -> bool {
        self.connections.instances.is_some()
    }

    fn health_check<'a>(&'a self, _: &'a Definition) -> Option<BoxFuture<'a, bool>> {
        Some(Box::pin(self.connections.is_healthy()))
    }
}

impl McpExecutor {
    /// Sends the call once.
    async fn run(
        &self,
        job: &Job<'_>,
        connection: &CallConnection,
        accepted: AcceptedInput,
        input: Option<InputAnswers>,
    ) -> Result<CallEnd, ToolError> {
        let (context, read_only) = (job.context, job.tool.annotations.read_only);
        let (sender, mut receiver) = updates(accepted);
        let call = OutgoingCall {
            operation: self.target.operation(job.arguments)?,
            traceparent: context.trace().map(TraceContext::traceparent),
            idempotency_key: context.idempotency_key().map(|key| key.as_str().to_owned()),
            input,
            updates: sender,
        };
        let secrets = connection.secrets();
        let mut questions = Questions::new(context, &secrets.named);
        let (started, watch) = (Instant::now(), connection.watch_call(context));
        let mut answer = pin!(connection.call(call));
        let text = loop {
            tokio::select! {
                biased;
                Some(update) = receiver.next() => self.forward(update, job, &mut questions),
                () = questions.answered() => {}
                text = &mut answer => break text,
            }
        };
        watch.ended();
        self.connections.meters.record_call(&self.target, started.elapsed());
        while let Some(update) = receiver.try_next() {
            self.forward(update, job, &mut questions);
        }
        let text = match text {
            Ok(text) => text,
            Err(RequestError::Refused(mut failure)) if failure.code == URL_ELICITATION_REQUIRED => {
                if let Some(data) = &mut failure.data {
                    secrets.named.value(data);
                }
                return Ok(CallEnd::VisitRequired(failure));
            }
            Err(error) => {
                if let RequestError::Refused(failure) = &error {
                    input::missing_kinds(failure).into_iter().for_each(|kind| context.miss_input(kind));
                }
                return Err(connection.request_error(error, read_only));
            }
        };
        let expected =
            ExpectedResult { output: context.output_schema().cloned(), read_only, secrets: secrets.named.clone() };
        let result = match self.target.result_member() {
            None => reply::read(text, expected).await,
            Some(member) => reply::read_plain(text, member, expected).await,
        };
        let result = result.map_err(|error| connection.own_error(error))?;
        match result {
            CallResult::Complete { reply, mismatch } => {
                if let Some(mismatch) = mismatch {
                    self.connections.meters.record_mismatch();
                    if !self.has_warned.swap(true, Relaxed) {
                        tracing::warn!(tool = %job.tool.name, mismatch, "an output does not fit the tool's own schema");
                    }
                }
                Ok(CallEnd::Reply(reply))
            }
            CallResult::InputRequired(asked) => Ok(CallEnd::InputRequired(asked)),
        }
    }

    /// Passes an update of the server on to the call.
    fn forward(&self, update: Update, job: &Job<'_>, questions: &mut Questions<'_>) {
        match update {
            Update::Progress { done, total, message } => {
                job.context.progress_of(done, total, message.unwrap_or_default());
            }
            Update::Log { level, text } => job.context.log(level, text),
            Update::Question(question) => questions.ask(question),
            Update::DeclinedQuestion(kind) => job.context.miss_input(kind),
        }
    }
}

/// How a call that was sent ended, other than with an error.
enum CallEnd {
    Reply(Reply),
    /// The server needs input; the call is to be made again with it.
    InputRequired(InputRequired),
    /// A person has to visit addresses before the call is made again.
    VisitRequired(JsonRpcFailure),
}
