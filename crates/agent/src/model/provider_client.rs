//! HTTP client of one provider: base URL, key, timeouts and connection pool.
//!
//! In: plain settings and a request. Out: a successful response, or a classified failure. Knows no wire format.

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

/// Maximum size of a response, streamed or not.
pub(super) const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;
/// How much of an error response is read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// Upper bound for a provider's `Retry-After`; a longer one is a mistake.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(86_400);

/// Why the settings of a model are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The base URL is invalid.
    #[error("`{address}` is not a valid base URL of a model provider: {reason}")]
    Address {
        /// The base URL, without parts that may contain a key.
        address: String,
        /// Why it is invalid.
        reason: String,
    },
    /// The key cannot be sent.
    #[error("the API key of the model provider contains an invalid character, such as a line break")]
    Key,
    /// The key cannot be read.
    #[error("cannot read the API key of the model provider: {0}")]
    Secret(SecretError),
    /// The model has no name.
    #[error("no model name; set `model` in [llm]")]
    NoModel,
    /// The HTTP client cannot be created.
    #[error("cannot create the HTTP client of the model provider: {0}")]
    Client(String),
}

impl From<SecretError> for SettingsError {
    fn from(error: SecretError) -> Self {
        if matches!(error, SecretError::Unsendable(_)) { Self::Key } else { Self::Secret(error) }
    }
}

/// The settings and the connection pool.
#[derive(Debug, Clone)]
pub(super) struct ProviderClient {
    pub(super) base_url: String,
    pub(super) key: Option<Secret>,
    pub(super) request_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) retries: u32,
    pub(super) first_wait: Duration,
    /// Whether the server has rejected the optional fields of a request.
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

    /// Drops connections that were opened with other settings.
    pub(super) fn reset_connections(&mut self) {
        self.http = OnceLock::new();
        self.omit_optional_fields = Arc::default();
    }

    /// The base URL with these path segments appended.
    pub(super) fn endpoint_url(&self, path: &[&str]) -> Result<Url, SettingsError> {
        let invalid = |reason: &str| {
            // A key may be before an `@` or after a `?`.
            let shown = self.base_url.split(['?', '#']).next().unwrap_or_default();
            let shown = shown.rsplit('@').next().unwrap_or_default();
            SettingsError::Address { address: shown.chars().take(200).collect(), reason: reason.to_owned() }
        };
        let mut url = Url::parse(self.base_url.trim()).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(invalid("it must begin with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it must not contain credentials; set the key instead"));
        }
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path),
            Err(()) => return Err(invalid("it cannot have a path")),
        };
        Ok(url)
    }

    /// The HTTP client, created at its first use.
    pub(super) fn http(&self) -> Result<&Client, SettingsError> {
        if let Some(http) = self.http.get() {
            return Ok(http);
        }
        let url = self.endpoint_url(&[])?;
        let http = Client::new(&url, self.connect_timeout).ok_or_else(|| SettingsError::Client("no host".into()))?;
        Ok(self.http.get_or_init(|| http))
    }

    /// Sends a request; any status but success is an error. Redirects are not followed: a server must not be able to
    /// send the key to another host.
    pub(super) async fn send(&self, request: Request<Bytes>) -> Result<Response, AttemptError> {
        let http = self.http().map_err(|error| AttemptError::permanent(ModelFault::Refused, error.to_string()))?;
        let response = http.send(request).await.map_err(|error| connection_error(http, &error))?;
        let status = response.status;
        if status.is_success() {
            return Ok(response);
        }
        let headers = response.headers.clone();
        let body = self.read_body(response, MAX_ERROR_BODY_BYTES).await.unwrap_or_default();
        let mut failure =
            attempt_error::from_status(status.as_u16(), &String::from_utf8_lossy(&body), self.key.as_ref());
        failure.retry_after = retry_delay(&headers);
        // Both providers' own SDKs honor this header.
        match header_text(&headers, "x-should-retry") {
            Some("false") => failure.retryable = false,
            Some("true") => failure.retryable = true,
            _ => {}
        }
        Err(failure)
    }

    /// The body, truncated to this many bytes.
    async fn read_body(&self, mut response: Response, max_bytes: usize) -> Result<Vec<u8>, AttemptError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| truncated_error(&error))? {
            let remaining = max_bytes - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
            if chunk.len() >= remaining {
                break;
            }
        }
        Ok(body)
    }

    /// The complete body; an error if it is too long.
    pub(super) async fn read_full_body(&self, response: Response) -> Result<Vec<u8>, AttemptError> {
        let body = self.read_body(response, MAX_RESPONSE_BYTES).await?;
        if body.len() == MAX_RESPONSE_BYTES {
            return Err(AttemptError::permanent(ModelFault::Broken, "the model's response is too long"));
        }
        Ok(body)
    }

    /// The next chunk of a streamed response; none at its end.
    pub(super) async fn next_chunk(&self, response: &mut Response) -> Result<Option<Bytes>, AttemptError> {
        match tokio::time::timeout(self.idle_timeout, response.chunk()).await {
            Ok(chunk) => chunk.map_err(|error| truncated_error(&error)),
            Err(_) => {
                let message = format!("the model's stream was idle for {:?}", self.idle_timeout);
                Err(AttemptError::transient(ModelFault::Timeout, message))
            }
        }
    }
}

fn connection_error(http: &Client, error: &SendError) -> AttemptError {
    let origin = http.origin();
    let message = match error {
        SendError::Dial(DialError::Timeout(time)) => format!("connecting to {origin} timed out after {time:?}"),
        SendError::Dial(_) => format!("cannot connect to {origin}: {}", cause(error)),
        // The connection was open and failed before a response.
        _ => format!("{origin} closed the connection: {}", cause(error)),
    };
    AttemptError::transient(ModelFault::Unreachable, message)
}

fn truncated_error(error: &SendError) -> AttemptError {
    AttemptError::transient(ModelFault::Broken, format!("the model's response was truncated: {}", cause(error)))
}

/// The root cause of an error, without the wrapping texts.
fn cause(error: &SendError) -> String {
    match error {
        SendError::Dial(DialError::Unreachable { reason, .. }) | SendError::Broken { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

/// The delay that a provider asks for.
#[expect(clippy::disallowed_methods, reason = "only for a `Retry-After` date of a server that sends no `Date`")]
fn retry_delay(headers: &HeaderMap) -> Option<Duration> {
    let milliseconds = header_text(headers, "retry-after-ms").and_then(|text| text.trim().parse::<u32>().ok());
    if let Some(milliseconds) = milliseconds {
        return Some(Duration::from_millis(milliseconds.into()));
    }
    // Relative to the server's clock, because ours may be wrong.
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
