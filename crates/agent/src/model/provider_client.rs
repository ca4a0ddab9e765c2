//! HTTP client of one provider: its address, its key, its timeouts and its connections.
//!
//! In: plain settings. Out: a request that was sent and what came back, or why nothing did. Knows no provider's words.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use toolhub_net::{
    Bytes, Client, DialError, HeaderMap, Request, Response, Secret, SecretError, SendError, Url, header::RETRY_AFTER,
    parse_http_date, parse_retry_after,
};

use super::{
    ModelFault,
    attempt_error::{self, AttemptError},
};

/// No answer is longer, whole or in pieces.
pub(super) const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;
/// Of an answer that says what went wrong, no more is read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// A provider that asks to wait longer than this has lost count.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

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
    /// There is no key where one should be.
    #[error("no key of the model's provider: {0}")]
    Secret(SecretError),
    /// The model has no name.
    #[error("the model has no name")]
    NoModel,
    /// The client for HTTP cannot be made.
    #[error("no client for HTTP can be made: {0}")]
    Client(String),
}

impl From<SecretError> for SettingsError {
    fn from(error: SecretError) -> Self {
        if matches!(error, SecretError::Unsendable(_)) { Self::Key } else { Self::Secret(error) }
    }
}

/// The settings, and the connections that are kept.
#[derive(Debug, Clone)]
pub(super) struct ProviderClient {
    pub(super) base_url: String,
    pub(super) key: Option<Secret>,
    pub(super) request_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) retries: u32,
    pub(super) first_wait: Duration,
    /// Whether the server has taken a question only after it was made plain.
    pub(super) omit_optional_fields: Arc<AtomicBool>,
    http: OnceLock<Client>,
}

impl ProviderClient {
    pub(super) fn new(base_url: &str) -> Self {
        Self {
            base_url: base_url.to_owned(),
            key: None,
            request_timeout: Duration::from_secs(600),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            retries: 4,
            first_wait: Duration::from_millis(500),
            omit_optional_fields: Arc::default(),
            http: OnceLock::new(),
        }
    }

    /// Lets go of connections that were made with other settings.
    pub(super) fn forget(&mut self) {
        self.http = OnceLock::new();
        self.omit_optional_fields = Arc::default();
    }

    /// The address with these segments after it.
    pub(super) fn endpoint_url(&self, path: &[&str]) -> Result<Url, SettingsError> {
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
    pub(super) fn http(&self) -> Result<&Client, SettingsError> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let url = self.endpoint_url(&[])?;
        let http = Client::new(&url, self.connect_timeout).ok_or_else(|| SettingsError::Client("no host".into()))?;
        Ok(self.http.get_or_init(|| http))
    }

    /// Sends a request; what comes back is a success, or it is why there is none. Redirects are not followed: a key must not travel to
    /// another host because a server says so.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Result<Response, AttemptError> {
        let http = self.http().map_err(|error| AttemptError::permanent(ModelFault::Refused, error.to_string()))?;
        let answer = http.send(request).await.map_err(|error| connection_error(http, &error))?;
        let status = answer.status;
        if status.is_success() {
            return Ok(answer);
        }
        let headers = answer.headers.clone();
        let body = self.read_body(answer, MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
        let mut failed =
            attempt_error::from_status(status.as_u16(), &String::from_utf8_lossy(&body), self.key.as_ref());
        failed.retry_after = retry_delay(&headers);
        // What both providers' own clients look at.
        match header_text(&headers, "x-should-retry") {
            Some("false") => failed.retryable = false,
            Some("true") => failed.retryable = true,
            _ => {}
        }
        Err(failed)
    }

    /// The body, up to so many bytes. Of a longer one the beginning.
    async fn read_body(&self, mut answer: Response, most: usize) -> Result<Vec<u8>, AttemptError> {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| truncated_error(&error))? {
            let room = most - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.len() >= room {
                break;
            }
        }
        Ok(body)
    }

    /// The whole answer.
    pub(super) async fn read_full_body(&self, answer: Response) -> Result<Vec<u8>, AttemptError> {
        let body = self.read_body(answer, MAX_RESPONSE_BYTES).await?;
        if body.len() == MAX_RESPONSE_BYTES {
            return Err(AttemptError::permanent(ModelFault::Broken, "the model's answer is too long"));
        }
        Ok(body)
    }

    /// The next bytes of a streamed answer; none at its end.
    pub(super) async fn next_chunk(&self, answer: &mut Response) -> Result<Option<Bytes>, AttemptError> {
        match tokio::time::timeout(self.idle_timeout, answer.chunk()).await {
            Ok(piece) => piece.map_err(|error| truncated_error(&error)),
            Err(_) => {
                let message = format!("the model said nothing for {:?} in the middle of its answer", self.idle_timeout);
                Err(AttemptError::transient(ModelFault::Timeout, message))
            }
        }
    }
}

fn connection_error(http: &Client, error: &SendError) -> AttemptError {
    let place = http.origin();
    let message = match error {
        SendError::Dial(DialError::Timeout(time)) => format!("nobody took the connection to {place} within {time:?}"),
        SendError::Dial(_) => format!("nobody answers at {place}: {}", cause(error)),
        // The connection was there and went away before anything was answered.
        _ => format!("{place} hung up: {}", cause(error)),
    };
    AttemptError::transient(ModelFault::Unreachable, message)
}

fn truncated_error(error: &SendError) -> AttemptError {
    AttemptError::transient(ModelFault::Broken, format!("the model's answer was cut off: {}", cause(error)))
}

/// The last cause of an error; the rest only says that something went wrong.
fn cause(error: &SendError) -> String {
    match error {
        SendError::Dial(DialError::Unreachable { reason, .. }) | SendError::Broken { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

/// How long a provider asks to wait.
#[expect(clippy::disallowed_methods, reason = "only for a server that names a date and does not tell its own time")]
fn retry_delay(headers: &HeaderMap) -> Option<Duration> {
    let milliseconds = header_text(headers, "retry-after-ms").and_then(|text| text.trim().parse::<u32>().ok());
    if let Some(milliseconds) = milliseconds {
        return Some(Duration::from_millis(milliseconds.into()));
    }
    // The server's clock is the one that counts: ours may be wrong.
    let now = header_text(headers, "date").and_then(parse_http_date).unwrap_or_else(SystemTime::now);
    Some(parse_retry_after(header_text(headers, RETRY_AFTER.as_str())?, now)?.min(MAX_RETRY_AFTER))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_says_how_long_to_wait_by_its_own_clock_and_within_bounds() {
        let check = |headers: &[(&'static str, &'static str)], expected: Option<u64>| {
            let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            assert_eq!(retry_delay(&headers.collect()).map(|wait| wait.as_millis() as u64), expected);
        };
        check(&[("retry-after", "3")], Some(3000));
        check(&[("retry-after", "3"), ("retry-after-ms", "70")], Some(70));
        check(&[("retry-after", "1e300")], Some(86_400_000));
        check(&[("retry-after", "soon")], None);
        check(&[], None);
        let now = ("date", "Sun, 06 Nov 1994 08:49:45 GMT");
        check(&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT"), now], Some(2000));
        check(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT"), now], Some(0));
        check(&[("retry-after", "Sat, 06 Nov 2094 08:00:00 GMT"), now], Some(86_400_000));
    }
}
