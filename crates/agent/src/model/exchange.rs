//! One model request with retries, for any provider.
//!
//! In: a prompt, a client and a provider's dialect (wire format). Out: a reply, or the last error when the time limit
//! is reached. The retry policy, and the restart signal for stream listeners, are the same for every provider.

use std::{sync::atomic::Ordering, time::Duration};

use serde_json::Value;
use tokio::time::Instant;
use toolhub_core::{
    TraceContext,
    json::{self, JsonError, JsonLimits},
    offload,
};
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

/// How long to drain a connection after the end of a streamed response.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum size of one event of a streamed response.
const MAX_EVENT_BYTES: usize = 4 * 1024 * 1024;

/// A provider's wire format.
pub(super) trait Dialect: Sync {
    /// Assembles a streamed response.
    type Decoder: StreamDecoder;

    /// Path of model requests, below the base URL.
    fn path(&self) -> &'static [&'static str];

    /// Adds the headers that authenticate a request.
    ///
    /// # Errors
    /// When the key cannot be sent.
    fn authenticate(&self, headers: &mut HeaderMap, key: Option<&Secret>) -> Result<(), SecretError>;

    /// The body of a model request.
    fn request_body(&self, prompt: &Prompt<'_>) -> Value;

    /// Removes fields from a request that not every server accepts and the reply does not depend on; returns whether
    /// there were any.
    fn strip_optional_fields(&self, body: &mut Value) -> bool {
        let _ = body;
        false
    }

    /// Parses a response that was not streamed.
    fn parse_response(&self, response: &Value, key: Option<&Secret>) -> Result<Reply, AttemptError>;

    /// A decoder for one streamed response.
    fn decoder(&self) -> Self::Decoder;
}

/// Assembles a streamed response.
pub(super) trait StreamDecoder: Send {
    /// Applies one event, and passes its text on. Returns whether it was the last one.
    fn push_event(
        &mut self,
        event: &SseEvent,
        key: Option<&Secret>,
        on_text: &mut (dyn FnMut(&str) + Send),
    ) -> Result<bool, AttemptError>;

    /// The complete reply; an error if the stream ended early.
    fn finish(self) -> Result<Reply, AttemptError>;
}

/// Checks that requests can be built and sent with these settings.
pub(super) fn check<D: Dialect>(dialect: &D, client: &ProviderClient) -> Result<(), SettingsError> {
    client.http()?;
    build_request(dialect, client, Method::POST, dialect.path(), Bytes::new()).map(drop)
}

/// An authenticated request.
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
        request_target(&url).parse().map_err(|_| SettingsError::Client("the URL is too long".into()))?;
    dialect.authenticate(request.headers_mut(), client.key.as_ref())?;
    Ok(request)
}

/// Sends a model request, and retries it where that may help.
pub(super) async fn ask<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    prompt: Prompt<'_>,
    sink: &StreamSink,
) -> Result<Reply, ModelError> {
    let deadline = Instant::now() + prompt.timeout;
    let mut body = dialect.request_body(&prompt);
    let mut stripped = client.omit_optional_fields.load(Ordering::Relaxed) && dialect.strip_optional_fields(&mut body);
    let mut retries = 0;
    loop {
        let bytes = serde_json::to_vec(&body).expect("a JSON value can be serialized");
        let mut emitted_text = false;
        let remaining = deadline.saturating_duration_since(Instant::now());
        let timeout = remaining.min(client.request_timeout);
        let attempt = tokio::time::timeout(timeout, attempt(dialect, client, &prompt, bytes, sink, &mut emitted_text));
        let failure = match attempt.await {
            Ok(Ok(reply)) => {
                client.omit_optional_fields.fetch_or(stripped, Ordering::Relaxed);
                return Ok(reply);
            }
            // Some servers reject a request because of a field they do not know.
            Ok(Err(failure))
                if !stripped
                    && matches!(failure.error.status, Some(400 | 422))
                    && dialect.strip_optional_fields(&mut body) =>
            {
                stripped = true;
                continue;
            }
            Ok(Err(failure)) => failure,
            Err(_) => {
                // Rounded up to milliseconds: the remaining time has digits that would only confuse.
                let timeout = Duration::from_millis(timeout.as_micros().div_ceil(1000).try_into().unwrap_or(u64::MAX));
                AttemptError::transient(ModelFault::Timeout, format!("the model did not answer within {timeout:?}"))
            }
        };
        let remaining = deadline.saturating_duration_since(Instant::now());
        let Some(delay) = retry_delay(client, retries, &failure, remaining) else { return Err(failure.error) };
        tracing::debug!(?delay, retries, status = failure.error.status, error = %failure.error, "retrying model request");
        if emitted_text {
            sink(StreamPart::Restart);
        }
        tokio::time::sleep(delay).await;
        retries += 1;
    }
}

