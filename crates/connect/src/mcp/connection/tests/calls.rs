//! Lists, calls, their updates and their cancellation.

use super::*;
use crate::mcp::wire::{FIRST_DIRECT_ID, JsonRpcFailure};

/// The updates of a call that has ended.
async fn drain(mut receiver: UpdateReceiver) -> Vec<Update> {
    let mut all = Vec::new();
    while let Some(update) = receiver.next().await {
        all.push(update);
    }
    all
}

#[tokio::test]
async fn pages_of_a_list_are_raw_text() {
    let connection = legacy().await;
    let mut cursor = None;
    for page in 0..3 {
        let result: Value =
            serde_json::from_str(&connection.list_page(ListKind::Tools, cursor).await.unwrap()).unwrap();
        assert_eq!(result["tools"], json!([{"name": format!("tool{page}"), "odd": true}]));
        cursor = result["nextCursor"].as_str().map(String::from);
    }
    assert_eq!(cursor, None);
}

#[tokio::test]
async fn results_pass_unread_and_carry_what_no_type_knows() {
    let connection = legacy().await;
    let odd = result(&connection, "odd", json!({})).await.unwrap();
    assert_eq!(odd, r#"{"content":[{"type":"video","x":1.10}],"extra":"kept"}"#);
    assert_eq!(text(&connection, "text_id", json!({})).await, "text id");
}

#[tokio::test]
async fn a_cut_character_in_an_answer_is_replaced_and_the_connection_goes_on() {
    let connection = legacy().await;
    assert_eq!(text(&connection, "lone_surrogate", json!({})).await, "cut \u{fffd} here");
    let failed = result(&connection, "lone_surrogate", json!({"fails": true})).await;
    assert!(
        matches!(&failed, Err(RequestError::Refused(failure)) if failure.message == "cut \u{fffd} here"),
        "{failed:?}"
    );
    assert!(!connection.has_ended());
}

#[tokio::test]
async fn a_call_carries_its_arguments_trace_and_idempotency_key() {
    for era in [Era::Legacy, Era::Modern] {
        let connection = connect(server(&[]), era, &options()).await;
        let call = OutgoingCall {
            traceparent: Some("00-trace".into()),
            idempotency_key: Some("key-1".into()),
            ..call("echo", json!({"a": [1, "ü"]}), updates(AcceptedInput::default()).0)
        };
        let seen: Value = serde_json::from_str(&content_text(&connection.call(call).await.unwrap())).unwrap();
        assert_eq!(seen["arguments"], json!({"a": [1, "ü"]}));
        let meta = &seen["meta"];
        assert_eq!((&meta["traceparent"], &meta["dev.toolhub/idempotencyKey"]), (&json!("00-trace"), &json!("key-1")));
        let version = &meta["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(*version, if era == Era::Modern { json!("2026-07-28") } else { Value::Null });
    }
}

#[tokio::test]
async fn progress_and_log_lines_arrive_in_order_before_the_call_ends_and_without_secrets() {
    let options = options();
    let connection = connect(server(&[]).env("API_TOKEN", "s3cr3t-token"), Era::Legacy, &options).await;
    let (sender, receiver) = updates(AcceptedInput::default());
    connection.call(call("work", json!({}), sender)).await.unwrap();
    let seen: Vec<String> = drain(receiver)
        .await
        .into_iter()
        .map(|update| match update {
            Update::Progress { done, total, message } => format!("{done}/{} {}", total.unwrap(), message.unwrap()),
            Update::Log { level, text } => format!("{level}: {text}"),
            Update::Question(_) | Update::DeclinedQuestion(_) => panic!("no question was asked"),
        })
        .collect();
    assert_eq!(seen, ["1/3 step 1", "2/3 step 2", "3/3 step 3", "info: log line with ••••"]);
    assert_eq!(options.logs.last(1)[0].text, "[info worker] log line with ••••");
}

#[test]
fn a_flood_of_notifications_keeps_the_last_ones_in_order_and_little_memory() {
    let name = "calls::a_flood_of_notifications_keeps_the_last_ones_in_order_and_little_memory";
    in_bounded_memory(name, flood());
}

async fn flood() {
    let options = options();
    let connection = connect(server(&[]), Era::Legacy, &options).await;
    let changes = connection.list_changes();
    let (sender, receiver) = updates(AcceptedInput::default());
    // Three notifications per number.
    connection.call(call("flood", json!({"count": 34_000}), sender)).await.unwrap();
    assert_eq!(changes.borrow().tools, 34_000);
    let last = drain(receiver).await.pop();
    assert!(matches!(last, Some(Update::Progress { done: 33_999.0, .. })), "{last:?}");
    let lines = options.logs.last(usize::MAX);
    assert_eq!(
        (lines.len(), lines[999].text.as_str(), lines[0].text.as_str()),
        (1_000, "[info] 33999", "[info] 33000")
    );
}

#[tokio::test]
async fn an_error_of_the_server_is_passed_on_with_its_code() {
    let connection = legacy().await;
    let Err(RequestError::Refused(failure)) = result(&connection, "fail", json!({"code": -32602})).await else {
        panic!("the call did not fail");
    };
    let expected = JsonRpcFailure { code: -32602, message: "it failed".into(), data: Some(json!({"why": 1})) };
    assert_eq!(failure, expected);
    // An error without an id belongs to the only request in flight.
    let error = result(&connection, "fail_without_id", json!({})).await.unwrap_err();
    assert!(matches!(&error, RequestError::Refused(failure) if failure.code == -32603), "{error:?}");
    assert!(!connection.has_ended());
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_with_its_id_and_a_late_answer_does_no_harm() {
    let connection = legacy().await;
    connection.list_page(ListKind::Tools, None).await.unwrap();
    {
        let mut hanging = std::pin::pin!(connection.call(call("hang", json!({}), updates(AcceptedInput::default()).0)));
        // The list was the first request, so this call is the second.
        tokio::select! {
            biased;
            _ = &mut hanging => panic!("the call hangs"),
            () = async { wait_for("the call in flight", || (connection.in_flight() == 1).then_some(())).await } => {}
        }
    }
    wait_for("the cancellation", || (connection.in_flight() == 0).then_some(())).await;
    assert_eq!(report(&connection).await["cancelled"], json!([FIRST_DIRECT_ID + 1]));
    assert_eq!(text(&connection, "late", json!({})).await, "in time");
    connection.probe().await.unwrap();
}

#[tokio::test]
async fn ten_thousand_dropped_calls_are_all_cancelled_and_leave_nothing_pending() {
    let connection = legacy().await;
    for _ in 0..100 {
        let calls = (0..100).map(|_| connection.call(call("hang", json!({}), updates(AcceptedInput::default()).0)));
        let mut calls = Vec::from_iter(calls.map(Box::pin));
        for call in &mut calls {
            assert!(futures_util::poll!(call.as_mut()).is_pending());
        }
        wait_for("all calls in flight", || (connection.in_flight() == 100).then_some(())).await;
        drop(calls);
        wait_for("all cancellations", || (connection.in_flight() == 0).then_some(())).await;
    }
    let cancelled = report(&connection).await["cancelled"].clone();
    assert_eq!(cancelled.as_array().map(Vec::len), Some(10_000));
    assert_eq!(connection.in_flight(), 0);
}

#[tokio::test]
async fn list_changes_are_counted_in_both_eras_and_an_ended_subscription_is_noticed() {
    let connection = legacy().await;
    let mut changes = connection.list_changes();
    connection.listen(&TOOL_CHANGES).await.unwrap();
    result(&connection, "flood", json!({"count": 1})).await.unwrap();
    assert!(changes.has_changed().unwrap());

    for flags in [&[][..], &["end-subscription"]] {
        let connection = connect(server(flags), Era::Modern, &options()).await;
        changes = connection.list_changes();
        let mut subscription = connection.listen(&TOOL_CHANGES).await.unwrap();
        changes.wait_for(|changes| changes.tools == 200).await.unwrap();
        if !flags.is_empty() {
            tokio::time::timeout(WAIT_TIMEOUT, subscription.ended()).await.unwrap();
        }
        drop(subscription);
        wait_for("the end of the subscription", || (connection.in_flight() == 0).then_some(())).await;
        connection.probe().await.unwrap();
        let cancelled = report(&connection).await["cancelled"].clone();
        assert_eq!(cancelled, if flags.is_empty() { json!([1]) } else { json!([]) });
    }
}

#[tokio::test]
async fn a_program_gets_only_the_environment_it_was_given() {
    let connection = connect(server(&[]).env("API_TOKEN", "s3cr3t-token"), Era::Legacy, &options()).await;
    let names: Vec<String> = serde_json::from_str(&text(&connection, "environment", json!({})).await).unwrap();
    assert!(names.contains(&"API_TOKEN".into()) && !names.iter().any(|name| name.starts_with("CARGO")), "{names:?}");
}
