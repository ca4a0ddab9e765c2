//! Stateful command tools: one long-running process per thread, one request per call.
//!
//! In: a command. Out: a tool with one process per thread, which serves one call at a time. Each request carries the state and each
//! response may replace it, so a process that has exited or was killed is simply restarted.

use std::{pin::pin, sync::Arc};

use rustix::io::ioctl_fionread;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use toolhub_core::{CallContext, Effect, Instance, JsonState, ToolBuilder, ToolError, instance, offload};

use super::{
    Command, Limits,
    failure::{Failure, start_error},
    process::{Borrowed, Process},
    request,
    response::{self, Response, ResponseLine},
};

pub(super) fn tool(name: &str, mut command: Command) -> ToolBuilder {
    // Python buffers stdout by default, and a short response would stay in the buffer.
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
    /// `None` while a call uses the process, and after a call has made it unusable.
    running: Option<ActiveProcess>,
}

struct ActiveProcess {
    process: Process,
    /// Number of requests sent; the last one is the id of the current request.
    requests_sent: u64,
    /// Whether a response has echoed the id of its request.
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
    /// A cancelled program runs on during its grace period; a retry must not start a second one beside it.
    const STOPS_WHEN_DROPPED: bool = false;

    async fn call(&mut self, arguments: Value, cx: &CallContext) -> Result<Value, ToolError> {
        let state = JsonState::from_context(cx).await?;
        let name = state.parameter().unwrap_or("state");
        request::check_state_name(name)?;
        let injected = state.parameter().map(|name| (name, state.value()));
        let running = self.take_or_start(cx).await?;
        let mut response = match self.call_process(running, &arguments, injected, cx).await {
            // A reused process exited before it read the request, so sending the request to a new process is safe.
            Err(RequestFailure { request_read: false, first_request: false, .. }) => {
                let running = ActiveProcess::start(&self.command, cx)?;
                self.call_process(running, &arguments, injected, cx).await.map_err(|failure| failure.error)?
            }
            response => response.map_err(|failure| failure.error)?,
        };
        let result = response.result?;
        if let Some(next) = response.members.remove(name) {
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

/// Why a request got no response.
struct RequestFailure {
    error: ToolError,
    /// Whether the program may have read the request.
    request_read: bool,
    /// Whether it was the first request to this process.
    first_request: bool,
}

impl LongRunning {
    /// Sends one request to the process. Stores the process for the next call if it is still usable.
    async fn call_process(
        &mut self,
        running: ActiveProcess,
        arguments: &Value,
        state: Option<(&str, &Value)>,
        cx: &CallContext,
    ) -> Result<Response, RequestFailure> {
        let ActiveProcess { process, mut requests_sent, echoes_ids } = running;
        requests_sent += 1;
        let request = request::encode_numbered(requests_sent, arguments.clone(), state, cx);
        let limits = self.command.limits;
        let mut borrowed = Borrowed::new(process, limits.grace, cx);
        let response = exchange(borrowed.process(), &request, limits, cx).await;
        let checked = response.and_then(|response| match response.check_id(requests_sent, echoes_ids) {
            Ok(()) => Ok(response),
            Err(error) => Err(Failure::Protocol(error)),
        });
        match checked {
            Ok(response) => {
                let echoes_ids = echoes_ids || response.id.is_some();
                self.running = Some(ActiveProcess { process: borrowed.release(), requests_sent, echoes_ids });
                Ok(response)
            }
            Err(failure) => {
                let request_read = !matches!(failure, Failure::Exited { request_read: false, .. });
                // Later output could not be matched to a request.
                borrowed.process().kill().await;
                let error = borrowed.process().tool_error(failure).await;
                Err(RequestFailure { error, request_read, first_request: requests_sent == 1 })
            }
        }
    }

    /// Takes the process of this thread, or starts a new one if it has exited or is unusable.
    async fn take_or_start(&mut self, cx: &CallContext) -> Result<ActiveProcess, ToolError> {
        if let Some(mut running) = self.running.take() {
            let process = &mut running.process;
            if !process.has_exited() && process.stdin.is_some() {
                if process.output.begin_call().await {
                    process.stderr.begin_call();
                    return Ok(running);
                }
                tracing::warn!(tool = %cx.tool(), "program wrote to stdout without a request; restarting it");
            }
        }
        ActiveProcess::start(&self.command, cx)
    }
}

/// Sends one request and waits for the response, concurrently: a program may report progress before it has read the whole request.
async fn exchange(
    process: &mut Process,
    request: &[u8],
    limits: Limits,
    cx: &CallContext,
) -> Result<Response, Failure> {
    let mut stdin = process.stdin.take();
    let mut sent = 0;
    let response = {
        let mut sending = pin!(async {
            let Some(pipe) = &mut stdin else { return };
            // A write error means that the program has exited or closed stdin, which `read_response` reports.
            while let Ok(count @ 1..) = pipe.write(&request[sent..]).await {
                sent += count;
            }
        });
        tokio::select! {
            response = read_response(process, limits, cx) => response,
            response = async {
                sending.as_mut().await;
                std::future::pending().await
            } => response,
        }
    };
    match response {
        // If all bytes sent are still in the pipe, the program has read nothing.
        Err(Failure::Exited { exit, output, .. }) => {
            let unread = stdin.as_ref().and_then(|pipe| ioctl_fionread(pipe).ok());
            Err(Failure::Exited { exit, output, request_read: unread != Some(sent as u64) })
        }
        response => {
            // A program that responded before it read the whole request would read the rest as the next one, so it is not reused:
            // `take_or_start` replaces a process without stdin.
            process.stdin = stdin.filter(|_| sent == request.len());
            response
        }
    }
}

/// Waits for the response, and passes progress on to the call.
async fn read_response(process: &mut Process, limits: Limits, cx: &CallContext) -> Result<Response, Failure> {
    loop {
        let line = process.next_line(limits).await.map_err(Failure::LimitExceeded)?;
        let bytes = line.map_err(|exit| {
            let output = process.stderr.redact(process.output.unread());
            Failure::Exited { exit, output, request_read: true }
        })?;
        let size = bytes.len();
        let parse = move || response::parse_line(&bytes).map_err(|error| (error, bytes));
        // The error quotes the line, so it is built again from the redacted line.
        let parsed = offload::run(size, parse).await.map_err(|(error, bytes)| {
            let redacted = response::parse_line(&process.stderr.redact(&bytes)).err();
            Failure::Protocol(redacted.unwrap_or(error))
        });
        let secrets = process.stderr.secrets();
        match parsed? {
            ResponseLine::Response(mut response) => {
                // The state too: it is stored, and the program has its secrets anyway.
                response.members.values_mut().for_each(|member| secrets.named.value(member));
                response.result = response.result.map_err(|error| error.masked(&secrets.all)).map(|mut result| {
                    secrets.named.value(&mut result);
                    result
                });
                return Ok(response);
            }
            ResponseLine::Progress { message, fraction } => {
                let message = secrets.named.text(message).into_owned();
                match fraction {
                    Some(fraction) => cx.progress_at(fraction, message),
                    None => cx.progress(message),
                }
            }
        }
    }
}
