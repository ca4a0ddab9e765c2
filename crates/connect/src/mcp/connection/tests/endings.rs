//! How connections end, and what the requests in flight get.

use super::*;
use crate::mcp::wire::FIRST_DIRECT_ID;
use crate::mcp::wire::{End, EndCause, Unsent};

/// Calls `name` while two other calls hang. All three must end at once, with the same reason.
async fn ending(command: Command, name: &str, arguments: Value) -> Arc<End> {
    let connection = connect(command, Era::Legacy, &options()).await;
    let failed = async |name: &str| match result(&connection, name, json!({})).await {
        Err(RequestError::Lost(end)) => end,
        other => panic!("`{name}` ended with {other:?}"),
    };
    let (first, second, last) = tokio::join!(failed("hang"), failed("hang"), result(&connection, name, arguments));
    assert!(Arc::ptr_eq(&first, &second));
    assert!(last.is_ok() || matches!(&last, Err(RequestError::Lost(end)) if Arc::ptr_eq(end, &first)), "{last:?}");
    assert!(Arc::ptr_eq(&connection.ended().await, &first));
    // What comes after the end was never sent.
    let late = result(&connection, "echo", json!({})).await;
    assert!(matches!(late, Err(RequestError::NotSent(Unsent::Ended(_)))), "{late:?}");
    connection.close().await;
    first
}

#[track_caller]
fn check(end: &End, expected: &str) {
    assert!(end.to_string().contains(expected), "{end}");
}

#[tokio::test]
async fn a_violation_ends_the_connection_and_every_call_at_once() {
    // After two calls.
    let twice = format!("answered request {} twice", FIRST_DIRECT_ID + 2);
    let cases = [
        ("junk", "not JSON"),
        ("bytes", "not JSON"),
        ("both", "both a result and an error"),
        ("twice", twice.as_str()),
        ("wrong_id", "answered request 4711, which was never sent"),
        ("fail_without_id", "an error without an id"),
    ];
    let checks = cases.map(async |(tool, expected)| {
        let end = ending(server(&[]), tool, json!({})).await;
        assert!(matches!(end.cause, EndCause::Violation(_)), "{tool}: {end}");
        check(&end, expected);
    });
    futures_util::future::join_all(checks).await;
}

#[tokio::test]
async fn an_exit_during_a_call_is_reported_with_the_code_and_the_end_of_stderr_apart() {
    let end = ending(server(&[]), "exit", json!({})).await;
    check(&end, "exited with code 3");
    assert_eq!(end.stderr_line(), Some("fatal: out of tea"));
    assert!(!end.to_string().contains("out of tea"), "{end}");
    check(&*ending(server(&[]), "half", json!({})).await, "exited with code 0");
}

#[tokio::test]
async fn a_server_that_closes_its_stdout_is_ended_for_that() {
    check(
        &*ending(server(&[]), "close_stdout", json!({})).await,
        "the server closed stdout without exiting, and was killed",
    );
}

#[tokio::test]
async fn an_answer_right_before_the_exit_is_not_lost() {
    for _ in 0..5 {
        let connection = legacy().await;
        assert_eq!(text(&connection, "answer_and_exit", json!({})).await, "bye");
        check(&*connection.ended().await, "exited with code 0");
    }
}

#[test]
fn a_line_above_the_limit_ends_the_connection_with_bounded_memory() {
    in_bounded_memory("endings::a_line_above_the_limit_ends_the_connection_with_bounded_memory", oversized_line());
}

async fn oversized_line() {
    let end = ending(server(&[]), "huge", json!({"mebibytes": 1024})).await;
    check(&end, "more than 1048576 bytes");
    // Within the limit it is an answer.
    let options = ConnectionOptions { max_message: 4 << 20, ..options() };
    let connection = connect(server(&[]), Era::Legacy, &options).await;
    assert_eq!(result(&connection, "huge", json!({"mebibytes": 3})).await.unwrap().len(), (3 << 20) + 2);
}

