//! One question to a provider, until it is answered or the time is over.
//!
//! In: a prompt, a client and a provider's dialect. Out: a reply. What is retried, and that listeners hear of it, is decided here and is
//! the same for every provider.

use std::{sync::atomic::Ordering, time::Duration};

use serde_json::Value;
use tokio::time::Instant;
use toolhub_core::TraceContext;
use toolhub_net::{
    Bytes, HeaderMap, Method, Request, Response, Secret, SecretError, SseDecoder, SseEvent,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
    request_target,
};

use super::{
    ModelError, ModelFault, Prompt, Reply, StreamPart, StreamSink,
    attempt_error::AttemptError,
    provider_client::{MAX_RESPONSE_BYTES, ProviderClient, SettingsError},
    retry,
};

/// How long what comes after the end of a streamed answer is waited for.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// No event of a streamed answer is longer than this.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// A provider's words.
pub(super) trait Dialect: Sync {
    /// Puts a streamed answer together.
    type Decoder: StreamDecoder;

    /// Where questions go, after the base address.
    fn path(&self) -> &'static [&'static str];

    /// Adds the headers that authenticate a request.
    ///
    /// # Errors
    /// When the key cannot be sent.
    fn authenticate(&self, headers: &mut HeaderMap, key: Option<&Secret>) -> Result<(), SecretError>;

    /// The question.
    fn request_body(&self, prompt: &Prompt<'_>) -> Value;

    /// Takes out of a question what not every server understands and the answer does not depend on; says whether there was any.
    fn strip_optional_fields(&self, body: &mut Value) -> bool {
        let _ = body;
        false
    }

    /// An answer that came whole.
    fn parse_response(&self, answer: &Value, key: Option<&Secret>) -> Result<Reply, AttemptError>;

    /// For an answer that comes in pieces.
    fn decoder(&self) -> Self::Decoder;
}

/// Puts a streamed answer together.
pub(super) trait StreamDecoder: Send {
    /// Takes one event, and passes text on. Whether that was the last one.
    fn push_event(
        &mut self,
        event: &SseEvent,
        key: Option<&Secret>,
        say: &mut (dyn FnMut(&str) + Send),
    ) -> Result<bool, AttemptError>;

    /// The whole reply; an error where its end did not come.
    fn finish(self) -> Result<Reply, AttemptError>;
}

/// Whether questions can be sent at all.
pub(super) fn check<D: Dialect>(dialect: &D, client: &ProviderClient) -> Result<(), SettingsError> {
    client.http()?;
    build_request(dialect, client, Method::POST, dialect.path(), Bytes::new()).map(drop)
}

/// A request that shows who we are.
pub(super) fn build_request<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    method: Method,
    path: &[&str],
    body: Bytes,
) -> Result<Request<Bytes>, SettingsError> {
    let url = client.endpoint_url(path)?;
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() =
        request_target(&url).parse().map_err(|_| SettingsError::Client("its address is too long".into()))?;
    dialect.authenticate(request.headers_mut(), client.key.as_ref())?;
    Ok(request)
}

/// Asks, and asks again where that may help.
pub(super) async fn ask<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    prompt: Prompt<'_>,
    hear: &StreamSink,
) -> Result<Reply, ModelError> {
    let ends = Instant::now() + prompt.timeout;
    let mut body = dialect.request_body(&prompt);
    let mut plain = client.omit_optional_fields.load(Ordering::Relaxed) && dialect.strip_optional_fields(&mut body);
    let mut retries = 0;
    loop {
        let bytes = serde_json::to_vec(&body).expect("a value is JSON");
        let mut heard = false;
        let left = ends.saturating_duration_since(Instant::now());
        let time = left.min(client.request_timeout);
        let tried = tokio::time::timeout(time, attempt(dialect, client, &prompt, bytes, hear, &mut heard));
        let failed = match tried.await {
            Ok(Ok(reply)) => {
                client.omit_optional_fields.fetch_or(plain, Ordering::Relaxed);
                return Ok(reply);
            }
            // Some servers refuse a question for a word they do not know.
            Ok(Err(failed))
                if !plain
                    && matches!(failed.error.status, Some(400 | 422))
                    && dialect.strip_optional_fields(&mut body) =>
            {
                plain = true;
                continue;
            }
            Ok(Err(failed)) => failed,
            Err(_) => {
                // Nobody gave a time with so many digits; what is left of one has them.
                let time = Duration::from_millis(time.as_micros().div_ceil(1000).try_into().unwrap_or(u64::MAX));
                AttemptError::transient(ModelFault::Timeout, format!("the model did not answer within {time:?}"))
            }
        };
        let left = ends.saturating_duration_since(Instant::now());
        let next = retry_delay(client, retries, &failed, left);
        let Some(wait) = next else { return Err(failed.error) };
        tracing::debug!(?wait, retries, status = failed.error.status, "the model is asked again: {}", failed.error);
        if heard {
            hear(StreamPart::Restart);
        }
        tokio::time::sleep(wait).await;
        retries += 1;
    }
}

