//! Tools whose program lives in a thread and is asked once for each call.
//!
//! In: a command. Out: a tool with one process for each thread, which serves one call at a time. What it remembers goes to it with each
//! request and comes back with its answers, so a process that has ended, or was ended, is simply started again.

use std::{pin::pin, sync::Arc};

use rustix::io::ioctl_fionread;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use toolhub_core::{CallContext, Effect, Instance, JsonState, ToolBuilder, ToolError, instance};

use super::{
    Command, Limits,
    failure::{Failure, start_error},
    process::{Borrowed, Process},
    request,
    response::{self, Response, ResponseLine},
};

pub(super) fn tool(name: &str, mut command: Command) -> ToolBuilder {
    // Python keeps what is printed to itself until there is a lot of it, unless it is told not to; and an answer is short.
    command.env.entry("PYTHONUNBUFFERED".into()).or_insert_with(|| "1".into());
    let command = Arc::new(command);
    let open = move |cx: CallContext| {
        let running = ActiveProcess::start(&command, &cx);
        let command = command.clone();
        async move { Ok(LongRunning { command, running: Some(running?) }) }
    };
    instance(name, open).parameters(json!({"type": "object"}))
}

struct LongRunning {
    command: Arc<Command>,
    /// Nothing while a call uses it, and after one has spoiled it.
    running: Option<ActiveProcess>,
}

struct ActiveProcess {
    process: Process,
    /// How many requests it was sent.
    requests_sent: u64,
    /// Whether it has named the id of a request.
    echoes_ids: bool,
}

impl ActiveProcess {
    fn start(command: &Command, cx: &CallContext) -> Result<Self, ToolError> {
        let process = Process::start(command, cx.tool().as_str()).map_err(|error| start_error(&error))?;
        Ok(Self { process, requests_sent: 0, echoes_ids: false })
    }
}

impl Instance for LongRunning {
    type Arguments = Value;
    type Output = Value;
    /// A program that is cut off has its grace to end in; a second one beside it would be two.
    const STOPS_WHEN_DROPPED: bool = false;

    async fn call(&mut self, arguments: Value, cx: &CallContext) -> Result<Value, ToolError> {
        let state = JsonState::from_context(cx).await?;
        let name = state.parameter().unwrap_or("state");
        request::check_state_name(name)?;
        let handed = state.parameter().map(|name| (name, state.value()));
        let running = self.take_or_start(cx).await?;
        let mut answer = match self.call_process(running, &arguments, handed, cx).await {
            // It ended before it was asked, while nobody could know it yet; the next one is asked instead.
            Err(RequestFailure { request_read: false, first_request: false, .. }) => {
                let running = ActiveProcess::start(&self.command, cx)?;
                self.call_process(running, &arguments, handed, cx).await.map_err(|unanswered| unanswered.error)?
            }
            answer => answer.map_err(|unanswered| unanswered.error)?,
        };
        let result = answer.result?;
        if let Some(next) = answer.members.remove(name) {
            state.set(next).map_err(|error| error.effect(Effect::Done))?;
        }
        Ok(result)
    }

    async fn close(self) {
        if let Some(running) = self.running {
            running.process.close(self.command.limits.grace).await;
        }
    }
}

/// Why there is no answer.
struct RequestFailure {
    error: ToolError,
    /// Whether the program may have read the request.
    request_read: bool,
    /// Whether it was its first.
    first_request: bool,
}