#[tokio::test]
async fn a_server_that_does_not_read_ends_at_the_write_timeout() {
    let options = ConnectionOptions { write_timeout: Duration::from_millis(300), ..options() };
    let connection = connect(server(&[]), Era::Legacy, &options).await;
    let large = json!({"text": "x".repeat(1 << 20)});
    let (blocked, written, queued) = tokio::join!(
        result(&connection, "stop_reading", json!({})),
        result(&connection, "echo", large.clone()),
        result(&connection, "echo", large),
    );
    for lost in [blocked, written] {
        let Err(RequestError::Lost(end)) = lost else { panic!("{lost:?}") };
        check(&end, "no byte was accepted");
    }
    // Nothing of the last request left.
    assert!(matches!(queued, Err(RequestError::NotSent(Unsent::Ended(_)))), "{queued:?}");
}

#[tokio::test]
async fn requests_above_the_write_queue_are_refused_and_others_wait() {
    let connection = legacy().await;
    let large = json!({"text": "x".repeat(9 << 20)});
    let third = tokio::select! {
        biased;
        _ = result(&connection, "stop_reading", json!({})) => panic!("the server does not answer"),
        _ = result(&connection, "echo", large.clone()) => panic!("the server does not read"),
        third = result(&connection, "echo", large) => third,
    };
    assert!(matches!(third, Err(RequestError::NotSent(Unsent::QueueFull))), "{third:?}");
}

#[tokio::test]
async fn a_server_that_closes_its_stdin_has_ended() {
    let connection = legacy().await;
    let closed = connection.call(call("close_stdin", json!({}), updates(AcceptedInput::default()).0));
    let feeding = async {
        // The pipe is closed some time after the call was written, and then takes no more probes.
        loop {
            let _ = tokio::time::timeout(Duration::from_millis(20), connection.probe()).await;
        }
    };
    let lost = tokio::select! {
        lost = closed => lost,
        () = feeding => unreachable!(),
    };
    let Err(RequestError::Lost(end)) = lost else { panic!("{lost:?}") };
    check(&end, "it closed its input");
}

#[tokio::test]
async fn closing_and_dropping_end_the_program_and_what_it_started() {
    let cases = [(true, &[][..]), (false, &[]), (true, &["stay"]), (false, &["stay"])];
    let checks = cases.map(async |(close, flags)| {
        // The shell is the parent, as `npx` is.
        let words = ["python3", SERVER].into_iter().chain(flags.iter().copied()).collect::<Vec<_>>().join(" ");
        let launcher = Command::new("sh").args(["-c", &format!("{words}; true")]).grace(Duration::from_millis(100));
        let connection = connect(launcher, Era::Legacy, &options()).await;
        let pid = text(&connection, "pid", json!({})).await;
        assert!(!has_exited(&pid));
        if close {
            connection.close().await;
            wait_for("the exit after the close", || has_exited(&pid).then_some(())).await;
        } else {
            drop(connection);
            wait_for("the exit after the drop", || has_exited(&pid).then_some(())).await;
        }
    });
    futures_util::future::join_all(checks).await;
}

#[tokio::test]
async fn the_program_of_an_abandoned_handshake_is_ended() {
    let folder = toolhub_testkit::TempFolder::new();
    let file = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", file.display());
    let silent = Endpoint::Stdio(Command::new("sh").args(["-c", &script]).grace(Duration::from_millis(100)));
    let options = options();
    let pid = {
        let opening = Connection::open(&silent, Era::Legacy, &options);
        tokio::select! {
            _ = opening => panic!("the program says nothing"),
            pid = wait_for("the program", || fs::read_to_string(&file).ok().filter(|pid| pid.ends_with('\n'))) => pid,
        }
    };
    wait_for("its exit", || has_exited(pid.trim()).then_some(())).await;
}
