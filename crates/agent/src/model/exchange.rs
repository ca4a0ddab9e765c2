//! One question to a provider, until it is answered or the time is over.
//!
//! In: a prompt, a line and a provider's dialect. Out: a reply. What is retried, and that listeners hear of it, is decided here and is
//! the same for every provider.

use std::{sync::atomic::Ordering, time::Duration};

use reqwest::{
    RequestBuilder, Response,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::Value;
use tokio::time::Instant;
use toolhub_core::TraceContext;

use super::{
    Hear, Heard, ModelError, ModelFault, Prompt, Reply,
    line::{LONGEST_ANSWER, Line, SettingsError},
    retry,
    secret::Secret,
    sse::{Event, Events},
    trouble::Failed,
};

/// How long what comes after the end of a streamed answer is waited for.
const LAST_BYTES: Duration = Duration::from_millis(100);

/// A provider's words.
pub(super) trait Dialect: Sync {
    /// Puts a streamed answer together.
    type Ear: Ear;

    /// Where questions go, after the base address.
    fn path(&self) -> &'static [&'static str];

    /// Shows who we are; none where the key cannot be sent.
    fn sign(&self, request: RequestBuilder, key: Option<&Secret>) -> Option<RequestBuilder>;

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
    fn hear(&mut self, event: &Event, key: Option<&Secret>, say: &mut (dyn FnMut(&str) + Send))
    -> Result<bool, Failed>;

    /// The whole reply; an error where its end did not come.
    fn reply(self) -> Result<Reply, Failed>;
}

/// Whether questions can be sent at all.
pub(super) fn check<D: Dialect>(dialect: &D, line: &Line) -> Result<(), SettingsError> {
    let http = line.http()?;
    dialect.sign(http.post(line.address(dialect.path())?), line.key.as_ref()).map(drop).ok_or(SettingsError::Key)
}

/// Asks, and asks again where that may help.
pub(super) async fn ask<D: Dialect>(
    dialect: &D,
    line: &Line,
    prompt: Prompt<'_>,
    hear: &Hear,
) -> Result<Reply, ModelError> {
    let ends = Instant::now() + prompt.time;
    let mut body = dialect.body(&prompt);
    let mut plain = line.plain.load(Ordering::Relaxed) && dialect.make_plain(&mut body);
    let mut retries = 0;
    loop {
        let bytes = serde_json::to_vec(&body).expect("a value is JSON");
        let mut heard = false;
        let left = ends.saturating_duration_since(Instant::now());
        let time = left.min(line.request_timeout);
        let tried = tokio::time::timeout(time, attempt(dialect, line, &prompt, bytes, hear, &mut heard));
        let failed = match tried.await {
            Ok(Ok(reply)) => {
                line.plain.fetch_or(plain, Ordering::Relaxed);
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
        let next = next(line, retries, &failed, left);
        let Some(wait) = next else { return Err(failed.error) };
        tracing::debug!(?wait, retries, status = failed.error.status, "the model is asked again: {}", failed.error);
        if heard {
            hear(Heard::Again);
        }
        tokio::time::sleep(wait).await;
        retries += 1;
    }
}

fn next(line: &Line, retries: u32, failed: &Failed, left: Duration) -> Option<Duration> {
    if !failed.again || retries >= line.retries {
        return None;
    }
    retry::wait(retries, line.first_wait, failed.wait, left, fastrand::f64())
}

async fn attempt<D: Dialect>(
    dialect: &D,
    line: &Line,
    prompt: &Prompt<'_>,
    body: Vec<u8>,
    hear: &Hear,
    heard: &mut bool,
) -> Result<Reply, Failed> {
    let wrong = |error: SettingsError| Failed::finally(ModelFault::Refused, error.to_string());
    let address = line.address(dialect.path()).map_err(wrong)?;
    let request = line.http().map_err(wrong)?.post(address).header(CONTENT_TYPE, "application/json").body(body);
    let request = dialect.sign(request, line.key.as_ref()).ok_or_else(|| wrong(SettingsError::Key))?;
    let request = traced(request, prompt.trace);
    let stream = prompt.stream;
    let answer = line.send(request).await?;
    let mut say = |text: &str| {
        if stream && !text.is_empty() {
            *heard = true;
            hear(Heard::Text(text));
        }
    };
    // Some servers do not stream, whatever they are asked.
    if stream && is_stream(&answer) {
        return listen(dialect, line, answer, &mut say).await;
    }
    let body = line.whole(answer).await?;
    let answer: Value = serde_json::from_slice(&body)
        .map_err(|_| Failed::for_now(ModelFault::Broken, "the model's answer is not JSON, or was cut off"))?;
    let reply = dialect.whole(&answer, line.key.as_ref())?;
    say(&reply.text);
    Ok(reply)
}

/// Says which trace the question belongs to.
fn traced(request: RequestBuilder, trace: Option<&TraceContext>) -> RequestBuilder {
    let Some(trace) = trace else { return request };
    let request = request.header("traceparent", trace.traceparent());
    // It came from outside: what cannot stand in a header stays behind.
    match trace.state.as_deref().map(HeaderValue::from_str) {
        Some(Ok(state)) => request.header("tracestate", state),
        _ => request,
    }
}

async fn listen<D: Dialect>(
    dialect: &D,
    line: &Line,
    mut answer: Response,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<Reply, Failed> {
    let (mut events, mut ear, mut room) = (Events::default(), dialect.ear(), LONGEST_ANSWER);
    let too_long = || Failed::finally(ModelFault::Broken, "the model's answer is too long");
    while let Some(piece) = line.piece(&mut answer).await? {
        room = room.checked_sub(piece.len()).ok_or_else(too_long)?;
        for event in events.feed(&piece).map_err(|_| too_long())? {
            if ear.hear(&event, line.key.as_ref(), say)? {
                // Read to its end the connection can be used again; nobody waits long for that.
                let rest = async { while let Ok(Some(_)) = line.piece(&mut answer).await {} };
                let _ = tokio::time::timeout(LAST_BYTES, rest).await;
                return ear.reply();
            }
        }
    }
    ear.reply()
}

fn is_stream(answer: &Response) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    !kind.trim_start().to_ascii_lowercase().starts_with("application/json")
}
