//! Handshakes of both eras, and those that fail.

use super::*;
use crate::mcp::{
    connect_error::ConnectError,
    connection::PeerFacts,
    wire::{EndCause, Violation},
};

async fn refusal(flags: &[&str], era: Era, options: &ConnectionOptions) -> ConnectError {
    match Connection::open(&Endpoint::Stdio(server(flags)), era, options).await {
        Ok(_) => panic!("{flags:?} connected"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_server_of_either_era_says_what_it_is() {
    for (era, version, server_version) in [(Era::Legacy, "2025-11-25", "1"), (Era::Modern, "2026-07-28", "2")] {
        let connection = connect(server(&["blank-lines"]), era, &options()).await;
        let expected = PeerFacts {
            era,
            protocol_version: version.into(),
            server: Some(("test".into(), server_version.into())),
            tools: ListSupport { is_there: true, reports_changes: true },
            prompts: ListSupport::default(),
            resources: ListSupport::default(),
            watches_resources: false,
            completes: false,
            sends_logs: true,
        };
        assert_eq!(*connection.facts(), expected);
        connection.probe().await.unwrap();
        assert!(!connection.has_ended());
        connection.close().await;
    }
}

#[tokio::test]
async fn a_legacy_server_refuses_discover_and_the_error_suggests_the_other_era() {
    let error = refusal(&["legacy"], Era::Modern, &options()).await;
    assert!(matches!(&error, ConnectError::Refused(failure) if failure.code == -32601), "{error}");
    assert!(error.suggests_legacy());
    connect(server(&["legacy"]), Era::Legacy, &options()).await;
}

#[tokio::test]
async fn a_server_that_exits_on_discover_is_reported_with_its_exit() {
    let error = refusal(&["exit-on-discover"], Era::Modern, &options()).await;
    assert!(matches!(&error, ConnectError::Ended(end) if matches!(end.cause, EndCause::Exited(_))), "{error}");
    assert!(error.suggests_legacy() && error.to_string().contains("exited with code 1"), "{error}");
}

#[tokio::test]
async fn a_server_that_exits_at_once_is_reported_and_its_stderr_apart() {
    let options = options();
    let error = refusal(&["exit"], Era::Legacy, &options).await;
    let text = error.to_string();
    assert!(text.contains("exited with code 7") && !text.contains("no licence"), "{text}");
    assert_eq!(error.stderr_line(), Some("cannot start: no licence"));
    assert!(options.logs.last(10)[0].text.contains("no licence"));
}

#[tokio::test]
async fn a_silent_server_ends_at_the_startup_timeout() {
    let options = ConnectionOptions { startup_timeout: Duration::from_millis(200), ..options() };
    let error = refusal(&["silent"], Era::Modern, &options).await;
    assert!(matches!(error, ConnectError::Silent(_)) && error.suggests_legacy(), "{error}");
}

#[tokio::test]
async fn a_banner_on_stdout_is_a_named_violation() {
    let error = refusal(&["banner"], Era::Legacy, &options()).await;
    let is_named = matches!(&error, ConnectError::Ended(end)
        if matches!(end.cause, EndCause::Violation(Violation::NotJson)));
    assert!(is_named && !error.to_string().contains("Welcome"), "{error}");
}

#[tokio::test]
async fn a_version_that_is_not_known_is_refused() {
    for version in ["version=1999-01-01", "version=2026-07-28"] {
        let error = refusal(&[version], Era::Legacy, &options()).await;
        assert!(matches!(&error, ConnectError::Version { offered } if version.ends_with(&offered[0])), "{error}");
    }
    let error = refusal(&["refuse-initialize"], Era::Legacy, &options()).await;
    assert!(matches!(error, ConnectError::Refused(_)), "{error}");
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    let missing = Endpoint::Stdio(Command::new("toolhub-no-such-program"));
    let Err(error) = Connection::open(&missing, Era::Legacy, &options()).await else { panic!("connected") };
    assert!(matches!(error, ConnectError::Start(_)) && !error.suggests_legacy(), "{error}");
    assert!(error.to_string().contains("toolhub-no-such-program"), "{error}");
}