impl LongRunning {
    /// Asks a process once. It goes back to its place if it can be asked again.
    async fn call_process(
        &mut self,
        running: ActiveProcess,
        arguments: &Value,
        state: Option<(&str, &Value)>,
        cx: &CallContext,
    ) -> Result<Response, RequestFailure> {
        let ActiveProcess { process, requests_sent: mut asked, echoes_ids: names_ids } = running;
        asked += 1;
        let request = request::encode_numbered(asked, arguments.clone(), state, cx);
        let limits = self.command.limits;
        let mut lent = Borrowed::new(process, limits.grace, cx);
        let answer = exchange(lent.process(), &request, limits, cx).await;
        let checked = answer.and_then(|answer| match answer.check_id(asked, names_ids) {
            Ok(()) => Ok(answer),
            Err(bad) => Err(Failure::Protocol(bad)),
        });
        match checked {
            Ok(answer) => {
                let names_ids = names_ids || answer.id.is_some();
                self.running =
                    Some(ActiveProcess { process: lent.release(), requests_sent: asked, echoes_ids: names_ids });
                Ok(answer)
            }
            Err(failure) => {
                let (read, fresh) = (!matches!(failure, Failure::Exited { request_read: false, .. }), asked == 1);
                // Whatever it says from now on, nobody could tell what it is about.
                lent.process().kill().await;
                Err(RequestFailure {
                    error: lent.process().tool_error(failure).await,
                    request_read: read,
                    first_request: fresh,
                })
            }
        }
    }

    /// The process of this thread, or a new one where that has ended or cannot be used.
    async fn take_or_start(&mut self, cx: &CallContext) -> Result<ActiveProcess, ToolError> {
        if let Some(mut running) = self.running.take() {
            let process = &mut running.process;
            if !process.has_exited() && process.stdin.is_some() {
                if process.output.begin_call().await {
                    process.stderr.begin_call();
                    return Ok(running);
                }
                tracing::warn!(tool = %cx.tool(), "the program wrote to its output without being asked; it is started again");
            }
        }
        ActiveProcess::start(&self.command, cx)
    }
}

/// Sends one request and waits for the answer. Both at once: a program may say how far it is before it has read everything.
async fn exchange(
    process: &mut Process,
    request: &[u8],
    limits: Limits,
    cx: &CallContext,
) -> Result<Response, Failure> {
    let mut stdin = process.stdin.take();
    let mut sent = 0;
    let answer = {
        let mut sending = pin!(async {
            let Some(pipe) = &mut stdin else { return };
            // If it does not go through, the program has ended or closed its input, and will be heard of.
            while let Ok(more @ 1..) = pipe.write(&request[sent..]).await {
                sent += more;
            }
        });
        tokio::select! {
            answer = read_response(process, limits, cx) => answer,
            answer = async {
                sending.as_mut().await;
                std::future::pending().await
            } => answer,
        }
    };
    match answer {
        // What was sent lies in the pipe as it was sent: nobody has read it.
        Err(Failure::Exited { exit: end, output: written, .. }) => {
            let unread = stdin.as_ref().and_then(|pipe| ioctl_fionread(pipe).ok());
            Err(Failure::Exited { exit: end, output: written, request_read: unread != Some(sent as u64) })
        }
        answer => {
            // One that answers before it has read the question has the rest of it still before it. It is not asked again.
            process.stdin = stdin.filter(|_| sent == request.len());
            answer
        }
    }
}

/// Waits for the answer, and passes on how far the program is.
async fn read_response(process: &mut Process, limits: Limits, cx: &CallContext) -> Result<Response, Failure> {
    loop {
        let line = process.next_line(limits).await.map_err(Failure::LimitExceeded)?;
        let bytes = line.map_err(|end| {
            let written = process.stderr.redact(process.output.unread());
            Failure::Exited { exit: end, output: written, request_read: true }
        })?;
        // What is wrong is told with the beginning of it, and is looked at once more without the program's secrets.
        let again = |bad| response::parse_line(&process.stderr.redact(&bytes)).err().unwrap_or(bad);
        match response::parse_line(&bytes).map_err(|bad| Failure::Protocol(again(bad)))? {
            ResponseLine::Response(answer) => return Ok(answer),
            ResponseLine::Progress { message, fraction: Some(fraction) } => cx.progress_at(fraction, message),
            ResponseLine::Progress { message, fraction: None } => cx.progress(message),
        }
    }
}
