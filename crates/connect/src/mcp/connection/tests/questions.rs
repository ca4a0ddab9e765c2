//! Requests of a server: who gets them, and what the server gets.

use super::*;
use crate::mcp::{connection::Root, wire::Question};

/// The next question of a call.
async fn question(receiver: &mut UpdateReceiver) -> Question {
    loop {
        match receiver.next().await {
            Some(Update::Question(question)) => return question,
            Some(_) => {}
            None => panic!("the call ended without a question"),
        }
    }
}

#[tokio::test]
async fn a_question_reaches_the_only_call_and_its_answer_reaches_the_server() {
    let connection = legacy().await;
    let (sender, mut receiver) = updates(ALL);
    let answer = async {
        let question = question(&mut receiver).await;
        assert_eq!(question.kind, InputKind::Form);
        // A schema that the types of the protocol do not allow passes unread.
        let params: Value = serde_json::from_str(&question.params).unwrap();
        assert_eq!(params["requestedSchema"]["properties"]["city"], json!({"type": "object"}));
        question.answer(&json!({"action": "accept", "content": {"city": "Ulm"}}));
    };
    let (result, ()) = tokio::join!(connection.call(call("elicit", json!({}), sender)), answer);
    assert_eq!(content_text(&result.unwrap()), r#"{"action": "accept", "content": {"city": "Ulm"}}"#);
    // One reply only: the dropped question declines nothing after its answer.
    assert_eq!(report(&connection).await["answers"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_dropped_question_and_one_that_no_caller_can_answer_are_declined() {
    let connection = legacy().await;
    let (sender, mut receiver) = updates(ALL);
    let drop_question = async { drop(question(&mut receiver).await) };
    let (result, ()) = tokio::join!(connection.call(call("elicit", json!({}), sender)), drop_question);
    assert_eq!(content_text(&result.unwrap()), r#"{"action": "decline"}"#);
    assert_eq!(text(&connection, "elicit", json!({})).await, r#"{"action": "decline"}"#);
    assert!(text(&connection, "sample", json!({})).await.contains("declined the sampling request"));
    assert!(text(&connection, "roots", json!({})).await.contains("does not support"));
    assert_eq!(text(&connection, "ping", json!({})).await, "{}");
}

#[tokio::test]
async fn a_question_while_two_calls_run_is_declined() {
    let connection = legacy().await;
    let (first, mut asked_first) = updates(ALL);
    let (second, mut asked_second) = updates(ALL);
    let hanging = connection.call(call("hang", json!({}), first));
    let elicited = tokio::select! {
        biased;
        _ = hanging => panic!("the call hangs"),
        elicited = connection.call(call("elicit", json!({}), second)) => elicited,
    };
    assert_eq!(content_text(&elicited.unwrap()), r#"{"action": "decline"}"#);
    assert!(asked_first.try_next().is_none() && asked_second.try_next().is_none());
    // The first call was cancelled, but the server may go on with it and ask for it, also later.
    pass(Duration::from_secs(50)).await;
    let (third, mut asked_third) = updates(ALL);
    let elicited = connection.call(call("elicit", json!({}), third)).await.unwrap();
    assert_eq!(content_text(&elicited), r#"{"action": "decline"}"#);
    assert!(asked_third.try_next().is_none());
    // The cancelled call is answered, so that it asks for nothing any more.
    text(&connection, "late", json!({})).await;
    let (fourth, mut asked_fourth) = updates(ALL);
    let answer = async { question(&mut asked_fourth).await.answer(&json!({"action": "cancel"})) };
    let (elicited, ()) = tokio::join!(connection.call(call("elicit", json!({}), fourth)), answer);
    assert_eq!(content_text(&elicited.unwrap()), r#"{"action": "cancel"}"#);
}

#[tokio::test]
async fn roots_are_the_configured_ones() {
    let roots = vec![Root { uri: "file:///data".into(), name: Some("data".into()) }];
    let connection = connect(server(&[]), Era::Legacy, &ConnectionOptions { roots, ..options() }).await;
    assert_eq!(text(&connection, "roots", json!({})).await, r#"{"roots": [{"name": "data", "uri": "file:///data"}]}"#);
}

#[tokio::test]
async fn a_repeated_question_id_ends_the_connection() {
    let connection = legacy().await;
    let (sender, mut receiver) = updates(ALL);
    let lost = connection.call(call("same_question", json!({}), sender)).await;
    let Err(RequestError::Lost(end)) = lost else { panic!("{lost:?}") };
    assert!(end.to_string().contains("id of a request again"), "{end}");
    assert!(matches!(receiver.next().await, Some(Update::Question(_))));
}

#[tokio::test]
async fn the_modern_era_has_no_requests_of_a_server() {
    let connection = connect(server(&[]), Era::Modern, &options()).await;
    let (sender, mut receiver) = updates(ALL);
    let result = connection.call(call("elicit", json!({}), sender)).await.unwrap();
    assert!(content_text(&result).contains("does not support"), "{result}");
    assert!(receiver.try_next().is_none());
}
