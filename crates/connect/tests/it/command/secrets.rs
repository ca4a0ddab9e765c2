//! Secrets given to a program are redacted, however the program leaks them.

use serde_json::json;

use super::{call, expect_error, misbehavior::LogCapture, python};

const LONG_SECRET: &str = "canary-4711-0815-and-more-of-it";
/// A prefix of the long secret, and a secret of several lines, such as a PEM key.
const SHORT_SECRET: &str = "canary-4711";
const MULTILINE_SECRET: &str =
    "-----BEGIN KEY-----\r\ncanary/MIIEpAIBAAKCAQEA\r\ncanary/7bq+fUqQ2vtkWn7\r\n-----END KEY-----";

/// Programs that leak the secrets in `long`, `short` and `lines`, and fail.
const LEAKING_PROGRAMS: [&str; 9] = [
    "aside(long, short)",
    "print(long)",
    "print('{\"a\": \"' + long)",
    "print('x' * 60, long)",
    "aside(lines)",
    "aside('x' * 990, long)",
    // One line longer than the captured tail, cut in the middle of the secret.
    "sys.stderr.write(long + 'x' * (4096 - 10))",
    "sys.stderr.write(long + 'x' * (4096 - 10) + '\\n')",
    "print('x' * 60 + long, flush=True); os.kill(os.getpid(), 9)",
];

#[tokio::test]
async fn what_a_program_returns_and_reports_has_no_secrets_and_its_other_variables_are_kept() {
    let report = json!({"error": {"message": "wrong word canary-4711 at https://example.com/api"}});
    let result = json!({"echo": ["canary-4711", "https://example.com/api"]});
    for (answer, code) in [(report, 3), (result, 0)] {
        for stateful in [false, true] {
            let line = if code == 0 && stateful { json!({"result": answer}) } else { answer.clone() };
            let program = format!("import sys\nsys.stdin.readline()\nprint('{line}', flush=True)\nsys.exit({code})");
            let command = python(&program).env("SHOP_TOKEN", SHORT_SECRET).env("SHOP_URL", "https://example.com/api");
            let tool = if stateful { command.stateful_tool("it") } else { command.tool("it") };
            let outcome = call(tool, json!({})).await;
            let text = format!("{outcome:?}");
            assert!(text.contains("••••") && !text.contains("canary"), "{text}");
            assert!(code != 0 || outcome.output["echo"][1] == "https://example.com/api", "{text}");
        }
    }
}

#[tokio::test]
async fn no_slip_of_a_program_shows_a_secret_it_was_given() {
    for (leak, stateful) in LEAKING_PROGRAMS.into_iter().flat_map(|leak| [(leak, false), (leak, true)]) {
        let log = LogCapture::default();
        let _guard = tracing::subscriber::set_default(log.clone());
        let code = format!(
            "import os, sys\nlong, short, lines = (os.environ[name] for name in ('LONG', 'SHORT', 'LINES'))\n\
             def aside(*words): print(*words, file=sys.stderr)\nsys.stdin.readline()\n{leak}\nsys.exit(3)"
        );
        let command = python(&code).env("SHORT", SHORT_SECRET).env("LONG", LONG_SECRET).env("LINES", MULTILINE_SECRET);
        let tool = if stateful { command.stateful_tool("it") } else { command.tool("it") };
        let outcome = call(tool, json!({})).await;
        let error = expect_error(&outcome);
        // The random id of a call may contain the short secret.
        let id = outcome.id.to_string();
        for text in [error.to_owned(), format!("{outcome:?}"), log.text()].map(|text| text.replace(&id, "")) {
            assert!(!["canary", "0815", "more-of"].iter().any(|part| text.contains(part)), "{leak}: {text}");
        }
        // The error still quotes the rest of the output.
        assert!(["••••", "xxx", "truncated"].iter().any(|part| error.contains(part)), "{leak}: {error}");
    }
}
