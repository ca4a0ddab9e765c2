//! Tools whose program is started anew for each call.
//!
//! In: a job. Out: the JSON the program wrote, if it ended well. The request goes to its input, whose end tells that there is no more;
//! what it writes is read at the same time, so that neither waits for the other.

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use toolhub_core::{BoxFuture, Definition, Executor, Job, Reply, ToolError};

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
            let mut lent = Borrowed::new(process, self.0.limits.grace, job.context);
            match run(lent.process(), &request, self.0.limits.max_output).await {
                Ok(output) => Ok(output.into()),
                Err(failure) => Err(lent.process().tool_error(failure).await),
            }
        })
    }

    /// A program that is cut off has its grace to end in; a second one beside it would be two.
    fn stops_when_dropped(&self) -> bool {
        self.0.limits.grace.is_zero()
    }

    fn validate_definition(&self, _: &Definition) -> Result<(), String> {
        self.0.validate().map_err(|error| error.to_string())
    }
}

async fn run(process: &mut Process, request: &[u8], most: usize) -> Result<Value, Failure> {
    let mut stdin = process.stdin.take();
    let feeding = async {
        if let Some(pipe) = &mut stdin {
            // A program need not read what it is given.
            let _ = pipe.write_all(request).await;
        }
        drop(stdin);
        std::future::pending().await
    };
    let end = tokio::select! {
        end = process.drain_until_exit(most) => end,
        end = feeding => end,
    };
    let end = end.map_err(Failure::LimitExceeded)?;
    let output = process.output.unread();
    if end.is_success() {
        // What is wrong is told with the beginning of it, and is looked at once more without the program's secrets.
        let again = |bad| response::parse_output(&process.stderr.redact(output)).err().unwrap_or(bad);
        return response::parse_output(output).map_err(|bad| Failure::Protocol(again(bad)));
    }
    match response::parse_error(output) {
        Some(raised) => Err(Failure::Reported(raised)),
        None => Err(Failure::Exited { exit: end, output: process.stderr.redact(output), request_read: true }),
    }
}
