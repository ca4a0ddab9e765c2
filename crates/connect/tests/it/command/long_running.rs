//! Long-running programs and their state.

use std::time::Duration;

use serde_json::{Value, json};
use toolhub_connect::command::Command;
use toolhub_core::{
    CancellationToken, Effect, ErrorKind, Outcome, ToolHub,
    ids::{Tenant, ThreadId},
};
use toolhub_testkit::TempFolder;

use super::{
    expect_error, expect_output, hub, python, python_with_markers, request_parts, wait_for_exit, wait_for_lines,
};

/// Counts its calls in the state and returns its PID; with `say`, writes that text instead of a response.
const COUNTER_PROGRAM: &str = r#"
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    arguments, state = request["arguments"], request.get("state", {})
    if "say" in arguments:
        sys.stdout.write(arguments["say"].replace("ID", str(request["id"])))
        sys.stdout.flush()
        if arguments.get("die"): os._exit(7)
        continue
    state["n"] = state.get("n", 0) + 1
    answer = {"id": request["id"], "result": {"n": state["n"], "pid": os.getpid()}, "state": state}
    print(json.dumps(answer))
"#;

async fn hub_with_counter() -> ToolHub {
    hub([python(COUNTER_PROGRAM).stateful_tool("count").timeout(Duration::from_secs(20))]).await
}

async fn call_counter(hub: &ToolHub, thread: &str) -> (u64, u64) {
    let output = expect_output(hub.call("count", json!({})).thread(thread).await);
    (output["n"].as_u64().unwrap(), output["pid"].as_u64().unwrap())
}

async fn call_writing(hub: &ToolHub, text: &str, die: bool) -> Outcome {
    hub.call("count", json!({"say": text, "die": die})).thread("t").await
}

#[tokio::test]
async fn each_thread_has_a_process_and_a_state_of_its_own() {
    let hub = hub_with_counter().await;
    let (first, pid) = call_counter(&hub, "a").await;
    let (second, same) = call_counter(&hub, "a").await;
    let (other, elsewhere) = call_counter(&hub, "b").await;
    assert_eq!((first, second, other), (1, 2, 1));
    assert!(pid == same && pid != elsewhere);
}

#[tokio::test]
async fn the_state_outlives_the_process() {
    let hub = hub_with_counter().await;
    let (_, pid) = call_counter(&hub, "t").await;
    // Killed from outside while idle.
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(killed.success());
    wait_for_exit(&pid.to_string()).await;
    let (n, second) = call_counter(&hub, "t").await;
    assert_eq!(n, 2);
    // Closed by a cleanup of the thread.
    let context = hub.thread_context(&Tenant::default(), &ThreadId::new("t").unwrap());
    assert!(context.cleanup("count").await);
    wait_for_exit(&second.to_string()).await;
    let (n, third) = call_counter(&hub, "t").await;
    assert!(n == 3 && third != second && second != pid);
    // Died during a call.
    assert_eq!(call_writing(&hub, "", true).await.error.unwrap().kind, ErrorKind::Crashed);
    assert_eq!(call_counter(&hub, "t").await.0, 4);
}

#[tokio::test]
async fn a_process_whose_thread_is_cleaned_up_sees_the_end_of_its_input() {
    let folder = TempFolder::new();
    let program = "
for line in sys.stdin: print(json.dumps({'result': 1}))
sign('bye', 'the input ended')";
    let hub = hub([python_with_markers(&folder, program).grace(Duration::from_secs(600)).stateful_tool("it")]).await;
    expect_output(hub.call("it", json!({})).thread("t").await);
    let context = hub.thread_context(&Tenant::default(), &ThreadId::new("t").unwrap());
    assert!(context.cleanup("it").await);
    assert_eq!(wait_for_lines(&folder.join("bye")).await, ["the input ended"]);
}

#[tokio::test]
async fn an_error_leaves_the_process_and_the_state_as_they_were() {
    let hub = hub_with_counter().await;
    let (_, pid) = call_counter(&hub, "t").await;
    let refused = r#"{"id": ID, "error": {"kind": "refused", "message": "not today"}, "state": {"n": 99}}"#;
    let outcome = call_writing(&hub, &format!("{refused}\n"), false).await;
    let error = outcome.error.as_ref().unwrap();
    assert_eq!((error.model.as_str(), error.refused, outcome.effect), ("not today", true, Effect::None));
    let outcome = call_writing(&hub, "{\"id\": ID, \"error\": \"it failed\"}\n", false).await;
    let error = outcome.error.as_ref().unwrap();
    assert_eq!(
        (error.model.as_str(), error.kind, outcome.effect),
        ("it failed", ErrorKind::ToolError, Effect::Unknown)
    );
    assert_eq!(call_counter(&hub, "t").await, (2, pid));
}

