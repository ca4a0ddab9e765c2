//! What a program was given as a secret is not repeated, in whatever way the program lets it slip.

use serde_json::json;

use super::{call, misbehavior::LogCapture, python, wrong};

const LONG_SECRET: &str = "canary-4711-0815-and-more-of-it";
/// Another one that begins the same way, and one of several lines, as keys in PEM are.
const SHORT_SECRET: &str = "canary-4711";
const MULTILINE_SECRET: &str =
    "-----BEGIN KEY-----\r\ncanary/MIIEpAIBAAKCAQEA\r\ncanary/7bq+fUqQ2vtkWn7\r\n-----END KEY-----";

/// Programs that have the secrets in `long`, `short` and `lines`, and end badly.
const LEAKING_PROGRAMS: [&str; 9] = [
    "aside(long, short)",
    "print(long)",
    "print('{\"a\": \"' + long)",
    "print('x' * 60, long)",
    "aside(lines)",
    "aside('x' * 990, long)",
    // One line that is longer than what is kept, cut in the middle of the secret.
    "sys.stderr.write(long + 'x' * (4096 - 10))",
    "sys.stderr.write(long + 'x' * (4096 - 10) + '\\n')",
    "print('x' * 60 + long, flush=True); os.kill(os.getpid(), 9)",
];

#[tokio::test]
async fn no_slip_of_a_program_shows_a_secret_it_was_given() {
    for (slip, stateful) in LEAKING_PROGRAMS.into_iter().flat_map(|slip| [(slip, false), (slip, true)]) {
        let log = LogCapture::default();
        let _here = tracing::subscriber::set_default(log.clone());
        let code = format!(
            "import os, sys\nlong, short, lines = (os.environ[name] for name in ('LONG', 'SHORT', 'LINES'))\n\
             def aside(*words): print(*words, file=sys.stderr)\nsys.stdin.readline()\n{slip}\nsys.exit(3)"
        );
        let command = python(&code).env("SHORT", SHORT_SECRET).env("LONG", LONG_SECRET).env("LINES", MULTILINE_SECRET);
        let tool = if stateful { command.stateful_tool("it") } else { command.tool("it") };
        let outcome = call(tool, json!({})).await;
        let told = wrong(&outcome);
        for text in [told.to_owned(), format!("{outcome:?}"), log.text()] {
            assert!(!["canary", "0815", "more-of"].iter().any(|part| text.contains(part)), "{slip}: {text}");
        }
        // What it said is told all the same.
        assert!(["***", "xxx", "in the middle of the JSON"].iter().any(|part| told.contains(part)), "{slip}: {told}");
    }
}
