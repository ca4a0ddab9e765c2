//! What a command has at hand: the flags, the terminal, and a way to the hub that is found when it is needed.
//!
//! In: the global flags. Out: the client, made once. `close` lets everything end that was opened.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::OnceCell, time::error::Elapsed};

use crate::{
    client::{self, ApiResponse, Client, Request, Transport},
    failure::Failure,
    global::GlobalFlags,
    output::{Printer, Spinner},
};

/// How much longer than a call may take its answer may take.
const RESPONSE_GRACE: Duration = Duration::from_secs(10);

/// One run of a command.
pub(crate) struct Session {
    pub(crate) global: GlobalFlags,
    pub(crate) printer: Printer,
    client: OnceCell<Client>,
    /// What is to be said to the hub if the person interrupts.
    interrupt_request: Mutex<Option<Request>>,
}

impl Session {
    pub(crate) fn new(global: GlobalFlags, show: Printer) -> Self {
        Self { global, printer: show, client: OnceCell::new(), interrupt_request: Mutex::default() }
    }

    /// The way to the hub: a server, or the store of this folder.
    ///
    /// # Errors
    /// When the config is bad, the server does not answer, or the store cannot be opened.
    pub(crate) async fn client(&self) -> Result<&Client, Failure> {
        self.client.get_or_try_init(|| client::connect(&self.global, &self.printer, Transport::Either)).await
    }

    /// What must be typed behind another command so that it asks the same hub. A variable holds for both.
    pub(crate) fn target_flags(&self) -> String {
        let by_variable = || std::env::var("TOOLHUB_URL").ok();
        let typed = self.global.server.as_ref().filter(|url| by_variable().as_ref() != Some(*url));
        let config = self.global.flags.config.as_ref().map(|file| format!(" --config {}", file.display()));
        typed.map(|url| format!(" --server {url}")).or(config).unwrap_or_default()
    }

    /// The way to a server; none where no server was named and none runs.
    pub(crate) async fn server_client(&self) -> Result<Option<&Client>, Failure> {
        match self.client.get_or_try_init(|| client::connect(&self.global, &self.printer, Transport::Server)).await {
            Ok(client) => Ok(Some(client)),
            Err(none) if none.code == client::NO_SERVER => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Sends a request and takes its answer only if it is a good one.
    pub(crate) async fn send_checked(&self, request: Request) -> Result<ApiResponse, Failure> {
        self.with_timeout(async { self.client().await?.send_checked(request).await }).await
    }

    /// Sends a call and takes whatever comes back. The hub itself keeps the call's time; a server that is late beyond that
    /// does not answer at all.
    pub(crate) async fn send_call(&self, request: Request) -> Result<ApiResponse, Failure> {
        let _waits = Spinner::start(&self.printer, "running");
        let sent = async { self.client().await?.send(request).await };
        match self.global.timeout {
            Some(time) => map_elapsed(time, tokio::time::timeout(time + RESPONSE_GRACE, sent).await)?,
            None => sent.await,
        }
    }

    /// Does something within the time the person gave.
    async fn with_timeout<T>(&self, doing: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let _waits = Spinner::start(&self.printer, "waiting");
        match self.global.timeout {
            Some(time) => map_elapsed(time, tokio::time::timeout(time, doing).await)?,
            None => doing.await,
        }
    }

    /// Notes what to ask for if the person interrupts: a call that goes on without its caller would stay behind.
    pub(crate) fn set_interrupt_request(&self, undo: Option<Request>) {
        *self.interrupt_request.lock().unwrap_or_else(PoisonError::into_inner) = undo;
    }

    /// The person has interrupted.
    pub(crate) async fn handle_interrupt(&self) {
        let undo = self.interrupt_request.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(undo), Some(client)) = (undo, self.client.get()) {
            // Whoever interrupts does not want to wait.
            let _ = tokio::time::timeout(Duration::from_secs(2), client.send(undo)).await;
        }
    }

    /// Lets everything come to its end that was opened.
    pub(crate) async fn close(self, interrupted: bool) {
        if let Some(client) = self.client.into_inner() {
            client.close(interrupted).await;
        }
    }
}

fn map_elapsed<T>(time: Duration, answered: Result<T, Elapsed>) -> Result<T, Failure> {
    answered.map_err(|_| Failure::new("timeout", format!("there was no answer within {time:?}")))
}