#[tokio::test]
async fn bad_lines_end_the_process_and_are_told_in_words() {
    for (text, die, kind, fragment) in [
        ("hello\n", false, ErrorKind::ToolError, "not JSON"),
        ("\n", false, ErrorKind::ToolError, "not JSON"),
        ("[1, 2]\n", false, ErrorKind::ToolError, "not a JSON object"),
        ("{\"id\": ID, \"output\": 1}\n", false, ErrorKind::ToolError, "neither `result` nor `error`"),
        ("{\"id\": 77, \"result\": 1}\n", false, ErrorKind::ToolError, "has id 77"),
        ("{\"result\": 1}\n", false, ErrorKind::ToolError, "no `id`"),
        ("{\"id\": ID, \"resu\n", false, ErrorKind::ToolError, "truncated"),
        (
            "{\"id\": ID, \"resu",
            true,
            ErrorKind::Crashed,
            "in the middle of its response, which begins with `{\"id\": 2, \"resu`",
        ),
        ("", true, ErrorKind::Crashed, "exited with code 7 without a response"),
    ] {
        let hub = hub_with_counter().await;
        let (_, pid) = call_counter(&hub, "t").await;
        let outcome = call_writing(&hub, text, die).await;
        let error = outcome.error.as_ref().unwrap();
        assert_eq!((error.kind, outcome.effect), (kind, Effect::Unknown), "{text}");
        assert!(error.operator.contains(fragment), "{text}: {}", error.operator);
        wait_for_exit(&pid.to_string()).await;
        assert_eq!(call_counter(&hub, "t").await.0, 2, "after {text}");
    }
}

#[tokio::test]
async fn an_answer_of_a_program_that_then_ends_counts() {
    let hub = hub_with_counter().await;
    let outcome = call_writing(&hub, "{\"id\": ID, \"result\": \"my last\", \"state\": {\"n\": 5}}\n", true).await;
    assert_eq!(expect_output(outcome), json!("my last"));
    assert_eq!(call_counter(&hub, "t").await.0, 6);
}

#[tokio::test]
async fn a_program_that_ends_before_it_reads_has_done_nothing() {
    let hub = hub([python("exit(4)").stateful_tool("it")]).await;
    let outcome = hub.call("it", json!({})).thread("t").await;
    assert_eq!((outcome.error.as_ref().unwrap().kind, outcome.effect), (ErrorKind::Crashed, Effect::None));
    assert!(expect_error(&outcome).contains("exited with code 4 before it read"), "{}", expect_error(&outcome));
}

#[tokio::test]
async fn a_program_that_ends_after_each_answer_is_started_for_each_call() {
    let program = python(
        "import json, sys, time\nrequest = json.loads(sys.stdin.readline())\nprint(json.dumps({'result': request['arguments']}))\nsys.stdout.close()\ntime.sleep(0.02)",
    );
    let hub = hub([program.stateful_tool("it")]).await;
    for n in 0..10 {
        assert_eq!(expect_output(hub.call("it", json!({"n": n})).thread("t").await), json!({"n": n}));
    }
}

#[tokio::test]
async fn a_second_answer_is_never_taken_for_the_answer_to_the_next_request() {
    let hub = hub_with_counter().await;
    let (_, pid) = call_counter(&hub, "t").await;
    let twice = "{\"id\": ID, \"result\": \"once\"}\n{\"id\": ID, \"result\": \"twice\"}\n";
    assert_eq!(expect_output(call_writing(&hub, twice, false).await), json!("once"));
    let (n, next) = call_counter(&hub, "t").await;
    assert!(n == 2 && next != pid, "the process must be new, and the state kept");
}

#[tokio::test]
async fn a_late_answer_after_a_cancel_reaches_nobody() {
    let folder = TempFolder::new();
    let program = "
for line in sys.stdin:
    request = json.loads(line)
    if request['arguments'].get('slow'):
        sign('asked')
        while not os.path.exists(sys.argv[1] + '/go'): time.sleep(0.01)
    print(json.dumps({'result': request['arguments']}))";
    // It ignores SIGTERM, so within its grace period it responds to the request that was cancelled.
    let program = format!("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{program}");
    let hub = hub([python_with_markers(&folder, &program).grace(Duration::from_secs(20)).stateful_tool("it")]).await;
    let cancel = CancellationToken::new();
    let slow = hub.call("it", json!({"slow": true})).thread("t").cancel_on(&cancel);
    let (slow, pid) = tokio::join!(slow, async {
        let pid = wait_for_lines(&folder.join("asked")).await;
        cancel.cancel();
        pid
    });
    assert_eq!(slow.error.unwrap().kind, ErrorKind::Cancelled);
    std::fs::write(folder.join("go"), "").unwrap();
    for n in 0..3 {
        assert_eq!(expect_output(hub.call("it", json!({"n": n})).thread("t").await), json!({"n": n}));
    }
    wait_for_exit(&pid[0]).await;
}

