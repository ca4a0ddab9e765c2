//! Stateless command tools: one process per call.
//!
//! In: a job. Out: the JSON that the program wrote, if it exited with code 0. The executor writes the request to stdin and closes it;
//! it reads stdout concurrently, so that neither side blocks on a full pipe.

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use toolhub_core::{BoxFuture, Definition, Executor, Job, Reply, ToolError, offload};

use super::{
    Command,
    failure::{Failure, start_error},
    process::{Borrowed, Process},
    request, response,
};

pub(super) struct OneShot(pub(super) Command);

impl Executor for OneShot {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let request = request::encode_one_shot(job.arguments, job.context);
            let process = Process::start(&self.0, job.tool.name.as_str()).map_err(|error| start_error(&error))?;
            let mut borrowed = Borrowed::new(process, self.0.limits.grace, job.context);
            match run(borrowed.process(), &request, self.0.limits.max_output).await {
                Ok(output) => Ok(output.into()),
                Err(failure) => Err(borrowed.process().tool_error(failure).await),
            }
        })
    }

    /// A cancelled program runs on during its grace period; a retry must not start a second one beside it.
    fn stops_when_dropped(&self) -> bool {
        self.0.limits.grace.is_zero()
    }

    fn validate_definition(&self, _: &Definition) -> Result<(), String> {
        self.0.validate().map_err(|error| error.to_string())
    }
}

async fn run(process: &mut Process, request: &[u8], max_output: usize) -> Result<Value, Failure> {
    let mut stdin = process.stdin.take();
    let feeding = async {
        if let Some(pipe) = &mut stdin {
            // A program may exit or close stdin without reading the request.
            let _ = pipe.write_all(request).await;
        }
        drop(stdin);
        std::future::pending().await
    };
    let exit = tokio::select! {
        exit = process.drain_until_exit(max_output) => exit,
        exit = feeding => exit,
    };
    let exit = exit.map_err(Failure::LimitExceeded)?;
    let output = process.output.take_unread();
    if exit.is_success() {
        let size = output.len();
        let parse = move || response::parse_output(&output).map_err(|error| (error, output));
        // The error quotes the output, so it is built again from the redacted output.
        let parsed = offload::run(size, parse).await.map_err(|(error, output)| {
            let redacted = response::parse_output(&process.stderr.redact(&output)).err();
            Failure::Protocol(redacted.unwrap_or(error))
        });
        return parsed.map(|mut output| {
            process.stderr.secrets().named.value(&mut output);
            output
        });
    }
    match response::parse_error(&output) {
        Some(error) => Err(Failure::Reported(error.masked(&process.stderr.secrets().all))),
        None => Err(Failure::Exited { exit, output: process.stderr.redact(&output), request_read: true }),
    }
}
