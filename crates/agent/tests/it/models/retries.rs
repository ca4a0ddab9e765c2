//! Which requests are retried, how often, and the error when retries do not help. The mock server counts the requests.

use std::time::Duration;

use serde_json::{Value, json};
use toolhub_agent::{Message, ModelError, ModelFault, Prompt};

use super::{CannedResponse, KEY, MockServer, anthropic, ask, hello_messages, openai, prompt, streamed_prompt};

fn ok_response() -> CannedResponse {
    CannedResponse::json(200, "", &json!({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}))
}

fn error_response(status: u16, headers: &str, message: &str) -> CannedResponse {
    CannedResponse::json(status, headers, &json!({"error": {"message": message, "type": "some_error"}}))
}

/// The result of a request after these responses, and the number of attempts.
async fn ask_after(answers: Vec<CannedResponse>) -> (Result<String, ModelError>, usize) {
    let server = MockServer::start(answers).await;
    let (reply, _) = ask(&openai(&server), prompt(&hello_messages())).await;
    (reply.map(|reply| reply.text), server.requests().len())
}

#[tokio::test]
async fn what_may_heal_is_asked_again() {
    for first in [
        error_response(429, "retry-after: 0\r\n", "slow down"),
        error_response(429, "retry-after-ms: 1\r\n", "slow down"),
        error_response(500, "", "oops"),
        error_response(503, "retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "busy"),
        error_response(529, "", "overloaded"),
        error_response(409, "x-should-retry: true\r\n", "locked"),
        CannedResponse::HangUp,
        CannedResponse::body(200, "content-type: application/json\r\n", "{\"choices\": ["),
        CannedResponse::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"choices\"".to_vec()),
        CannedResponse::json(200, "", &json!({"error": {"message": "upstream failed", "code": 502}})),
    ] {
        let response = format!("{first:?}");
        let (reply, attempts) = ask_after(vec![first, ok_response()]).await;
        assert_eq!((reply, attempts), (Ok("fine".into()), 2), "{response}");
    }
}

#[tokio::test]
async fn what_cannot_heal_is_said_at_once() {
    for first in [
        error_response(400, "", "This model's window is 8 tokens."),
        error_response(401, "", "no"),
        error_response(404, "", "no such model"),
        error_response(500, "x-should-retry: false\r\n", "never"),
        CannedResponse::json(429, "", &json!({"error": {"code": "insufficient_quota", "message": "pay first"}})),
        CannedResponse::body(302, "location: http://127.0.0.1:1/\r\n", ""),
    ] {
        let response = format!("{first:?}");
        let (reply, attempts) = ask_after(vec![first, ok_response()]).await;
        assert!(reply.is_err() && attempts == 1, "{response}: {reply:?}, {attempts} attempts");
    }
    let (reply, _) = ask_after(vec![error_response(400, "", "This model's window is 8 tokens.")]).await;
    let error = reply.unwrap_err();
    assert_eq!((error.fault, error.status), (ModelFault::Refused, Some(400)));
    assert_eq!(error.message, "the model provider returned 400: This model's window is 8 tokens.");
}

#[tokio::test]
async fn it_gives_up_after_so_many_tries_and_says_the_last_reason() {
    let server = MockServer::start((0..9).map(|_| error_response(503, "retry-after: 0\r\n", "busy"))).await;
    let (reply, _) = ask(&openai(&server).retries(2), prompt(&hello_messages())).await;
    let error = reply.unwrap_err();
    assert_eq!((error.fault, error.status, server.requests().len()), (ModelFault::Failed, Some(503), 3));
    assert!(error.message.ends_with("503: busy"), "{error}");
}

#[tokio::test]
async fn nobody_waits_longer_than_there_is_time() {
    // A delay of an hour exceeds the time limit: there is no retry, and the error is that of the response.
    let server = MockServer::start([error_response(429, "retry-after: 3600\r\n", "slow down"), ok_response()]).await;
    let (reply, _) = ask(&openai(&server), prompt(&hello_messages())).await;
    assert_eq!((reply.unwrap_err().fault, server.requests().len()), (ModelFault::RateLimited, 1));
    // A server that accepts the request and never responds.
    let server = MockServer::start([CannedResponse::Stall(vec![]), CannedResponse::Stall(vec![])]).await;
    let messages = hello_messages();
    let short = Prompt { timeout: Duration::from_millis(50), ..streamed_prompt(&messages) };
    let (reply, _) = ask(&openai(&server), short).await;
    let error = reply.unwrap_err();
    assert_eq!(error.fault, ModelFault::Timeout);
    // The error has the remaining time in whole milliseconds.
    let millis =
        error.message.strip_prefix("the model did not answer within ").and_then(|time| time.strip_suffix("ms"));
    assert!(millis.is_some_and(|millis| millis.parse::<u64>().is_ok()), "{error}");
}

#[tokio::test]
async fn a_silent_answer_is_given_up_and_asked_for_again() {
    let partial = b"data: {\"choices\": [{\"delta\": {\"content\": \"On\"}}]}\n\n".to_vec();
    let server =
        MockServer::start([CannedResponse::Stall(vec![partial]), CannedResponse::Stall(vec![]), ok_response()]).await;
    let model = openai(&server).idle_timeout(Duration::from_millis(50));
    let (reply, streamed_text) = ask(&model, streamed_prompt(&hello_messages())).await;
    assert_eq!((reply.unwrap().text.as_str(), streamed_text.as_str()), ("fine", "On⟲fine"));
    assert_eq!(server.requests().len(), 3);
    // Each attempt has its own timeout.
    let server = MockServer::start([CannedResponse::Stall(vec![]), ok_response()]).await;
    let model = openai(&server).request_timeout(Duration::from_millis(50));
    assert_eq!(ask(&model, prompt(&hello_messages())).await.0.unwrap().text, "fine");
}

