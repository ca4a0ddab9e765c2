//! What is asked again, how often, and what is said when it did not help. The server counts.

use std::time::Duration;

use serde_json::{Value, json};
use toolhub_agent::{Message, ModelError, ModelFault, Prompt};

use super::{Answer, KEY, Server, anthropic, ask, hello, openai, prompt, streamed};

fn fine() -> Answer {
    Answer::json(200, "", &json!({"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]}))
}

fn error(status: u16, headers: &str, message: &str) -> Answer {
    Answer::json(status, headers, &json!({"error": {"message": message, "type": "some_error"}}))
}

/// How a question ends after these answers, and how often it was asked.
async fn after(answers: Vec<Answer>) -> (Result<String, ModelError>, usize) {
    let server = Server::start(answers).await;
    let (reply, _) = ask(&openai(&server), prompt(&hello())).await;
    (reply.map(|reply| reply.text), server.asked().len())
}

#[tokio::test]
async fn what_may_heal_is_asked_again() {
    for first in [
        error(429, "retry-after: 0\r\n", "slow down"),
        error(429, "retry-after-ms: 1\r\n", "slow down"),
        error(500, "", "oops"),
        error(503, "retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "busy"),
        error(529, "", "overloaded"),
        error(409, "x-should-retry: true\r\n", "locked"),
        Answer::HangUp,
        Answer::body(200, "content-type: application/json\r\n", "{\"choices\": ["),
        Answer::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"choices\"".to_vec()),
        Answer::json(200, "", &json!({"error": {"message": "upstream fell over", "code": 502}})),
    ] {
        let said = format!("{first:?}");
        let (reply, asked) = after(vec![first, fine()]).await;
        assert_eq!((reply, asked), (Ok("fine".into()), 2), "{said}");
    }
}

#[tokio::test]
async fn what_cannot_heal_is_said_at_once() {
    for first in [
        error(400, "", "This model's window is 8 tokens."),
        error(401, "", "no"),
        error(404, "", "no such model"),
        error(500, "x-should-retry: false\r\n", "never"),
        Answer::json(429, "", &json!({"error": {"code": "insufficient_quota", "message": "pay first"}})),
        Answer::body(302, "location: http://127.0.0.1:1/\r\n", ""),
    ] {
        let said = format!("{first:?}");
        let (reply, asked) = after(vec![first, fine()]).await;
        assert!(reply.is_err() && asked == 1, "{said}: {reply:?}, asked {asked} times");
    }
    let (reply, _) = after(vec![error(400, "", "This model's window is 8 tokens.")]).await;
    let error = reply.unwrap_err();
    assert_eq!((error.fault, error.status), (ModelFault::Refused, Some(400)));
    assert_eq!(error.message, "the model's provider answers 400: This model's window is 8 tokens.");
}

#[tokio::test]
async fn it_gives_up_after_so_many_tries_and_says_the_last_reason() {
    let server = Server::start((0..9).map(|_| error(503, "retry-after: 0\r\n", "busy"))).await;
    let (reply, _) = ask(&openai(&server).retries(2), prompt(&hello())).await;
    let error = reply.unwrap_err();
    assert_eq!((error.fault, error.status, server.asked().len()), (ModelFault::Failed, Some(503), 3));
    assert!(error.message.ends_with("503: busy"), "{error}");
}

#[tokio::test]
async fn nobody_waits_longer_than_there_is_time() {
    // An hour would be too late: it is not waited for, and the reason is the one that was told.
    let server = Server::start([error(429, "retry-after: 3600\r\n", "slow down"), fine()]).await;
    let (reply, _) = ask(&openai(&server), prompt(&hello())).await;
    assert_eq!((reply.unwrap_err().fault, server.asked().len()), (ModelFault::RateLimited, 1));
    // A server that takes the question and says nothing.
    let server = Server::start([Answer::Silent(vec![]), Answer::Silent(vec![])]).await;
    let messages = hello();
    let short = Prompt { time: Duration::from_millis(50), ..streamed(&messages) };
    let (reply, _) = ask(&openai(&server), short).await;
    let error = reply.unwrap_err();
    assert_eq!(error.fault, ModelFault::Timeout);
    // What was left of the time is told in whole milliseconds.
    let told = error.message.strip_prefix("the model did not answer within ").and_then(|told| told.strip_suffix("ms"));
    assert!(told.is_some_and(|told| told.parse::<u64>().is_ok()), "{error}");
}

#[tokio::test]
async fn a_silent_answer_is_given_up_and_asked_for_again() {
    let begun = b"data: {\"choices\": [{\"delta\": {\"content\": \"On\"}}]}\n\n".to_vec();
    let server = Server::start([Answer::Silent(vec![begun]), Answer::Silent(vec![]), fine()]).await;
    let model = openai(&server).idle_timeout(Duration::from_millis(50));
    let (reply, heard) = ask(&model, streamed(&hello())).await;
    assert_eq!((reply.unwrap().text.as_str(), heard.as_str()), ("fine", "On⟲fine"));
    assert_eq!(server.asked().len(), 3);
    // One try has its own time.
    let server = Server::start([Answer::Silent(vec![]), fine()]).await;
    let model = openai(&server).request_timeout(Duration::from_millis(50));
    assert_eq!(ask(&model, prompt(&hello())).await.0.unwrap().text, "fine");
}

#[tokio::test]
async fn a_stream_that_is_cut_off_begins_anew_and_listeners_hear_of_it() {
    let piece = |text: &str| format!("data: {}\n\n", json!({"choices": [{"delta": {"content": text}}]}));
    let whole = format!("{}{}data: [DONE]\n\n", piece("One "), piece("two."));
    let cut = Answer::events(&piece("On"));
    let torn = Answer::Bytes(
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\n{}", piece("One t"))
            .into(),
    );
    let unheard = Answer::events(": keep-alive\n\n");
    let server = Server::start([cut, torn, unheard, Answer::events(&whole)]).await;
    let (reply, heard) = ask(&openai(&server), streamed(&hello())).await;
    assert_eq!((reply.unwrap().text.as_str(), heard.as_str()), ("One two.", "On⟲One t⟲One two."));
    assert_eq!(server.asked().len(), 4);
    let asked = server.asked();
    assert!(asked.iter().all(|one| one.body == asked[0].body), "the same question each time");
}

#[tokio::test]
async fn anthropics_own_errors_are_told_apart() {
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "Overloaded"}});
    let fine =
        Answer::json(200, "", &json!({"content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"}));
    let broken_off = Answer::events(&format!("event: error\ndata: {}\n\n", error("overloaded_error")));
    let server = Server::start([Answer::json(529, "", &error("overloaded_error")), broken_off, fine]).await;
    let (reply, _) = ask(&anthropic(&server), streamed(&hello())).await;
    assert_eq!((reply.unwrap().text.as_str(), server.asked().len()), ("fine", 3));
}