fn retry_delay(client: &ProviderClient, retries: u32, failed: &AttemptError, left: Duration) -> Option<Duration> {
    if !failed.retryable || retries >= client.retries {
        return None;
    }
    retry::next_delay(retries, client.first_wait, failed.retry_after, left, fastrand::f64())
}

async fn attempt<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    prompt: &Prompt<'_>,
    body: Vec<u8>,
    hear: &StreamSink,
    heard: &mut bool,
) -> Result<Reply, AttemptError> {
    let wrong = |error: SettingsError| AttemptError::permanent(ModelFault::Refused, error.to_string());
    let mut request = build_request(dialect, client, Method::POST, dialect.path(), body.into()).map_err(wrong)?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(trace) = prompt.trace {
        add_trace(request.headers_mut(), trace);
    }
    let stream = prompt.stream;
    let answer = client.send(request).await?;
    let mut say = |text: &str| {
        if stream && !text.is_empty() {
            *heard = true;
            hear(StreamPart::Text(text));
        }
    };
    // Some servers do not stream, whatever they are asked.
    if stream && is_event_stream(&answer) {
        return read_stream(dialect, client, answer, &mut say).await;
    }
    let body = client.read_full_body(answer).await?;
    let answer: Value = serde_json::from_slice(&body)
        .map_err(|_| AttemptError::transient(ModelFault::Broken, "the model's answer is not JSON, or was cut off"))?;
    let reply = dialect.parse_response(&answer, client.key.as_ref())?;
    say(&reply.text);
    Ok(reply)
}

/// Says which trace the question belongs to.
fn add_trace(headers: &mut HeaderMap, trace: &TraceContext) {
    let parent = HeaderValue::from_str(&trace.traceparent());
    headers.extend(parent.ok().map(|parent| (HeaderName::from_static("traceparent"), parent)));
    // The state came from outside: what cannot stand in a header stays behind.
    let state = trace.state.as_deref().and_then(|state| HeaderValue::from_str(state).ok());
    headers.extend(state.map(|state| (HeaderName::from_static("tracestate"), state)));
}

async fn read_stream<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    mut answer: Response,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<Reply, AttemptError> {
    let (mut events, mut ear, mut room) = (SseDecoder::new(MAX_EVENT_BYTES), dialect.decoder(), MAX_RESPONSE_BYTES);
    let too_long = || AttemptError::permanent(ModelFault::Broken, "the model's answer is too long");
    while let Some(piece) = client.next_chunk(&mut answer).await? {
        room = room.checked_sub(piece.len()).ok_or_else(too_long)?;
        for event in events.feed(&piece).map_err(|_| too_long())? {
            if ear.push_event(&event, client.key.as_ref(), say)? {
                // Read to its end the connection can be used again; nobody waits long for that.
                let rest = async { while let Ok(Some(_)) = client.next_chunk(&mut answer).await {} };
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
                return ear.finish();
            }
        }
    }
    ear.finish()
}

fn is_event_stream(answer: &Response) -> bool {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    !kind.trim_start().to_ascii_lowercase().starts_with("application/json")
}