#[tokio::test]
async fn a_stream_that_is_cut_off_begins_anew_and_listeners_hear_of_it() {
    let piece = |text: &str| format!("data: {}\n\n", json!({"choices": [{"delta": {"content": text}}]}));
    let whole = format!("{}{}data: [DONE]\n\n", piece("One "), piece("two."));
    let cut = CannedResponse::events(&piece("On"));
    let truncated = CannedResponse::Bytes(
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\n{}", piece("One t"))
            .into(),
    );
    let without_text = CannedResponse::events(": keep-alive\n\n");
    let server = MockServer::start([cut, truncated, without_text, CannedResponse::events(&whole)]).await;
    let (reply, streamed_text) = ask(&openai(&server), streamed_prompt(&hello_messages())).await;
    assert_eq!((reply.unwrap().text.as_str(), streamed_text.as_str()), ("One two.", "On⟲One t⟲One two."));
    assert_eq!(server.requests().len(), 4);
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.body == requests[0].body), "the same request each time");
}

#[tokio::test]
async fn anthropics_own_errors_are_told_apart() {
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "Overloaded"}});
    let fine = CannedResponse::json(
        200,
        "",
        &json!({"content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"}),
    );
    let aborted = CannedResponse::events(&format!("event: error\ndata: {}\n\n", error("overloaded_error")));
    let server = MockServer::start([CannedResponse::json(529, "", &error("overloaded_error")), aborted, fine]).await;
    let (reply, _) = ask(&anthropic(&server), streamed_prompt(&hello_messages())).await;
    assert_eq!((reply.unwrap().text.as_str(), server.requests().len()), ("fine", 3));
}

#[tokio::test]
async fn nobody_at_the_address_is_said_without_the_rest_of_it() {
    let server = MockServer::start([]).await;
    // Its listener closes as soon as its task has run; until then a connection is accepted and closed without a
    // response.
    let (reply, _) = ask(&openai(&server).retries(1), prompt(&hello_messages())).await;
    let error = reply.unwrap_err();
    assert_eq!((error.fault, error.status), (ModelFault::Unreachable, None));
    assert!(error.message.contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn no_error_holds_a_key_or_the_conversation() {
    let messages = [Message::User { content: "my diary".into() }];
    let echo = |status: u16| {
        error_response(status, "", &format!("Incorrect API key provided: {KEY}. Header was 'Bearer {KEY}'."))
    };
    let half = &KEY[..12];
    let answers = [
        echo(401),
        echo(500),
        error_response(403, "", &format!("key {half}… is not allowed\r\nset-cookie: x")),
        CannedResponse::body(401, "", KEY),
        CannedResponse::json(200, "", &json!({"error": {"message": KEY, "code": 400}})),
        CannedResponse::events(&format!("data: {}\n\n", json!({"error": {"message": KEY, "code": 400}}))),
        CannedResponse::body(200, "content-type: application/json\r\n", &format!("\"{KEY}\"")),
        CannedResponse::HangUp,
    ];
    for answer in answers {
        let response = format!("{answer:?}");
        let server = MockServer::start([answer]).await;
        let model = openai(&server).retries(0);
        let (reply, _) = ask(&model, streamed_prompt(&messages)).await;
        let error = reply.unwrap_err();
        let shown = format!("{error} {error:?} {model:?}");
        assert!(
            !shown.contains("very-secret") && !shown.contains(half) && !shown.contains("diary"),
            "{response}: {shown}"
        );
        assert!(!error.message.contains(['\r', '\n']), "{error}");
        let requests: Vec<Value> = server.requests().into_iter().map(|requests| requests.body).collect();
        assert!(!requests.iter().any(|body| body.to_string().contains(KEY)));
    }
}

#[tokio::test]
async fn a_server_that_refuses_a_word_it_does_not_know_is_asked_without_it() {
    let unknown = json!({"message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"]}]}});
    let text_stream =
        || CannedResponse::events("data: {\"choices\": [{\"delta\": {\"content\": \"hi\"}}]}\n\ndata: [DONE]\n\n");
    let server =
        MockServer::start([CannedResponse::json(422, "", &unknown), text_stream(), ok_response(), text_stream()]).await;
    let (model, messages) = (openai(&server).retries(0), hello_messages());
    assert_eq!(ask(&model, streamed_prompt(&messages)).await.0.unwrap().text, "hi");
    ask(&model, prompt(&messages)).await.0.unwrap();
    assert_eq!(ask(&model, streamed_prompt(&messages)).await.0.unwrap().text, "hi");
    // The client remembers it after the first rejection.
    let has_options = |request: &super::server::ReceivedRequest| request.body.get("stream_options").is_some();
    assert_eq!(server.requests().iter().map(has_options).collect::<Vec<_>>(), [true, false, false, false]);
    // A rejection for another reason is returned, and the field is sent again next time.
    let long = || CannedResponse::json(400, "", &json!({"error": {"message": "too long"}}));
    let server = MockServer::start([long(), long(), text_stream()]).await;
    let model = openai(&server).retries(3);
    let refused = ask(&model, streamed_prompt(&messages)).await.0.unwrap_err();
    assert!(refused.message.contains("too long"), "{refused}");
    ask(&model, streamed_prompt(&messages)).await.0.unwrap();
    assert_eq!(server.requests().iter().map(has_options).collect::<Vec<_>>(), [true, false, true]);
}
