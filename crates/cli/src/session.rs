//! The context of one command invocation: flags, printer, and a client that is connected on first use.
//!
//! In: the global flags. Out: the client, created once. `close` shuts down what was opened.

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

/// How long to wait for a response after the call's own timeout has passed.
const RESPONSE_GRACE: Duration = Duration::from_secs(10);

/// One invocation of a command.
pub(crate) struct Session {
    pub(crate) global: GlobalFlags,
    pub(crate) printer: Printer,
    client: OnceCell<Client>,
    /// Sent to the hub when the user interrupts.
    interrupt_request: Mutex<Option<(Request, &'static str)>>,
    /// A note to print below the output.
    footer: Mutex<Option<String>>,
}

impl Session {
    pub(crate) fn new(global: GlobalFlags, printer: Printer) -> Self {
        Self { global, printer, client: OnceCell::new(), interrupt_request: Mutex::default(), footer: Mutex::default() }
    }

    /// The client: of a server, or of the store of this folder.
    ///
    /// # Errors
    /// When the config is bad, the server does not answer, or the store cannot be opened.
    pub(crate) async fn client(&self) -> Result<&Client, Failure> {
        self.client.get_or_try_init(|| client::connect(&self.global, &self.printer, Transport::Either)).await
    }

    /// The flags that make another command use the same hub. `TOOLHUB_URL` applies to both without a flag.
    pub(crate) fn target_flags(&self) -> String {
        let from_env = || std::env::var("TOOLHUB_URL").ok();
        let from_flag = self.global.server.as_ref().filter(|url| from_env().as_ref() != Some(*url));
        let config = self.global.flags.config.as_ref().map(|file| format!(" --config {}", file.display()));
        from_flag.map(|url| format!(" --server {url}")).or(config).unwrap_or_default()
    }

    /// The client of a server; `None` where no server was named and none runs.
    pub(crate) async fn server_client(&self) -> Result<Option<&Client>, Failure> {
        match self.client.get_or_try_init(|| client::connect(&self.global, &self.printer, Transport::Server)).await {
            Ok(client) => Ok(Some(client)),
            Err(failure) if failure.code == client::NO_SERVER => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Sends a request and turns an error status into a failure.
    pub(crate) async fn send_checked(&self, request: Request) -> Result<ApiResponse, Failure> {
        self.with_timeout(async { self.client().await?.send_checked(request).await }).await
    }

    /// Sends a call and returns whatever comes back. The hub enforces the call's timeout; a server that exceeds it by more than
    /// [`RESPONSE_GRACE`] counts as not responding.
    pub(crate) async fn send_call(&self, request: Request) -> Result<ApiResponse, Failure> {
        let _spinner = Spinner::start(&self.printer, "running");
        let sent = async { self.client().await?.send(request).await };
        match self.global.timeout {
            Some(time) => map_elapsed(time, tokio::time::timeout(time + RESPONSE_GRACE, sent).await)?,
            None => sent.await,
        }
    }

    /// Applies `--timeout`.
    async fn with_timeout<T>(&self, future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let _spinner = Spinner::start(&self.printer, "waiting");
        match self.global.timeout {
            Some(time) => map_elapsed(time, tokio::time::timeout(time, future).await)?,
            None => future.await,
        }
    }

    /// Sets a note that is printed below the output of the command.
    pub(crate) fn set_footer(&self, note: String) {
        *self.footer.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
    }

    /// Prints the note below the output.
    pub(crate) fn print_footer(&self) {
        if let Some(note) = self.footer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.printer.note(&note);
        }
    }

    /// Sets the request to send when the user interrupts, such as the cancellation of a call that would continue without its caller;
    /// and the note to print when it was accepted.
    pub(crate) fn set_interrupt_request(&self, request: Option<(Request, &'static str)>) {
        *self.interrupt_request.lock().unwrap_or_else(PoisonError::into_inner) = request;
    }

    /// Sends the interrupt request.
    pub(crate) async fn handle_interrupt(&self) {
        let request = self.interrupt_request.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some((request, note)), Some(client)) = (request, self.client.get()) {
            // A user who presses Ctrl-C does not want to wait long.
            let sent = tokio::time::timeout(Duration::from_secs(2), client.send_checked(request)).await;
            if matches!(sent, Ok(Ok(_))) {
                // The cursor stands behind the prompt.
                self.printer.note(&format!("\n{note}"));
            }
        }
    }

    /// Shuts down what was opened.
    pub(crate) async fn close(self, interrupted: bool) {
        if let Some(client) = self.client.into_inner() {
            client.close(interrupted).await;
        }
    }
}

fn map_elapsed<T>(timeout: Duration, response: Result<T, Elapsed>) -> Result<T, Failure> {
    response.map_err(|_| Failure::new("timeout", format!("no response within {timeout:?}")))
}
