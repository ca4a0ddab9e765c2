//! Tools whose program lives in a thread and is asked once for each call.
//!
//! In: a command. Out: a tool with one process for each thread, which serves one call at a time. What it remembers goes to it with each
//! request and comes back with its answers, so a process that has ended, or was ended, is simply started again.

use std::{pin::pin, sync::Arc};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use toolhub_core::{CallContext, Effect, Instance, JsonState, ToolBuilder, ToolError, instance};

use super::{
    Command, Limits,
    answer::{self, Answer, Line},
    failure::{Failure, not_started},
    process::{Lent, Process},
    request,
};

pub(super) fn tool(name: &str, mut command: Command) -> ToolBuilder {
    // Python keeps what is printed to itself until there is a lot of it, unless it is told not to; and an answer is short.
    command.env.entry("PYTHONUNBUFFERED".into()).or_insert_with(|| "1".into());
    let command = Arc::new(command);
    let open = move |cx: CallContext| {
        let running = Running::start(&command, &cx);
        let command = command.clone();
        async move { Ok(Live { command, running: Some(running?) }) }
    };
    instance(name, open).parameters(json!({"type": "object"}))
}

struct Live {
    command: Arc<Command>,
    /// Nothing while a call uses it, and after one has spoiled it.
    running: Option<Running>,
}

struct Running {
    process: Process,
    /// How many requests it was sent.
    asked: u64,
    /// Whether it has named the id of a request.
    names_ids: bool,
}

impl Running {
    fn start(command: &Command, cx: &CallContext) -> Result<Self, ToolError> {
        let process = Process::start(command, cx.tool().as_str()).map_err(|error| not_started(&error))?;
        Ok(Self { process, asked: 0, names_ids: false })
    }
}

impl Instance for Live {
    type Arguments = Value;
    type Output = Value;

    async fn call(&mut self, arguments: Value, cx: &CallContext) -> Result<Value, ToolError> {
        let state = JsonState::of(cx).await?;
        let name = state.parameter().unwrap_or("state");
        request::may_be_called(name)?;
        let Running { process, mut asked, names_ids } = self.ready(cx).await?;
        asked += 1;
        let handed = state.parameter().map(|name| (name, state.value()));
        let request = request::numbered(asked, arguments, handed, cx);
        let limits = self.command.limits;
        let mut lent = Lent::new(process, limits.grace);
        let asking = ask(lent.process(), &request, limits, cx).await;
        let checked = asking.and_then(|answer| match answer.belongs_to(asked, names_ids) {
            Ok(()) => Ok(answer),
            Err(bad) => Err(Failure::Bad(bad)),
        });
        let mut answer = match checked {
            Ok(answer) => answer,
            Err(failure) => {
                // Whatever it says from now on, nobody could tell what it is about.
                lent.process().kill().await;
                return Err(lent.process().failed(failure).await);
            }
        };
        let names_ids = names_ids || answer.id.is_some();
        self.running = Some(Running { process: lent.back(), asked, names_ids });
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

impl Live {
    /// The process of this thread, or a new one where that has ended or cannot be used.
    async fn ready(&mut self, cx: &CallContext) -> Result<Running, ToolError> {
        if let Some(mut running) = self.running.take() {
            let process = &mut running.process;
            if !process.is_over() && process.stdin.is_some() {
                if process.output.next_call().await {
                    process.stderr.next_call();
                    return Ok(running);
                }
                tracing::warn!(tool = %cx.tool(), "the program wrote to its output without being asked; it is started again");
            }
        }
        Running::start(&self.command, cx)
    }
}

/// Sends one request and waits for the answer. Both at once: a program may say how far it is before it has read everything.
async fn ask(process: &mut Process, request: &[u8], limits: Limits, cx: &CallContext) -> Result<Answer, Failure> {
    let mut stdin = process.stdin.take();
    let mut sent = false;
    let answer = {
        let mut sending = pin!(async {
            if let Some(pipe) = &mut stdin {
                // If it does not go through, the program has ended or closed its input, and will be heard of.
                let _ = pipe.write_all(request).await;
            }
        });
        loop {
            let line = tokio::select! {
                line = process.line(limits) => line.map_err(Failure::TooMuch)?,
                () = &mut sending, if !sent => {
                    sent = true;
                    continue;
                }
            };
            let bytes = line.map_err(|end| Failure::Died { end, written: process.output.unread().to_vec() })?;
            match answer::line(&bytes).map_err(Failure::Bad)? {
                Line::Answer(answer) => break answer,
                Line::Progress { message, fraction: Some(fraction) } => cx.progress_at(fraction, message),
                Line::Progress { message, fraction: None } => cx.progress(message),
            }
        }
    };
    // One that answers before it has read the question has the rest of it still before it. It is not asked again.
    process.stdin = stdin.filter(|_| sent);
    Ok(answer)
}
