//! Reads responses of the MCP endpoint.
//!
//! In: a response. Out: its messages, from JSON or an event stream; or the error with which the request is answered.

use std::collections::VecDeque;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use toolhub_net::{
    Response, SseDecoder, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};

use super::errors::{INTERNAL_ERROR, INVALID_PARAMS};
use crate::failure::Failure;

/// Maximum length of a message of the server.
const MAX_RESPONSE: usize = 64 << 20;

/// How a request that was sent has ended.
pub(super) enum Reply {
    /// Its answer was passed on, or there is none.
    Passed,
    Refused(Refusal),
    /// Nothing was sent.
    Unsent(String),
    /// The server is gone, and may have handled it.
    Lost(String),
    /// The server does not answer at all; it may handle the request later.
    Silent(Failure),
}

/// The server refused a request.
pub(super) struct Refusal {
    /// The stable code of the problem; empty for an error of the protocol.
    pub(super) code: String,
    /// The JSON-RPC error.
    pub(super) error: Value,
}

impl Refusal {
    pub(super) fn read(status: StatusCode, body: &str) -> Self {
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        if body["error"].is_object() {
            return Self { code: String::new(), error: body["error"].clone() };
        }
        let code = body["code"].as_str().unwrap_or_default().to_owned();
        let detail = body["detail"].as_str().map_or_else(|| format!("the server answered {status}"), String::from);
        let hint = body["hint"].as_str().map(|hint| format!(" ({hint})")).unwrap_or_default();
        let error = json!({"code": INTERNAL_ERROR, "message": format!("{detail}{hint}"), "data": {"code": code}});
        Self { code, error }
    }
}

/// Whether a response is an event stream.
pub(super) fn is_event_stream(response: &Response) -> bool {
    let media = response.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    response.status.is_success() && media.starts_with(b"text/event-stream")
}

/// Reads the whole body.
///
/// # Errors
/// Why it cannot be read.
pub(super) async fn read_text(mut response: Response) -> Result<String, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_RESPONSE {
            return Err(format!("the response is longer than {MAX_RESPONSE} bytes"));
        }
    }
    String::from_utf8(body).map_err(|_| "the response is not UTF-8".into())
}

/// The messages of an event stream.
pub(super) struct EventMessages {
    response: Response,
    decoder: SseDecoder,
    decoded: VecDeque<String>,
}

impl EventMessages {
    pub(super) fn new(response: Response) -> Self {
        Self { response, decoder: SseDecoder::new(MAX_RESPONSE), decoded: VecDeque::new() }
    }

    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// Why the stream cannot be read.
    pub(super) async fn next(&mut self) -> Result<Option<String>, String> {
        loop {
            if let Some(message) = self.decoded.pop_front() {
                return Ok(Some(message));
            }
            let Some(chunk) = self.response.chunk().await.map_err(|error| error.to_string())? else { return Ok(None) };
            let events = self.decoder.feed(&chunk).map_err(|error| error.to_string())?;
            // An event without data only carries an id.
            self.decoded.extend(events.into_iter().map(|event| event.data).filter(|data| !data.is_empty()));
        }
    }
}

/// Whether a message of the server is the answer to a request.
pub(super) fn is_answer(message: &str, request: &Value) -> bool {
    #[derive(Deserialize)]
    struct AnswerHead {
        #[serde(default)]
        id: Option<Value>,
        #[serde(default)]
        method: Option<IgnoredAny>,
    }
    serde_json::from_str::<AnswerHead>(message)
        .is_ok_and(|head| head.method.is_none() && head.id.as_ref() == Some(request))
}

/// Whether an answer to a repeated call does not tell whether the call was carried out before: the new server does not know the tool
/// yet, or the call was cancelled when the old one stopped.
pub(super) fn is_inconclusive(answer: &str) -> bool {
    let answer: Value = serde_json::from_str(answer).unwrap_or_default();
    answer["error"]["code"] == INVALID_PARAMS || answer["result"]["_meta"]["dev.toolhub/code"] == "cancelled"
}

/// Whether an answer is a result.
pub(super) fn is_result(answer: &str) -> bool {
    serde_json::from_str::<Value>(answer).is_ok_and(|answer| answer.get("result").is_some())
}

/// The notifications that may have been missed before a subscription was accepted again, if the message says that it was.
pub(super) fn missed_changes(message: &str) -> Vec<String> {
    let message: Value = serde_json::from_str(message).unwrap_or_default();
    if message["method"] != "notifications/subscriptions/acknowledged" {
        return Vec::new();
    }
    let (accepted, meta) = (&message["params"]["notifications"], &message["params"]["_meta"]);
    let lists =
        [("toolsListChanged", "tools"), ("promptsListChanged", "prompts"), ("resourcesListChanged", "resources")];
    let lists = lists.into_iter().filter(|(member, _)| accepted[member] == true).map(|(_, list)| {
        json!({"jsonrpc": "2.0", "method": format!("notifications/{list}/list_changed"), "params": {"_meta": meta}})
    });
    let resources = accepted["resourceSubscriptions"].as_array().into_iter().flatten().map(|uri| {
        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri, "_meta": meta}})
    });
    lists.chain(resources).map(|notification| notification.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_error_with_what_to_do() {
        let problem = r#"{"code":"forbidden","detail":"this needs a scope","hint":"ask"}"#;
        let refusal = Refusal::read(StatusCode::FORBIDDEN, problem);
        assert_eq!(
            (refusal.code.as_str(), &refusal.error["message"]),
            ("forbidden", &json!("this needs a scope (ask)"))
        );
        let refusal = Refusal::read(StatusCode::BAD_REQUEST, r#"{"id":null,"error":{"code":-32020,"message":"no"}}"#);
        assert_eq!((refusal.code.as_str(), &refusal.error), ("", &json!({"code": -32020, "message": "no"})));
        let refusal = Refusal::read(StatusCode::BAD_GATEWAY, "<html>");
        assert_eq!(refusal.error["message"], "the server answered 502 Bad Gateway");
    }

    #[test]
    fn an_answer_has_the_id_of_its_request() {
        assert!(is_answer(r#"{"id":1,"result":{"method":"x"}}"#, &json!(1)));
        assert!(!is_answer(r#"{"id":1,"method":"elicitation/create"}"#, &json!(1)));
        assert!(!is_answer(r#"{"id":"1","result":{}}"#, &json!(1)));
    }
}
