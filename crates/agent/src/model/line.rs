//! The line to a provider: where it is, how we show who we are, and how long things may take there.
//!
//! In: plain settings. Out: a request that was sent and what came back, or why nothing did. Knows no provider's words.

use std::{
    net::IpAddr,
    sync::{Arc, Once, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use reqwest::{
    Response, Url,
    header::{HeaderMap, RETRY_AFTER},
};

use super::{
    ModelFault, retry,
    secret::Secret,
    trouble::{self, Failed},
};

/// No answer is longer, whole or in pieces.
pub(super) const LONGEST_ANSWER: usize = 16 * 1024 * 1024;
/// Of an answer that says what went wrong, no more is read.
const LONGEST_TROUBLE: usize = 64 * 1024;

/// Why a model cannot be reached as it was set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// That is no address.
    #[error("`{address}` is no address of a model's provider: {reason}")]
    Address {
        /// What was given; without what may be a key.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The key cannot be sent.
    #[error("the key of the model's provider has a character that cannot be sent, such as a line break")]
    Key,
    /// The model has no name.
    #[error("the model has no name")]
    NoModel,
    /// The client for HTTP cannot be made.
    #[error("no client for HTTP can be made: {0}")]
    Client(String),
}

/// The settings, and the connections that are kept.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) base_url: String,
    pub(super) key: Option<Secret>,
    pub(super) request_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) retries: u32,
    pub(super) first_wait: Duration,
    /// Whether the server has taken a question only after it was made plain.
    pub(super) plain: Arc<AtomicBool>,
    http: OnceLock<reqwest::Client>,
}

impl Line {
    pub(super) fn new(base_url: &str) -> Self {
        Self {
            base_url: base_url.to_owned(),
            key: None,
            request_timeout: Duration::from_secs(600),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            retries: 4,
            first_wait: Duration::from_millis(500),
            plain: Arc::default(),
            http: OnceLock::new(),
        }
    }

    /// Lets go of connections that were made with other settings.
    pub(super) fn forget(&mut self) {
        self.http = OnceLock::new();
        self.plain = Arc::default();
    }

    /// The address with these segments after it.
    pub(super) fn address(&self, path: &[&str]) -> Result<Url, SettingsError> {
        let wrong = |reason: &str| {
            // A key may stand before an `@` or after a `?`.
            let shown = self.base_url.split(['?', '#']).next().unwrap_or_default();
            let shown = shown.rsplit('@').next().unwrap_or_default();
            SettingsError::Address { address: shown.chars().take(200).collect(), reason: reason.to_owned() }
        };
        let mut url = Url::parse(self.base_url.trim()).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong("it begins with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("a key does not belong into the address"));
        }
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path),
            Err(()) => return Err(wrong("it has no path")),
        };
        Ok(url)
    }

    /// The client, made at its first use.
    pub(super) fn http(&self) -> Result<&reqwest::Client, SettingsError> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let url = self.address(&[])?;
        cryptography();
        let mut http = reqwest::Client::builder();
        if is_this_machine(url.host_str().unwrap_or_default()) {
            // A proxy that the environment names is for the way out.
            http = http.no_proxy();
        }
        let http = http
            .connect_timeout(self.connect_timeout)
            // A key must not travel to another host because a server says so.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("toolhub/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| SettingsError::Client(deepest(&error.without_url())))?;
        Ok(self.http.get_or_init(|| http))
    }

    /// Sends a request; what comes back is a success, or it is why there is none.
    pub(super) async fn send(&self, request: reqwest::RequestBuilder) -> Result<Response, Failed> {
        let answer = request.send().await.map_err(|error| self.unsent(error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let headers = answer.headers().clone();
        let body = self.read(answer, LONGEST_TROUBLE).await.unwrap_or_default();
        let mut failed = trouble::of_status(status.as_u16(), &String::from_utf8_lossy(&body), self.key.as_ref());
        failed.wait = wait_told(&headers);
        // What both providers' own clients look at.
        match text(&headers, "x-should-retry") {
            Some("false") => failed.again = false,
            Some("true") => failed.again = true,
            _ => {}
        }
        Err(failed)
    }

    /// The body, up to so many bytes. Of a longer one the beginning.
    async fn read(&self, mut answer: Response, most: usize) -> Result<Vec<u8>, Failed> {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(cut_off)? {
            let room = most - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() >= room {
                break;
            }
        }
        Ok(body)
    }

    /// The whole answer.
    pub(super) async fn whole(&self, answer: Response) -> Result<Vec<u8>, Failed> {
        let body = self.read(answer, LONGEST_ANSWER).await?;
        if body.len() == LONGEST_ANSWER {
            return Err(Failed::finally(ModelFault::Broken, "the model's answer is too long"));
        }
        Ok(body)
    }

    /// The next bytes of a streamed answer; none at its end.
    pub(super) async fn piece(
        &self,
        answer: &mut Response,
    ) -> Result<Option<impl std::ops::Deref<Target = [u8]> + use<>>, Failed> {
        match tokio::time::timeout(self.idle_timeout, answer.chunk()).await {
            Ok(piece) => piece.map_err(cut_off),
            Err(_) => {
                let message = format!("the model said nothing for {:?} in the middle of its answer", self.idle_timeout);
                Err(Failed::for_now(ModelFault::Timeout, message))
            }
        }
    }

    fn unsent(&self, error: reqwest::Error) -> Failed {
        let (connecting, late) = (error.is_connect(), error.is_timeout());
        let reason = deepest(&error.without_url());
        let place = self.address(&[]).map(|url| url.origin().ascii_serialization()).unwrap_or_default();
        match (connecting, late) {
            (true, true) => Failed::for_now(
                ModelFault::Unreachable,
                format!("nobody took the connection to {place} within {:?}", self.connect_timeout),
            ),
            (true, false) => Failed::for_now(ModelFault::Unreachable, format!("nobody answers at {place}: {reason}")),
            (false, true) => Failed::for_now(ModelFault::Timeout, format!("{place} took too long")),
            // The connection was there and went away before anything was answered.
            (false, false) => Failed::for_now(ModelFault::Unreachable, format!("{place} hung up: {reason}")),
        }
    }
}

fn cut_off(error: reqwest::Error) -> Failed {
    let message = format!("the model's answer was cut off: {}", deepest(&error.without_url()));
    Failed::for_now(ModelFault::Broken, message)
}

#[expect(clippy::disallowed_methods, reason = "only for a server that names a date and does not tell its own time")]
fn wait_told(headers: &HeaderMap) -> Option<Duration> {
    let milliseconds = text(headers, "retry-after-ms").and_then(|text| text.trim().parse::<u32>().ok());
    if let Some(milliseconds) = milliseconds {
        return Some(Duration::from_millis(milliseconds.into()));
    }
    retry::told(text(headers, RETRY_AFTER.as_str())?, text(headers, "date"), std::time::SystemTime::now())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// What is at the bottom of an error; the rest only says that something went wrong.
fn deepest(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Names the cryptography of TLS, once per process.
fn cryptography() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // It fails only where somebody named one before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