fn retry_delay(client: &ProviderClient, retries: u32, failure: &AttemptError, remaining: Duration) -> Option<Duration> {
    if !failure.retryable || retries >= client.retries {
        return None;
    }
    retry::next_delay(retries, client.first_wait, failure.retry_after, remaining, fastrand::f64())
}

async fn attempt<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    prompt: &Prompt<'_>,
    body: Vec<u8>,
    sink: &StreamSink,
    emitted_text: &mut bool,
) -> Result<Reply, AttemptError> {
    let invalid = |error: SettingsError| AttemptError::permanent(ModelFault::Refused, error.to_string());
    let mut request = build_request(dialect, client, Method::POST, dialect.path(), body.into()).map_err(invalid)?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(trace) = prompt.trace {
        add_trace(request.headers_mut(), trace);
    }
    let stream = prompt.stream;
    let response = client.send(request).await?;
    let mut on_text = |text: &str| {
        if stream && !text.is_empty() {
            *emitted_text = true;
            sink(StreamPart::Text(text));
        }
    };
    // Some servers ignore the request to stream.
    if stream && is_event_stream(&response) {
        return read_stream(dialect, client, response, &mut on_text).await;
    }
    let body = client.read_full_body(response).await?;
    let parsed = offload::run(body.len(), move || json::parse::<Value>(&body, JsonLimits::default())).await;
    let response = parsed.map_err(|error| match error {
        JsonError::Invalid(_) => {
            AttemptError::transient(ModelFault::Broken, "the model's response is not valid JSON or was truncated")
        }
        limit => AttemptError::permanent(ModelFault::Broken, format!("the model's response is too large: {limit}")),
    })?;
    let reply = dialect.parse_response(&response, client.key.as_ref())?;
    on_text(&reply.text);
    Ok(reply)
}

/// Adds the headers of the W3C trace context.
fn add_trace(headers: &mut HeaderMap, trace: &TraceContext) {
    let parent = HeaderValue::from_str(&trace.traceparent());
    headers.extend(parent.ok().map(|parent| (HeaderName::from_static("traceparent"), parent)));
    // The state comes from the caller: one that is no valid header value is dropped.
    let state = trace.state.as_deref().and_then(|state| HeaderValue::from_str(state).ok());
    headers.extend(state.map(|state| (HeaderName::from_static("tracestate"), state)));
}

async fn read_stream<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    mut response: Response,
    on_text: &mut (dyn FnMut(&str) + Send),
) -> Result<Reply, AttemptError> {
    let (mut events, mut decoder) = (SseDecoder::new(MAX_EVENT_BYTES), dialect.decoder());
    let mut remaining_bytes = MAX_RESPONSE_BYTES;
    let too_long = || AttemptError::permanent(ModelFault::Broken, "the model's response is too long");
    while let Some(chunk) = client.next_chunk(&mut response).await? {
        remaining_bytes = remaining_bytes.checked_sub(chunk.len()).ok_or_else(too_long)?;
        for event in events.feed(&chunk).map_err(|_| too_long())? {
            if decoder.push_event(&event, client.key.as_ref(), on_text)? {
                // A connection that was read to its end can be reused; the drain is bounded, because the reply is
                // ready.
                let drain = async { while let Ok(Some(_)) = client.next_chunk(&mut response).await {} };
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, drain).await;
                return decoder.finish();
            }
        }
    }
    decoder.finish()
}

fn is_event_stream(response: &Response) -> bool {
    let kind = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    !kind.trim_start().to_ascii_lowercase().starts_with("application/json")
}
