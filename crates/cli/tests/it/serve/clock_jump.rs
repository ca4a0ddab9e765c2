//! The binary on a machine whose clock jumps.
//!
//! A preloaded library shifts the wall clock of the process by the seconds in a file; its monotonic clock goes on.

use std::{path::Path, process::Command};

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{HttpConnection, Process, connection::HttpResponse};
use crate::config::run_toolhub;

pub(super) const YEAR: i64 = 365 * 24 * 3600;

const PRELOADED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    int result = syscall(SYS_clock_gettime, id, at);
    if (id == CLOCK_REALTIME) {
        FILE *file = fopen(getenv("CLOCK_OFFSET_FILE"), "r");
        long seconds = 0;
        if (file && fscanf(file, "%ld", &seconds) == 1) at->tv_sec += seconds;
        if (file) fclose(file);
    }
    return result;
}
"#;

/// Compiles the library with the C compiler that Rust links with.
pub(super) fn compile_preloaded(folder: &TempFolder) -> String {
    folder.write("clock.c", PRELOADED);
    let library = folder.join("clock.so");
    let compiler =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(folder.join("clock.c")).status();
    assert!(compiler.expect("a C compiler is installed").success());
    library.to_string_lossy().into_owned()
}

fn count_lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn a_clock_that_jumps_expires_nothing_until_a_person_accepts_it() {
    let folder = TempFolder::new();
    let (library, offset) = (compile_preloaded(&folder), folder.join("offset"));
    folder.write(
        "toolhub.toml",
        r#"
[tools.pay]
command = "sh"
args = ["-c", "echo paid >> paid; echo '{}'"]
description = "Pays."
[tools.dangerous]
builtin = "dangerous"
[[policy]]
tool = "pay"
decision = "allow"
"#,
    );
    folder.write("offset", "0");
    let offset_file = offset.to_string_lossy().into_owned();
    let variables = [("LD_PRELOAD", library.as_str()), ("CLOCK_OFFSET_FILE", &offset_file), ("PATH", "/usr/bin:/bin")];
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let mut connection = HttpConnection::connect(server.port);
    let mut send = |what: &str, headers: &str, body: Value| connection.send(what, headers, &body.to_string());
    let waiting = send("POST /api/v1/tools/dangerous/calls", "", json!({"arguments": {"folder": "/tmp/x"}}));
    let approval = waiting.json()["approval"]["id"].as_str().expect("an approval").to_owned();
    let pay = |send: &mut dyn FnMut(&str, &str, Value) -> HttpResponse, key: &str| {
        let paid = send("POST /api/v1/tools/pay/calls", &format!("idempotency-key: {key}\r\n"), json!({}));
        assert_eq!((paid.status, &paid.json()["status"]), (200, &json!("success")), "{}", paid.text);
    };
    pay(&mut send, "first");
    for jump in [3600, -3600, YEAR, -YEAR] {
        folder.write("offset", &jump.to_string());
        pay(&mut send, &format!("during {jump}"));
        for key in ["first".to_owned(), format!("during {jump}")] {
            pay(&mut send, &key);
        }
        let jumped = send("GET /api/v1/info", "", json!({})).json()["clockJump"]["millis"].as_i64().unwrap_or(0);
        assert!((jumped - jump * 1000).abs() < 5_000, "{jumped} is not {jump}");
        assert!(send("GET /readyz?verbose", "", json!({})).text.contains("[!]clock jumped by"));
        let pending = send(&format!("GET /api/v1/approvals/{approval}"), "", json!({}));
        assert_eq!(pending.json()["state"], "pending", "{}", pending.text);
        folder.write("offset", "0");
        pay(&mut send, &format!("during {jump}"));
        assert_eq!(send("GET /api/v1/info", "", json!({})).json()["clockJump"], Value::Null);
    }
    assert_eq!(count_lines(&folder.join("paid")), 5, "each key once");

    folder.write("offset", &YEAR.to_string());
    pay(&mut send, "first");
    let address = format!("http://127.0.0.1:{}", server.port);
    let doctor = run_toolhub(folder.path(), &["doctor", "--server", &address], &[]);
    assert!(doctor.out.contains("jumped"), "{}{}", doctor.out, doctor.err);
    let accepted = run_toolhub(folder.path(), &["clock", "accept", "--server", &address], &[]);
    assert!(accepted.err.contains("follows the machine's clock"), "{}{}", accepted.out, accepted.err);
    assert_eq!(send("GET /api/v1/info", "", json!({})).json()["clockJump"], Value::Null);
    let pending = send(&format!("GET /api/v1/approvals/{approval}"), "", json!({}));
    assert_ne!(pending.json()["state"], "pending", "a year has passed: {}", pending.text);
}