#[tokio::test]
async fn nobody_at_the_address_is_said_without_the_rest_of_it() {
    let server = Server::start([]).await;
    // Its listener is gone as soon as its task has run; until then a connection is made and closed, which is no answer either.
    let (reply, _) = ask(&openai(&server).retries(1), prompt(&hello())).await;
    let error = reply.unwrap_err();
    assert_eq!((error.fault, error.status), (ModelFault::Unreachable, None));
    assert!(error.message.contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn no_error_holds_a_key_or_the_conversation() {
    let messages = [Message::User { content: "my diary".into() }];
    let echo =
        |status: u16| error(status, "", &format!("Incorrect API key provided: {KEY}. Header was 'Bearer {KEY}'."));
    let half = &KEY[..12];
    let answers = [
        echo(401),
        echo(500),
        error(403, "", &format!("key {half}… is not allowed\r\nset-cookie: x")),
        Answer::body(401, "", KEY),
        Answer::json(200, "", &json!({"error": {"message": KEY, "code": 400}})),
        Answer::events(&format!("data: {}\n\n", json!({"error": {"message": KEY, "code": 400}}))),
        Answer::body(200, "content-type: application/json\r\n", &format!("\"{KEY}\"")),
        Answer::HangUp,
    ];
    for answer in answers {
        let said = format!("{answer:?}");
        let server = Server::start([answer]).await;
        let model = openai(&server).retries(0);
        let (reply, _) = ask(&model, streamed(&messages)).await;
        let error = reply.unwrap_err();
        let shown = format!("{error} {error:?} {model:?}");
        assert!(!shown.contains("very-secret") && !shown.contains(half) && !shown.contains("diary"), "{said}: {shown}");
        assert!(!error.message.contains(['\r', '\n']), "{error}");
        let asked: Vec<Value> = server.asked().into_iter().map(|asked| asked.body).collect();
        assert!(!asked.iter().any(|body| body.to_string().contains(KEY)));
    }
}

#[tokio::test]
async fn a_server_that_refuses_a_word_it_does_not_know_is_asked_without_it() {
    let unknown = json!({"message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"]}]}});
    let spoken = || Answer::events("data: {\"choices\": [{\"delta\": {\"content\": \"hi\"}}]}\n\ndata: [DONE]\n\n");
    let server = Server::start([Answer::json(422, "", &unknown), spoken(), fine(), spoken()]).await;
    let (model, messages) = (openai(&server).retries(0), hello());
    assert_eq!(ask(&model, streamed(&messages)).await.0.unwrap().text, "hi");
    ask(&model, prompt(&messages)).await.0.unwrap();
    assert_eq!(ask(&model, streamed(&messages)).await.0.unwrap().text, "hi");
    // It is found out once.
    let told = |asked: &super::server::Asked| asked.body.get("stream_options").is_some();
    assert_eq!(server.asked().iter().map(told).collect::<Vec<_>>(), [true, false, false, false]);
    // What is refused for another reason is said, and nothing is learnt from it.
    let long = || Answer::json(400, "", &json!({"error": {"message": "too long"}}));
    let server = Server::start([long(), long(), spoken()]).await;
    let model = openai(&server).retries(3);
    let refused = ask(&model, streamed(&messages)).await.0.unwrap_err();
    assert!(refused.message.contains("too long"), "{refused}");
    ask(&model, streamed(&messages)).await.0.unwrap();
    assert_eq!(server.asked().iter().map(told).collect::<Vec<_>>(), [true, false, true]);
}
