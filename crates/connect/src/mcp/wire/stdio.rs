//! A server that is a program: messages are lines on its stdin and stdout.
//!
//! In: a command. Out: a `Transport` for `rmcp`, and a [`Router`] that delivers everything else. One task reads and owns the
//! process, one writes. Both end with the connection; the process is then closed: closed stdin, SIGTERM, SIGKILL.

use std::{sync::Arc, time::Duration};

use rmcp::{
    RoleClient,
    model::{JsonRpcMessage, ServerJsonRpcMessage},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::sync::mpsc;
use toolhub_core::offload;

use super::{
    exchange::{RequestError, Unsent},
    forward::Received,
    lifecycle::{End, EndCause, Lifecycle},
    message::Violation,
    outbox::{Outbox, Writer},
    pace::NotificationPace,
    router::{Origin, Router, RouterSettings},
};
use crate::{
    command::{Command, CommandError, LimitExceeded, LineSink, Process, ProgramSecrets},
    mcp::{era::Era, log_ring::LogRing},
};

/// How many messages wait for `rmcp`.
const INBOX_SIZE: usize = 64;
/// How long to go on reading after the program has closed its stdin: it may be about to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Limits and facts of a connection to a program.
pub(crate) struct StdioSettings {
    pub(crate) era: Era,
    pub(crate) max_message: usize,
    pub(crate) write_timeout: Duration,
    pub(crate) roots: Vec<serde_json::Value>,
    pub(crate) logs: Arc<LogRing>,
}

/// Sends messages to a program.
#[derive(Clone)]
pub(crate) struct StdioSender {
    router: Arc<Router>,
    outbox: Outbox,
}

pub(crate) struct StdioTransport {
    sender: StdioSender,
    inbox: mpsc::Receiver<ServerJsonRpcMessage>,
    lifecycle: Arc<Lifecycle>,
}

/// What a started program is reached by.
pub(crate) struct StdioConnection {
    pub(crate) transport: StdioTransport,
    pub(crate) sender: StdioSender,
    pub(crate) router: Arc<Router>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) secrets: Arc<ProgramSecrets>,
}

/// The connection refused to take a message.
#[derive(Debug, thiserror::Error)]
#[error("the message was not sent")]
pub(crate) struct NotQueued;

/// Starts the program.
pub(crate) fn start(command: &Command, settings: StdioSettings) -> Result<StdioConnection, CommandError> {
    let StdioSettings { era, max_message, write_timeout, roots, logs } = settings;
    let command = command.clone().max_line(max_message).max_output(usize::MAX);
    let lines = logs.clone();
    let mut process = Process::start_with_sink(&command, LineSink::Function(Box::new(move |line| lines.push(line))))?;
    let stdin = process.stdin.take().expect("a process that was just started has its stdin");
    let secrets = process.stderr.secrets().clone();
    let (outbox, writer) = Outbox::new(stdin, write_timeout);
    let replies = outbox.clone();
    let router = Router::new(
        RouterSettings { era, roots, logs, secrets: secrets.clone(), shows_lists: false },
        Box::new(move |text| replies.reply(text)),
    );
    let lifecycle = Lifecycle::new();
    let (sender, inbox) = mpsc::channel(INBOX_SIZE);
    // Not supervised: both tasks end with the connection, and a panic of the reader drops the process, which kills it.
    tokio::spawn(write(writer, lifecycle.clone()));
    let reader = Reader { process, command, router: router.clone(), inbox: sender, pace: NotificationPace::new() };
    tokio::spawn(reader.run(lifecycle.clone()));
    let messages = StdioSender { router: router.clone(), outbox };
    let transport = StdioTransport { sender: messages.clone(), inbox, lifecycle: lifecycle.clone() };
    Ok(StdioConnection { transport, sender: messages, router, lifecycle, secrets })
}

impl Transport<RoleClient> for StdioTransport {
    type Error = NotQueued;

