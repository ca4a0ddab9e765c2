//! One-shot programs that follow the protocol.

use std::time::Duration;

use serde_json::json;
use toolhub_connect::command::DEFAULT_PASS_ENV;
use toolhub_core::{Effect, ErrorKind};

use toolhub_testkit::TempFolder;

use super::{call, expect_error, expect_output, hub, node, python, wait_for_lines};

const ECHO_PROGRAM: &str = "import json, sys; print(json.dumps(json.load(sys.stdin)))";

#[tokio::test]
async fn a_program_gets_its_arguments_and_what_it_writes_is_the_output() {
    let arguments = json!({"text": "Grüße, 世界 \u{1F980}", "more": [1, 2.5, null, {"deep": true}]});
    for program in [python(ECHO_PROGRAM), node("process.stdin.pipe(process.stdout)")] {
        let output = expect_output(call(program.tool("it"), arguments.clone()).await);
        assert_eq!(output["arguments"], arguments);
    }
}

#[tokio::test]
async fn a_program_learns_which_call_it_serves() {
    let hub = hub([python(ECHO_PROGRAM).tool("it")]).await;
    let outcome = hub.call("it", json!({})).thread("monday").idempotency_key("order-7").await;
    let id = outcome.id.to_string();
    assert_eq!(expect_output(outcome)["call"], json!({"id": id, "thread": "monday", "idempotencyKey": "order-7"}));
}

#[tokio::test]
async fn more_than_a_pipe_holds_goes_both_ways() {
    let arguments = json!({"text": "x".repeat(800_000)});
    let program = node("process.stdin.pipe(process.stdout)");
    let output = expect_output(call(program.tool("it"), arguments.clone()).await);
    assert!(output["arguments"] == arguments, "the echo differs from the arguments");
    // A program that reads nothing and writes a lot does not block.
    let program = python("print('\"' + 'y' * 300_000 + '\"')");
    assert_eq!(expect_output(call(program.tool("it"), arguments).await).as_str().unwrap().len(), 300_000);
}

#[tokio::test]
async fn no_shell_reads_the_arguments_of_a_program() {
    let odd = ["$(echo no) `id` ; ls | cat > x", "*", "", "a b", "-n", "\"'\\", "line\nbreak"];
    let program = python("import json, sys; print(json.dumps(sys.argv[1:]))").args(odd);
    assert_eq!(expect_output(call(program.tool("it"), json!({})).await), json!(odd));
}

#[tokio::test]
async fn the_environment_is_what_was_given_and_nothing_else() {
    let given = "a value that nobody else has";
    let passed = "CARGO_MANIFEST_DIR";
    let passed_value = std::env::var(passed).expect("cargo sets it for tests");
    let program =
        node("console.log(JSON.stringify(process.env))").env("GIVEN", given).pass_env(passed).pass_env("NOT_SET");
    let seen = expect_output(call(program.tool("it"), json!({})).await);
    assert_eq!((&seen["GIVEN"], &seen[passed]), (&json!(given), &json!(passed_value)));
    for name in seen.as_object().unwrap().keys() {
        assert!(DEFAULT_PASS_ENV.contains(&name.as_str()) || ["GIVEN", passed].contains(&name.as_str()), "{name}");
    }
    assert_eq!(seen["PATH"], json!(std::env::var("PATH").unwrap()));
    let own = node("console.log(JSON.stringify(process.env.HOME))").env("HOME", "/somewhere");
    assert_eq!(expect_output(call(own.tool("it"), json!({})).await), json!("/somewhere"));
}

#[tokio::test]
async fn a_program_runs_in_its_folder() {
    let folder = TempFolder::new();
    let program = python("import json, os; print(json.dumps(os.getcwd()))").cwd(folder.path());
    let real = std::fs::canonicalize(folder.path()).unwrap();
    assert_eq!(expect_output(call(program.tool("it"), json!({})).await), json!(real));
}

#[tokio::test]
async fn a_code_other_than_0_is_a_failure_and_the_program_may_say_why() {
    let reported = python(r#"print('{"error": {"kind": "refused", "message": "no such city"}}'); exit(1)"#);
    let outcome = call(reported.tool("it"), json!({})).await;
    let error = outcome.error.as_ref().unwrap();
    assert_eq!((error.kind.name(), error.model.as_str(), outcome.effect), ("tool_error", "no such city", Effect::None));
    assert!(!error.counts);

    let text = python(r#"print('{"error": "the disk is full"}'); exit(2)"#);
    let outcome = call(text.tool("it"), json!({})).await;
    let error = outcome.error.as_ref().unwrap();
    assert_eq!((error.kind, error.model.as_str()), (ErrorKind::ToolError, "the disk is full"));
    assert_eq!(outcome.effect, Effect::Unknown);

    let silent = python("import sys; print('half a result'); print('it broke', file=sys.stderr); exit(3)");
    let outcome = call(silent.tool("it"), json!({})).await;
    assert_eq!((outcome.error.as_ref().unwrap().kind, outcome.effect), (ErrorKind::Crashed, Effect::Unknown));
    for fragment in ["code 3", "half a result", "it broke"] {
        assert!(expect_error(&outcome).contains(fragment), "{}", expect_error(&outcome));
    }
    assert!(!outcome.model_text().contains("it broke"), "{}", outcome.model_text());

    let killed = python("import os; os.kill(os.getpid(), 9)");
    let outcome = call(killed.tool("it"), json!({})).await;
    assert_eq!(outcome.error.as_ref().unwrap().kind, ErrorKind::Crashed);
    assert!(
        expect_error(&outcome).contains("signal 9 (SIGKILL, possibly out of memory)"),
        "{}",
        expect_error(&outcome)
    );

    // With exit code 0, an object with `error` is ordinary output.
    let output = python(r#"print('{"error": "404 is what I was asked for"}')"#);
    assert_eq!(expect_output(call(output.tool("it"), json!({})).await)["error"], "404 is what I was asked for");
}

#[tokio::test]
async fn what_a_program_leaves_behind_in_its_group_ends_with_it() {
    let folder = TempFolder::new();
    let program = super::python_with_markers(
        &folder,
        "child = subprocess.Popen(['sleep', '1000'])
sign('child', child.pid)
print('\"done\"')",
    );
    // The sleeping child holds stdout open; the call must still end long before the timeout.
    let outcome = call(program.tool("it").timeout(Duration::from_secs(600)), json!({})).await;
    assert_eq!(expect_output(outcome), json!("done"));
    super::wait_for_exit(&wait_for_lines(&folder.join("child")).await[0]).await;
}
