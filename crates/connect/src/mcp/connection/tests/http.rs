//! Connections to addresses: `tests/mcp_servers/http_server.py` speaks both eras, and does wrong what its arguments and tools say.

use std::process::Stdio;

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command as Program},
};

use super::*;
use crate::{
    mcp::{
        connect_error::ConnectError,
        connections::Connections,
        error,
        server::McpServer,
        wire::{EndCause, HttpFailure, Unsent},
    },
    rest::{Auth, Rest, Secret, Upstreams},
};

/// A server in a process of its own, which is killed when this is dropped.
struct HttpServer {
    port: u16,
    process: Child,
}

impl HttpServer {
    async fn start(flags: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp_servers/http_server.py");
        let mut program = Program::new("python3");
        let mut process =
            program.arg(script).args(flags).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("python3 runs");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).await.unwrap();
        Self { port: line.trim().parse().unwrap(), process }
    }

    async fn stop(mut self) {
        self.process.kill().await.unwrap();
    }

    fn rest(&self) -> Rest {
        let url = format!("http://127.0.0.1:{}/mcp", self.port);
        Rest::post(url).allow_host("127.0.0.1").upstreams(&Upstreams::new())
    }

    async fn open(&self, era: Era) -> Result<Connection, ConnectError> {
        Connection::open(&Endpoint::Http(Box::new(self.rest())), era, &options()).await
    }

    async fn connect(&self, era: Era) -> Connection {
        self.open(era).await.unwrap_or_else(|error| panic!("{error}"))
    }
}