    // `rmcp` calls this in order and awaits the futures in any order, so the message is queued here.
    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), NotQueued>> + Send + 'static {
        std::future::ready(self.sender.queue(&item))
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.inbox.recv().await
    }

    async fn close(&mut self) -> Result<(), NotQueued> {
        self.lifecycle.request_close();
        Ok(())
    }
}

impl StdioSender {
    /// Queues a message. A request that cannot be queued fails at once.
    pub(crate) fn queue(&self, item: &TxJsonRpcMessage<RoleClient>) -> Result<(), NotQueued> {
        let request = self.router.outgoing(item);
        let text = serde_json::to_string(item).map_err(|_| NotQueued);
        match (item, request, text) {
            (JsonRpcMessage::Request(_), Some((id, exchange)), text) => {
                let queued = text.and_then(|text| self.outbox.request(text, exchange.clone()).map_err(|_| NotQueued));
                if queued.is_err() {
                    self.router.not_sent(id);
                    if let Some(exchange) = exchange {
                        exchange.complete(Err(RequestError::NotSent(Unsent::QueueFull)));
                    }
                }
                queued
            }
            (_, _, text) => {
                self.outbox.notification(text?);
                Ok(())
            }
        }
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.lifecycle.request_close();
    }
}

async fn write(mut writer: Writer, lifecycle: Arc<Lifecycle>) {
    let violation = tokio::select! {
        violation = writer.run() => violation,
        _ = lifecycle.ended() => return,
    };
    if violation == Violation::InputClosed {
        // The program is about to exit, probably, and its exit says more. Answers may still be in the pipe.
        let _ = tokio::time::timeout(EXIT_TIMEOUT, lifecycle.ended()).await;
    }
    lifecycle.end(EndCause::Violation(violation));
}

struct Reader {
    process: Process,
    command: Command,
    router: Arc<Router>,
    inbox: mpsc::Sender<ServerJsonRpcMessage>,
    pace: NotificationPace,
}

impl Reader {
    async fn run(mut self, lifecycle: Arc<Lifecycle>) {
        let released = ReleaseGuard(lifecycle.clone());
        let end = tokio::select! {
            biased;
            () = lifecycle.close_requested() => EndCause::Closed.into(),
            end = self.read() => end,
            end = lifecycle.ended() => End::clone(&end),
        };
        // Ends the writer too, which closes stdin.
        lifecycle.end(end);
        drop(self.inbox);
        self.process.close(self.command.grace_period()).await;
        drop(released);
    }

    /// Reads until the connection ends.
    async fn read(&mut self) -> End {
        let limits = self.command.limits();
        loop {
            let handled = match self.process.next_line(limits).await {
                Ok(Ok(line)) => self.handle(line).await,
                Ok(Err(exit)) => {
                    return End { cause: EndCause::Exited(exit), stderr: self.process.stderr.tail().await };
                }
                Err(LimitExceeded::Line(limit) | LimitExceeded::Output(limit)) => {
                    Err(EndCause::Violation(Violation::TooLong { limit }))
                }
            };
            if let Err(cause) = handled {
                return cause.into();
            }
        }
    }

    async fn handle(&mut self, line: Vec<u8>) -> Result<(), EndCause> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let router = self.router.clone();
        let handled = offload::run(line.len(), move || {
            let text = str::from_utf8(&line).map_err(|_| Violation::NotJson)?;
            router.incoming(text, Origin::Pipe)
        });
        match handled.await.map_err(EndCause::Violation)? {
            // Fails if `rmcp` has stopped, so nothing waits for the message.
            Received::Forward(message) => self.inbox.send(*message).await.map_err(|_| EndCause::Closed)?,
            Received::Answer => {}
            Received::Other => self.pace.count().await,
        }
        Ok(())
    }
}

/// Reports that the process is gone, also after a panic.
struct ReleaseGuard(Arc<Lifecycle>);

impl Drop for ReleaseGuard {
    fn drop(&mut self) {
        self.0.end(EndCause::Closed);
        self.0.release();
    }
}