#[tokio::test]
async fn two_threads_work_at_once_and_one_thread_one_after_another() {
    let folder = TempFolder::new();
    // Responds only once the other thread's program has started its request too.
    let program = "
for line in sys.stdin:
    arguments = json.loads(line)['arguments']
    sign(arguments['me'])
    while not os.path.exists(os.path.join(sys.argv[1], arguments['other'])): time.sleep(0.01)
    print(json.dumps({'result': arguments['me']}))";
    let hub = hub([python_with_markers(&folder, program).stateful_tool("it")]).await;
    let meet =
        async |me: &str, other: &str| expect_output(hub.call("it", json!({"me": me, "other": other})).thread(me).await);
    let (a, b) = tokio::join!(meet("a", "b"), meet("b", "a"));
    assert_eq!((a, b), (json!("a"), json!("b")));
    let hub = hub_with_counter().await;
    let mut seen: Vec<u64> =
        futures_util::future::join_all((0..8).map(|_| call_counter(&hub, "t"))).await.iter().map(|it| it.0).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=8).collect::<Vec<u64>>());
}

/// Responds with the request itself.
fn echo_program() -> Command {
    python(
        "import json, sys\nfor line in sys.stdin: print(json.dumps({'result': json.loads(line), 'memory': {'kept': 1}, 'state': {'old': 1}}))",
    )
}

#[tokio::test]
async fn the_state_stands_in_requests_and_answers_under_the_name_the_owner_chooses() {
    let hub = hub([
        echo_program().stateful_tool("plain"),
        echo_program().stateful_tool("renamed").state_parameter_name("memory"),
        echo_program().stateful_tool("without").state_injection(false),
        echo_program().state("plain").stateful_tool("shares"),
        echo_program().stateful_tool("clashes").state_parameter_name("arguments"),
    ])
    .await;
    let request_to = async |tool: &str| expect_output(hub.call(tool, json!({"a": 1})).thread("t").await);
    assert_eq!(request_parts(&request_to("plain").await), json!({"arguments": {"a": 1}, "state": {}}));
    assert_eq!(request_parts(&request_to("plain").await)["state"], json!({"old": 1}));
    assert_eq!(request_to("renamed").await["memory"], json!({}));
    let second = request_to("renamed").await;
    assert_eq!((&second["memory"], second.get("state")), (&json!({"kept": 1}), None));
    assert_eq!(request_to("without").await.get("state"), None::<&Value>);
    assert_eq!(request_to("shares").await["state"], json!({"old": 1}));
    let clash = hub.call("clashes", json!({})).thread("t").await;
    assert!(expect_error(&clash).contains("`state_parameter_name` is `arguments`"), "{}", expect_error(&clash));
    assert_eq!(clash.effect, Effect::None);
    let schema = json!({"type": "object", "properties": {"state": {"type": "string"}}});
    let refused =
        ToolHub::builder().tool(echo_program().stateful_tool("it").parameters(schema)).build().await.unwrap_err();
    assert!(refused.to_string().contains("`state`"), "{refused}");
}

#[tokio::test]
async fn a_state_that_is_no_object_is_refused_and_the_result_is_told_as_done() {
    let hub = hub_with_counter().await;
    let outcome = call_writing(&hub, "{\"id\": ID, \"result\": 1, \"state\": [1]}\n", false).await;
    assert_eq!((outcome.error.as_ref().unwrap().kind, outcome.effect), (ErrorKind::ToolError, Effect::Done));
    assert!(expect_error(&outcome).contains("a state is a JSON object"), "{}", expect_error(&outcome));
    assert_eq!(call_counter(&hub, "t").await.0, 1);
}

#[tokio::test]
async fn a_session_that_is_opened_has_its_program_running_before_the_first_call() {
    let folder = TempFolder::new();
    let program = "sign('up')\nfor line in sys.stdin: print(json.dumps({'result': os.getpid()}))";
    let hub = hub([python_with_markers(&folder, program).stateful_tool("it")]).await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t").unwrap());
    hub.open_session("it", &tenant, &thread).await.unwrap();
    let up = wait_for_lines(&folder.join("up")).await;
    assert_eq!(expect_output(hub.call("it", json!({})).thread("t").await).to_string(), up[0]);
}
