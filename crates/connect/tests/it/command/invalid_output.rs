//! Programs whose output violates the protocol: the error says how, and what to do.

use serde_json::json;
use toolhub_core::{Effect, ErrorKind};

use super::{call, expect_error, node, python};

#[tokio::test]
async fn each_sort_of_bad_output_has_an_error_of_its_own() {
    for (written, fragment) in [
        ("", "wrote nothing"),
        ("hello there", "begins with `hello there`; write only JSON to stdout"),
        ("Loading model...\n{\"a\": 1}\n", "only the last line is JSON"),
        ("{\"a\": 1}\n{\"b\": 2}\n", "more than one JSON value"),
        ("{\"a\": 1}\nbye\n", "it wrote `bye` after its JSON value"),
        ("{\"a\": [1, 2", "truncated"),
        ("{'a': 1}", "not JSON"),
        ("\u{1b}[2J", "not JSON"),
    ] {
        let program = python("import sys; sys.stdout.write(sys.argv[1]); sys.stderr.write('said aside')").arg(written);
        let outcome = call(program.tool("it"), json!({})).await;
        let error = outcome.error.as_ref().unwrap();
        assert_eq!((error.kind, outcome.effect), (ErrorKind::ToolError, Effect::Unknown), "{written}");
        assert!(
            error.operator.contains(fragment) && error.operator.contains("said aside"),
            "{written}: {}",
            error.operator
        );
        assert!(!error.operator.contains('\u{1b}'), "{}", error.operator);
        // The model learns that the tool failed, but not what it wrote by mistake.
        assert!(!error.model.contains("hello") && !error.model.contains("aside"), "{}", error.model);
    }
    let bytes = node("process.stdout.write(Buffer.from([0x22, 0xff, 0xfe, 0x22]))");
    assert!(expect_error(&call(bytes.tool("it"), json!({})).await).contains("not JSON"));
}

#[tokio::test]
async fn output_of_too_many_values_is_not_parsed() {
    let one_shot = python("print('[' + ','.join(['[0]'] * 400_000) + ']')").max_output(4_000_000);
    let outcome = call(one_shot.tool("it"), json!({})).await;
    assert!(expect_error(&outcome).contains("more than 100000 values"), "{}", expect_error(&outcome));
    let line = "for line in sys.stdin: print('{\"result\": [' + ','.join(['0'] * 200_000) + ']}', flush=True)";
    let long_running = python(&format!("import sys\n{line}")).max_output(4_000_000).max_line(4_000_000);
    let outcome = call(long_running.stateful_tool("it"), json!({})).await;
    assert!(expect_error(&outcome).contains("more than 100000 values"), "{}", expect_error(&outcome));
}

#[tokio::test]
async fn a_long_error_is_cut_before_it_is_stored() {
    let program = python("import json; print(json.dumps({'error': 'x' * 1_000_000})); exit(1)");
    let outcome = call(program.tool("it"), json!({})).await;
    let error = outcome.error.as_ref().unwrap();
    for text in [&error.operator, &error.model] {
        assert!(text.len() < 30_000 && text.ends_with('…'), "{} bytes", text.len());
    }
}

#[tokio::test]
async fn a_secret_that_a_program_was_given_is_not_repeated() {
    let program = python("import os, sys; print(os.environ['TOKEN'], file=sys.stderr); exit(1)");
    let outcome = call(program.env("TOKEN", "canary-4711-0815").tool("it"), json!({})).await;
    assert!(expect_error(&outcome).contains("••••"), "{}", expect_error(&outcome));
    let debug = format!("{outcome:?}");
    assert!(!debug.contains("canary"), "{debug}");
    let command = python("").env("TOKEN", "canary-4711-0815").arg("--key=canary");
    assert!(!format!("{command:?}").contains("canary"), "{command:?}");
}
