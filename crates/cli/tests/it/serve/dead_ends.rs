//! Commands and addresses that used to lead nowhere: each says what to do next.

use std::{fs, net::TcpListener};

use serde_json::Value;
use toolhub_testkit::TempFolder;

use super::{TOOLS, connection::HttpConnection, process::Process};
use crate::config::run_toolhub;

const QUIET: (&str, &str) = ("TOOLHUB__TELEMETRY__LOG__LEVEL", "off");

#[test]
fn without_a_config_and_a_server_a_command_says_so_and_creates_nothing() {
    let folder = TempFolder::new();
    for command in ["tools list", "call clock", "chat -p hello", "threads list", "backup", "restore copy.db"] {
        let words: Vec<&str> = command.split(' ').chain(["--set", "server.port=1"]).collect();
        let ran = run_toolhub(folder.path(), &words, &[QUIET]);
        assert_eq!(ran.code, 2, "{command}: {}", ran.err);
        assert!(ran.err.contains("there is no toolhub.toml in"), "{command}: {}", ran.err);
        assert!(ran.err.contains("toolhub init") && ran.err.contains("--server URL"), "{command}: {}", ran.err);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
}

#[test]
fn doctor_names_tools_that_cannot_work_and_a_server_starts_without_them() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &format!("{TOOLS}[tools.gone]\ncommand = \"no-such-program-of-toolhub\"\n"));
    let ran = run_toolhub(folder.path(), &["doctor", "--set", "server.port=1"], &[]);
    assert!(ran.code != 0 && ran.out.contains("tools.gone.command: program `no-such-program"), "{}", ran.out);
    assert!(
        ran.out.contains("fix: install it") && ran.out.contains("[tools.gone] has no `description`"),
        "{}",
        ran.out
    );
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[QUIET]);
    assert_eq!(HttpConnection::connect(server.port).send("GET /api/v1/tools/gone", "", "").status, 200);
}

#[test]
fn a_config_that_was_broken_does_not_stop_commands_for_its_server() {
    let folder = TempFolder::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    drop(listener);
    let config = format!("[server]\nport = {port}\n{TOOLS}");
    folder.write("toolhub.toml", &config);
    let server = Process::start(folder.path(), &["serve"], &[QUIET]);
    folder.write("toolhub.toml", &format!("{config}[tools.broken]\nbuiltin = \"nothing\"\n"));
    let ran = run_toolhub(folder.path(), &["tools", "list"], &[QUIET]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("calculator") && !ran.out.contains("broken"), "{}", ran.out);
    assert!(ran.err.contains("the config has 1 problem; using the server"), "{}", ran.err);
    drop(server);
    let ran = run_toolhub(folder.path(), &["tools", "list"], &[QUIET]);
    assert_eq!(ran.code, 2, "{}", ran.err);
}

#[test]
fn suggested_commands_keep_the_server_and_the_thread() {
    let folder = TempFolder::new();
    let limited = "[tools.rare]\nbuiltin = \"clock\"\nrate_limit = { requests = 1, per = \"1h\" }\n";
    folder.write("toolhub.toml", &format!("{TOOLS}{limited}"));
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[QUIET]);
    let elsewhere = TempFolder::new();
    let url = format!("http://127.0.0.1:{}", server.port);
    let run = |words: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--server", &url]).collect();
        run_toolhub(elsewhere.path(), &words, &[])
    };
    let unknown = run("call calculatr expression=1 --thread t1");
    let suggestion = format!("toolhub call calculator expression=1 --server {url} --thread t1");
    assert!(unknown.err.contains(&suggestion), "{}", unknown.err);
    assert_eq!(run("call rare --thread t1").code, 0);
    let limited = run("call rare --thread t1 --json");
    assert!(limited.err.contains("\"retryAfter\":3"), "{}", limited.err);
    let list: Value = serde_json::from_str(&run("tools list --thread t1 --json").out).expect("a list");
    assert_eq!((&list["items"][0]["name"], &list["nextCursor"]), (&"calculator".into(), &Value::Null), "{list}");
    let more = run("calls list --limit 1");
    assert!(!more.err.contains("there are more"), "{}", more.err);
    assert_eq!(run("call counter --thread t1").code, 0);
    let more = run("calls list --limit 1");
    assert!(more.err.trim_end().ends_with("or a higher --limit"), "{}", more.err);
    let thread = run("threads show t1");
    assert!(thread.out.contains("last active") && thread.out.contains("counter"), "{}", thread.out);
    let unasked = run("threads delete t1");
    assert_eq!(unasked.code, 2, "{}", unasked.err);
    assert!(unasked.err.contains(&format!("toolhub threads delete t1 --yes --server {url}")), "{}", unasked.err);
    assert_eq!(run("threads delete t1 --yes").code, 0);
    let secure = run_toolhub(elsewhere.path(), &["tools", "list", "--server", &url.replace("http:", "https:")], &[]);
    assert_eq!(secure.code, 4, "{}", secure.err);
    assert!(secure.err.contains("speaks http, not https") && secure.err.contains(&url), "{}", secure.err);
    assert_eq!(HttpConnection::connect(server.port).send("GET /", "", "").status, 307);
}
