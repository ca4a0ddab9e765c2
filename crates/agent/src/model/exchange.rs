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
    Hear, Heard, ModelError, ModelFault, Prompt, Reply,
    provider_client::{LONGEST_ANSWER, ProviderClient, SettingsError},
    retry,
    trouble::Failed,
};

/// How long what comes after the end of a streamed answer is waited for.
const LAST_BYTES: Duration = Duration::from_millis(100);
/// No event of a streamed answer is longer than this.
const LONGEST_EVENT: usize = 4 * 1024 * 1024;

/// A provider's words.
pub(super) trait Dialect: Sync {
    /// Puts a streamed answer together.
    type Ear: Ear;

    /// Where questions go, after the base address.
    fn path(&self) -> &'static [&'static str];

    /// Adds the headers that authenticate a request.
    ///
    /// # Errors
    /// When the key cannot be sent.
    fn sign(&self, headers: &mut HeaderMap, key: Option<&Secret>) -> Result<(), SecretError>;

    /// The question.
    fn body(&self, prompt: &Prompt<'_>) -> Value;

    /// Takes out of a question what not every server understands and the answer does not depend on; says whether there was any.
    fn make_plain(&self, body: &mut Value) -> bool {
        let _ = body;
        false
    }

    /// An answer that came whole.
    fn whole(&self, answer: &Value, key: Option<&Secret>) -> Result<Reply, Failed>;

    /// For an answer that comes in pieces.
    fn ear(&self) -> Self::Ear;
}

/// Puts a streamed answer together.
pub(super) trait Ear: Send {
    /// Takes one event, and passes text on. Whether that was the last one.
    fn hear(
        &mut self,
        event: &SseEvent,
        key: Option<&Secret>,
        say: &mut (dyn FnMut(&str) + Send),
    ) -> Result<bool, Failed>;

    /// The whole reply; an error where its end did not come.
    fn reply(self) -> Result<Reply, Failed>;
}

/// Whether questions can be sent at all.
pub(super) fn check<D: Dialect>(dialect: &D, client: &ProviderClient) -> Result<(), SettingsError> {
    client.http()?;
    request(dialect, client, Method::POST, dialect.path(), Bytes::new()).map(drop)
}

/// A request that shows who we are.
pub(super) fn request<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    method: Method,
    path: &[&str],
    body: Bytes,
) -> Result<Request<Bytes>, SettingsError> {
    let url = client.address(path)?;
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() =
        request_target(&url).parse().map_err(|_| SettingsError::Client("its address is too long".into()))?;
    dialect.sign(request.headers_mut(), client.key.as_ref())?;
    Ok(request)
}

/// Asks, and asks again where that may help.
pub(super) async fn ask<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    prompt: Prompt<'_>,
    hear: &Hear,
) -> Result<Reply, ModelError> {
    let ends = Instant::now() + prompt.time;
    let mut body = dialect.body(&prompt);
    let mut plain = client.plain.load(Ordering::Relaxed) && dialect.make_plain(&mut body);
    let mut retries = 0;
    loop {
        let bytes = serde_json::to_vec(&body).expect("a value is JSON");
        let mut heard = false;
        let left = ends.saturating_duration_since(Instant::now());
        let time = left.min(client.request_timeout);
        let tried = tokio::time::timeout(time, attempt(dialect, client, &prompt, bytes, hear, &mut heard));
        let failed = match tried.await {
            Ok(Ok(reply)) => {
                client.plain.fetch_or(plain, Ordering::Relaxed);
                return Ok(reply);
            }
            // Some servers refuse a question for a word they do not know.
            Ok(Err(failed))
                if !plain && matches!(failed.error.status, Some(400 | 422)) && dialect.make_plain(&mut body) =>
            {
                plain = true;
                continue;
            }
            Ok(Err(failed)) => failed,
            Err(_) => {
                // Nobody gave a time with so many digits; what is left of one has them.
                let time = Duration::from_millis(time.as_micros().div_ceil(1000).try_into().unwrap_or(u64::MAX));
                Failed::for_now(ModelFault::Timeout, format!("the model did not answer within {time:?}"))
            }
        };
        let left = ends.saturating_duration_since(Instant::now());
        let next = next(client, retries, &failed, left);
        let Some(wait) = next else { return Err(failed.error) };
        tracing::debug!(?wait, retries, status = failed.error.status, "the model is asked again: {}", failed.error);
        if heard {
            hear(Heard::Again);
        }
        tokio::time::sleep(wait).await;
        retries += 1;
    }
}

fn next(client: &ProviderClient, retries: u32, failed: &Failed, left: Duration) -> Option<Duration> {
    if !failed.again || retries >= client.retries {
        return None;
    }
    retry::wait(retries, client.first_wait, failed.wait, left, fastrand::f64())
}

async fn attempt<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    prompt: &Prompt<'_>,
    body: Vec<u8>,
    hear: &Hear,
    heard: &mut bool,
) -> Result<Reply, Failed> {
    let wrong = |error: SettingsError| Failed::finally(ModelFault::Refused, error.to_string());
    let mut request = request(dialect, client, Method::POST, dialect.path(), body.into()).map_err(wrong)?;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(trace) = prompt.trace {
        add_trace(request.headers_mut(), trace);
    }
    let stream = prompt.stream;
    let answer = client.send(request).await?;
    let mut say = |text: &str| {
        if stream && !text.is_empty() {
            *heard = true;
            hear(Heard::Text(text));
        }
    };
    // Some servers do not stream, whatever they are asked.
    if stream && is_stream(&answer) {
        return listen(dialect, client, answer, &mut say).await;
    }
    let body = client.whole(answer).await?;
    let answer: Value = serde_json::from_slice(&body)
        .map_err(|_| Failed::for_now(ModelFault::Broken, "the model's answer is not JSON, or was cut off"))?;
    let reply = dialect.whole(&answer, client.key.as_ref())?;
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

async fn listen<D: Dialect>(
    dialect: &D,
    client: &ProviderClient,
    mut answer: Response,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<Reply, Failed> {
    let (mut events, mut ear, mut room) = (SseDecoder::new(LONGEST_EVENT), dialect.ear(), LONGEST_ANSWER);
    let too_long = || Failed::finally(ModelFault::Broken, "the model's answer is too long");
    while let Some(piece) = client.piece(&mut answer).await? {
        room = room.checked_sub(piece.len()).ok_or_else(too_long)?;
        for event in events.feed(&piece).map_err(|_| too_long())? {
            if ear.hear(&event, client.key.as_ref(), say)? {
                // Read to its end the connection can be used again; nobody waits long for that.
                let rest = async { while let Ok(Some(_)) = client.piece(&mut answer).await {} };
                let _ = tokio::time::timeout(LAST_BYTES, rest).await;
                return ear.reply();
            }
        }
    }
    ear.reply()
}

fn is_stream(answer: &Response) -> bool {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    !kind.trim_start().to_ascii_lowercase().starts_with("application/json")
}