async fn refusal(endpoint: Rest, era: Era) -> ConnectError {
    match Connection::open(&Endpoint::Http(Box::new(endpoint)), era, &options()).await {
        Ok(_) => panic!("connected"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn both_eras_connect_list_and_call_with_their_headers() {
    let server = HttpServer::start(&["no-get"]).await;
    for era in [Era::Legacy, Era::Modern] {
        let connection = server.connect(era).await;
        assert_eq!(connection.facts().era, era);
        connection.probe().await.unwrap();
        let list: Value = serde_json::from_str(&connection.list_page(ListKind::Tools, None).await.unwrap()).unwrap();
        assert_eq!(list["tools"][1], json!({"name": "odd"}));
        let headers: Value = serde_json::from_str(&text(&connection, "echo", json!({"city": "Ulm"})).await).unwrap();
        let modern = |value: &str| if era == Era::Modern { json!(value) } else { Value::Null };
        assert_eq!(headers["mcp-session-id"], if era == Era::Legacy { json!("session-1") } else { Value::Null });
        assert_eq!(headers["mcp-method"], modern("tools/call"));
        assert_eq!(headers["mcp-name"], modern("echo"));
        assert_eq!(headers["mcp-param-city"], modern("Ulm"));
        assert_eq!(headers["mcp-protocol-version"], if era == Era::Modern { "2026-07-28" } else { "2025-11-25" });
        connection.close().await;
    }
    let connection = server.connect(Era::Modern).await;
    assert!(text(&connection, "report", json!({"until": "deleted session-1"})).await.contains("deleted session-1"));
}

#[tokio::test]
async fn a_handshake_may_be_a_stream_and_a_legacy_server_refuses_discover_without_json_too() {
    for flags in [&["legacy", "stream-handshake"], &["legacy-json", "stream-handshake"]] {
        let server = HttpServer::start(flags).await;
        let error = server.open(Era::Modern).await.err().expect("it is a legacy server");
        assert!(matches!(error, ConnectError::Refused(_)) && error.suggests_legacy(), "{error}");
        let connection = server.connect(Era::Legacy).await;
        // The stream of the session reports changes; its question belongs to no call and is declined.
        connection.list_changes().wait_for(|changes| changes.tools > 0).await.unwrap();
        connection.probe().await.unwrap();
    }
}

#[tokio::test]
async fn updates_and_questions_of_concurrent_calls_are_never_mixed_up() {
    let server = HttpServer::start(&[]).await;
    let connection = server.connect(Era::Legacy).await;
    // A question on the stream of the session belongs to the only call, which cannot answer it.
    let report = text(&connection, "report", json!({"until": "reply to lost"})).await;
    assert!(report.contains("reply to lost"), "{report}");
    let calls = (0..16).map(async |number: usize| {
        let who = format!("caller {number}");
        let (sender, mut receiver) = updates(ALL);
        let tool = if number.is_multiple_of(2) { "work" } else { "elicit" };
        let call = connection.call(call(tool, json!({"who": who}), sender));
        let reading = async {
            let mut seen = Vec::new();
            while let Some(update) = receiver.next().await {
                match update {
                    Update::Progress { done, .. } => seen.push(done.to_string()),
                    Update::Log { text, .. } => seen.push(text),
                    Update::Question(question) => {
                        assert_eq!(question.kind, InputKind::Form);
                        assert_eq!(question.params, format!(r#"{{"message": "{who}"}}"#));
                        question.answer(&json!({"action": "accept", "content": {"who": who}}));
                    }
                    Update::DeclinedQuestion(kind) => panic!("{kind:?} was declined"),
                }
            }
            seen
        };
        let (result, seen) = tokio::join!(call, reading);
        let result = content_text(&result.unwrap());
        if tool == "work" {
            assert_eq!(
                (result.as_str(), seen),
                ("done", vec!["1".into(), "2".into(), "3".into(), format!("of {who}")])
            );
        } else {
            assert_eq!(serde_json::from_str::<Value>(&result).unwrap()["content"]["who"], json!(who));
        }
    });
    futures_util::future::join_all(calls).await;
    assert_eq!(connection.in_flight(), 0);
}

#[tokio::test]
async fn a_bad_response_fails_its_own_request_and_no_other() {
    let server = HttpServer::start(&["no-get"]).await;
    let connection = server.connect(Era::Legacy).await;
    for (tool, expected) in [
        ("accepted", "no answer"),
        ("html", "neither JSON nor an event stream"),
        ("junk", "it is not JSON"),
        ("junk_event", "not JSON"),
        ("both", "both a result and an error"),
        ("both_event", "both a result and an error"),
        ("doubled_id", "doubled"),
        ("doubled_id_event", "doubled"),
        ("twice", "not JSON-RPC"),
        ("wrong_id", "another request"),
        ("wrong_id_event", "another request"),
        ("huge", "more than 1048576 bytes"),
        ("huge_event", "more than 1048576 bytes"),
    ] {
        let failed = result(&connection, tool, json!({})).await;
        let Err(RequestError::Invalid(violation)) = failed else { panic!("{tool}: {failed:?}") };
        assert!(violation.to_string().contains(expected), "{tool}: {violation}");
    }
    let early = result(&connection, "end_early", json!({})).await;
    assert!(
        matches!(&early, Err(RequestError::Lost(end)) if matches!(end.cause, EndCause::ResponseEnded)),
        "{early:?}"
    );
    let broken = result(&connection, "broken", json!({})).await;
    assert!(matches!(broken, Err(RequestError::Http(HttpFailure::Request { sent: true, .. }))), "{broken:?}");
    assert!(!connection.has_ended());
    assert_eq!(connection.in_flight(), 0);
    assert_eq!(text(&connection, "resume", json!({})).await, "resumed");
    // Only the first of two answers on a stream counts.
    assert_eq!(text(&connection, "twice_event", json!({})).await, "first");
    assert_eq!(text(&connection, "resume", json!({})).await, "resumed");
}

#[tokio::test]
async fn a_question_with_the_id_of_an_open_one_fails_its_call_and_no_other() {
    let server = HttpServer::start(&["no-get"]).await;
    let connection = server.connect(Era::Legacy).await;
    let (sender, mut receiver) = updates(ALL);
    let asking = connection.call(call("same_question", json!({}), sender));
    let (failed, question) = tokio::join!(asking, receiver.next());
    let Err(RequestError::Invalid(violation)) = failed else { panic!("{failed:?}") };
    assert!(violation.to_string().contains("the id of a request again"), "{violation}");
    assert!(matches!(question, Some(Update::Question(_))), "{question:?}");
    assert_eq!(text(&connection, "resume", json!({})).await, "resumed");
}

#[tokio::test]
async fn a_server_that_asks_to_be_resumed_at_once_is_asked_once_a_second() {
    let server = HttpServer::start(&["no-get"]).await;
    let connection = server.connect(Era::Legacy).await;
    let start = tokio::time::Instant::now();
    let endless = connection.call(call("resume_at_once", json!({}), updates(AcceptedInput::default()).0));
    let observed = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let resumed = text(&connection, "report", json!({})).await.matches("resumed again-").count();
            if resumed >= 2 {
                return (resumed, start.elapsed());
            }
        }
    };
    tokio::select! {
        _ = endless => panic!("the call has no answer"),
        (resumed, elapsed) = observed => {
            assert!(resumed as u64 <= elapsed.as_secs(), "resumed {resumed} times within {elapsed:?}");
        }
    }
}

#[tokio::test]
async fn streams_with_the_same_event_id_are_resumed_apart() {
    let server = HttpServer::start(&["no-get"]).await;
    let connection = server.connect(Era::Legacy).await;
    let (resumed, held) =
        tokio::join!(text(&connection, "resume_same_id", json!({})), text(&connection, "hold_same_id", json!({})));
    assert_eq!((resumed.as_str(), held.as_str()), ("resumed", "held"));
}

#[tokio::test]
async fn an_error_may_contain_a_cut_character() {
    let server = HttpServer::start(&["no-get"]).await;
    let connection = server.connect(Era::Legacy).await;
    for status in [200, 400] {
        let failed = result(&connection, "lone_surrogate", json!({"status": status})).await;
        assert!(
            matches!(&failed, Err(RequestError::Refused(failure)) if failure.message == "cut \u{fffd} here"),
            "{failed:?}"
        );
    }
}

#[tokio::test]
async fn a_busy_server_keeps_its_session_and_is_asked_again_when_it_says() {
    let server = HttpServer::start(&["no-get", "busy-json"]).await;
    let settings = McpServer::from_request("t", server.rest());
    let connections = Connections::new(&settings, LogRing::new(Arc::new(SystemClock)));
    let connection = Arc::new(connections.open(Era::Legacy).await.unwrap_or_else(|error| panic!("{error}")));
    connections.set_own(connection.clone());
    text(&connection, "get_busy", json!({})).await;
    for _ in 0..2 {
        assert!(!connections.is_healthy().await && !connection.has_ended());
    }
    let report = text(&connection, "report", json!({})).await;
    assert_eq!((report.matches("busy ping").count(), report.matches("busy tools/list").count()), (1, 0), "{report}");
    // Not for ever.
    for _ in 0..4 {
        assert!(!connection.has_ended());
        pass(Duration::from_secs(8)).await;
        assert!(!connections.is_healthy().await);
    }
    assert!(matches!(connection.ended().await.cause, EndCause::Unresponsive));

    for flags in [&["busy"][..], &["busy", "busy-json"], &["busy-initialized"]] {
        let server = HttpServer::start(flags).await;
        for era in [Era::Legacy, Era::Modern].into_iter().take(if flags.contains(&"busy") { 2 } else { 1 }) {
            let error = refusal(server.rest(), era).await;
            assert!(!error.suggests_legacy() && !error.suggests_modern(), "{flags:?}: {error}");
            assert_eq!(error.retry_after(), Some(Duration::from_secs(7)), "{flags:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_call_of_a_busy_server_may_be_repeated_and_counts_for_nothing() {
    for flags in [&["no-get"][..], &["no-get", "busy-json"]] {
        let server = HttpServer::start(flags).await;
        let connection = server.connect(Era::Legacy).await;
        for status in [429, 503] {
            let failed = result(&connection, "be_busy", json!({"status": status})).await.unwrap_err();
            assert!(failed.is_busy(), "{flags:?}: {failed:?}");
            let error = error::request_error(failed, false);
            assert_eq!((error.counts(), error.retry_after), (false, Some(Duration::from_secs(7))), "{error}");
        }
    }
}

#[tokio::test]
async fn a_server_too_busy_for_the_stream_of_a_session_is_asked_again() {
    let server = HttpServer::start(&["busy-get"]).await;
    let connection = server.connect(Era::Legacy).await;
    connection.list_changes().wait_for(|changes| changes.tools > 0).await.unwrap();
}

#[tokio::test]
async fn a_stream_of_a_session_with_a_message_that_is_too_long_may_have_lost_changes() {
    let server = HttpServer::start(&["huge-get"]).await;
    let connection = server.connect(Era::Legacy).await;
    connection.list_changes().wait_for(|changes| changes.prompts > 0).await.unwrap();
    assert!(text(&connection, "echo", json!({})).await.contains("session-1"));
}

#[tokio::test]
async fn a_stream_that_breaks_again_and_again_is_opened_twice_a_second_at_most() {
    let server = HttpServer::start(&["broken-get"]).await;
    let connection = server.connect(Era::Legacy).await;
    let start = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_millis(1_700)).await;
    let opened = text(&connection, "report", json!({"until": "broke a stream"})).await.matches("broke").count();
    let most = 1 + start.elapsed().as_millis() / 500;
    assert!(opened as u128 <= most, "opened {opened} times within {:?}", start.elapsed());
}

#[tokio::test]
async fn refusals_keep_their_meaning() {
    let server = HttpServer::start(&["no-get"]).await;
    let connection = server.connect(Era::Legacy).await;
    for status in [200, 400, 500] {
        let failed = result(&connection, "fail", json!({"status": status})).await;
        assert!(matches!(&failed, Err(RequestError::Refused(failure)) if failure.code == -32602), "{failed:?}");
    }
    for (status, kind) in [(500, "upstream_error"), (429, "tool_error"), (418, "tool_error")] {
        let failed = result(&connection, "status", json!({"status": status})).await.unwrap_err();
        let error = error::request_error(failed, false);
        assert_eq!(error.kind.name(), kind, "{error}");
        assert_eq!(error.retry_after.is_some(), status != 418, "{error}");
    }
    let elsewhere = json!({"status": 307, "location": "https://elsewhere.example/mcp"});
    let failed = result(&connection, "status", elsewhere).await.unwrap_err();
    let error = error::request_error(failed, false);
    assert!(error.to_string().contains("https://elsewhere.example/mcp"), "{error}");
}

#[tokio::test]
async fn a_cancelled_call_closes_its_stream() {
    for era in [Era::Legacy, Era::Modern] {
        let server = HttpServer::start(&["no-get"]).await;
        let connection = server.connect(era).await;
        {
            let waiting = connection.call(call("wait", json!({}), updates(AcceptedInput::default()).0));
            tokio::select! {
                biased;
                _ = waiting => panic!("the call waits"),
                _ = text(&connection, "report", json!({"until": "waiting"})) => {}
            }
        }
        let report = text(&connection, "report", json!({"until": "closed"})).await;
        assert!(report.contains("closed"), "{report}");
        // `initialize` or `server/discover` is 0.
        assert_eq!(report.contains("notifications/cancelled 1"), era == Era::Legacy, "{report}");
        wait_for("nothing in flight", || (connection.in_flight() == 0).then_some(())).await;
    }
}

#[tokio::test]
async fn a_subscription_reports_changes() {
    let server = HttpServer::start(&[]).await;
    let connection = server.connect(Era::Modern).await;
    let _subscription = connection.listen(&TOOL_CHANGES).await.unwrap();
    connection.list_changes().wait_for(|changes| changes.tools > 0).await.unwrap();
}

#[tokio::test]
async fn a_server_without_a_route_for_streams_keeps_its_session() {
    let server = HttpServer::start(&["no-get-route"]).await;
    let connection = server.connect(Era::Legacy).await;
    text(&connection, "report", json!({"until": "no such route"})).await;
    assert!(text(&connection, "echo", json!({})).await.contains("session-1"));
    assert!(!connection.has_ended());
}

#[tokio::test]
async fn an_expired_session_ends_the_connection_without_sending_anything_twice() {
    let server = HttpServer::start(&["no-get"]).await;
    let connection = server.connect(Era::Legacy).await;
    // Otherwise the request for the stream may be the first to learn that the session has expired.
    text(&connection, "report", json!({"until": "refused a stream"})).await;
    assert_eq!(text(&connection, "expire", json!({})).await, "expired");
    let failed = result(&connection, "echo", json!({})).await;
    assert!(matches!(&failed, Err(RequestError::NotSent(Unsent::Ended(_)))), "{failed:?}");
    assert!(matches!(connection.ended().await.cause, EndCause::SessionExpired));
    connection.close().await;
    server.connect(Era::Legacy).await.probe().await.unwrap();
}

#[tokio::test]
async fn credentials_are_sent_and_their_absence_is_named() {
    let server = HttpServer::start(&["auth"]).await;
    for era in [Era::Legacy, Era::Modern] {
        let error = refusal(server.rest(), era).await;
        assert!(error.needs_credentials() && !error.suggests_legacy(), "{error}");
        assert!(error.to_string().contains("set `auth`"), "{error}");
        let endpoint = server.rest().auth(Auth::bearer(Secret::literal("s3cr3t-token")));
        let connection = connect_http(endpoint, era).await;
        let seen = text(&connection, "echo", json!({})).await;
        assert!(seen.contains("s3cr3t-token") && !connection.secrets().named.text(seen).contains("s3cr3t-token"));
    }
}

async fn connect_http(endpoint: Rest, era: Era) -> Connection {
    let endpoint = Endpoint::Http(Box::new(endpoint));
    Connection::open(&endpoint, era, &options()).await.unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test]
async fn a_private_address_and_an_unreachable_one_are_refused_before_anything_is_sent() {
    let server = HttpServer::start(&[]).await;
    let guarded = Rest::post(format!("http://127.0.0.1:{}/mcp", server.port)).upstreams(&Upstreams::new());
    let error = refusal(guarded, Era::Modern).await;
    assert!(error.to_string().contains("allow_hosts") && !error.suggests_legacy(), "{error}");
    let rest = server.rest();
    server.stop().await;
    let error = refusal(rest, Era::Modern).await;
    assert!(matches!(error, ConnectError::Http { reached: false, .. }) && !error.suggests_legacy(), "{error}");
}

#[tokio::test]
async fn a_server_that_is_gone_fails_the_request_before_it_is_sent() {
    let server = HttpServer::start(&["no-get"]).await;
    let connection = server.connect(Era::Modern).await;
    server.stop().await;
    let failed = result(&connection, "echo", json!({})).await.unwrap_err();
    assert!(matches!(failed, RequestError::Http(_)), "{failed:?}");
    assert_eq!(error::request_error(failed, false).kind.name(), "upstream_unreachable");
    assert!(matches!(connection.ended().await.cause, EndCause::Unreachable(_)));
}

#[tokio::test]
async fn a_server_that_is_gone_is_noticed_without_a_request() {
    let server = HttpServer::start(&[]).await;
    let connection = server.connect(Era::Legacy).await;
    // The stream of the session is open.
    connection.list_changes().wait_for(|changes| changes.tools > 0).await.unwrap();
    server.stop().await;
    let end = tokio::time::timeout(WAIT_TIMEOUT, connection.ended()).await.unwrap();
    assert!(matches!(end.cause, EndCause::Unreachable(_)), "{end}");
}

#[tokio::test]
async fn a_server_of_http_and_sse_is_recognised_and_the_address_to_try_is_named() {
    let server = HttpServer::start(&["http-sse"]).await;
    let url = format!("http://127.0.0.1:{}/sse", server.port);
    let rest = Rest::post(&url).allow_host("127.0.0.1").upstreams(&Upstreams::new());
    assert!(refusal(rest.clone(), Era::Modern).await.suggests_legacy());
    let error = refusal(rest, Era::Legacy).await;
    assert!(matches!(&error, ConnectError::HttpSse { instead } if *instead == url.replace("/sse", "/mcp")), "{error}");
}

#[tokio::test]
async fn a_silent_server_ends_at_the_startup_timeout() {
    let server = HttpServer::start(&["silent"]).await;
    let options = ConnectionOptions { startup_timeout: Duration::from_millis(200), ..options() };
    for era in [Era::Legacy, Era::Modern] {
        let opened = Connection::open(&Endpoint::Http(Box::new(server.rest())), era, &options).await;
        assert!(matches!(opened.err(), Some(ConnectError::Silent(_))));
    }
}
