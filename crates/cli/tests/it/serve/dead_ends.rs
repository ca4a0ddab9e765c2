//! Commands and addresses that used to lead nowhere: each says what to do next.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    time::Duration,
};

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
    // A variable with a secret is needed by the server only.
    let secret = "[tools.secret]\nurl = \"https://service.example\"\nauth = { type = \"bearer\", token = { env = \"TOOLHUB_TEST_UNSET\" } }\n";
    folder.write("toolhub.toml", &format!("{config}{secret}"));
    let ran = run_toolhub(folder.path(), &["tools", "list"], &[QUIET]);
    assert_eq!((ran.code, ran.err.contains("problem")), (0, false), "{}", ran.err);
    let refused = run_toolhub(folder.path(), &["reload"], &[QUIET]).err;
    assert!(refused.contains("TOOLHUB_TEST_UNSET is not set"), "{refused}");
    assert!(refused.contains("start it with --env-file, which is read again at each reload"), "{refused}");
    drop(server);
    let ran = run_toolhub(folder.path(), &["tools", "list"], &[QUIET]);
    assert_eq!(ran.code, 2, "{}", ran.err);
}

#[test]
fn an_address_where_something_else_answers_is_not_taken_for_a_server() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    let other = std::thread::spawn(move || {
        for body in ["{}", "<html></html>"] {
            let (mut connection, _) = listener.accept().expect("a client");
            let _ = connection.read(&mut [0; 4096]);
            let length = body.len();
            let _ =
                write!(connection, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
        }
    });
    let folder = TempFolder::new();
    for command in ["tools list", "calls cancel call_1"] {
        let words: Vec<&str> = command.split(' ').chain(["--server", url.as_str()]).collect();
        let ran = run_toolhub(folder.path(), &words, &[QUIET]);
        assert!(ran.code != 0 && ran.err.contains("is not a Toolhub server"), "{command}: {} {}", ran.out, ran.err);
    }
    other.join().expect("it answered");
}

#[test]
fn a_command_waits_a_moment_for_another_one_that_has_the_store_open() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let arguments = ["tools", "list", "--set", "server.port=1"];
    assert_eq!(run_toolhub(folder.path(), &arguments, &[QUIET]).code, 0);
    let lock = fs::File::open(folder.path().join(".toolhub/toolhub.db.lock")).expect("it was opened once");
    lock.lock().expect("no other process has it");
    let other = std::thread::spawn(move || {
        std::thread::park_timeout(Duration::from_millis(500));
        drop(lock);
    });
    let ran = run_toolhub(folder.path(), &arguments, &[QUIET]);
    other.join().expect("it ended");
    assert_eq!(ran.code, 0, "{}", ran.err);
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

#[test]
fn the_lines_of_a_new_key_fit_the_config_of_init_and_the_key_is_listed() {
    let folder = TempFolder::new();
    let run = |arguments: &[&str]| run_toolhub(folder.path(), arguments, &[QUIET]);
    assert_eq!(run(&["init"]).code, 0);
    let port = ["--set", "server.port=1"];
    for (name, advice) in [("ann", "set mode = \"keys\" in the section [auth]"), ("ben", "add this at the end of")] {
        let created = run(&[&["keys", "create", name, "--scope", "admin"][..], &port].concat());
        assert!(created.err.contains(advice), "{}", created.err);
        let lines = created.err.split_once("[[auth.keys]]").expect("the lines for the config").1;
        let config = fs::read_to_string(folder.path().join("toolhub.toml")).expect("it is there");
        let config = config.replace("mode = \"local\"", "mode = \"keys\"");
        folder.write("toolhub.toml", &format!("{config}\n[[auth.keys]]{lines}"));
        let checked = run(&["config", "check"]);
        assert_eq!(checked.code, 0, "{}", checked.err);
    }
    let listed = run(&[&["keys", "list"][..], &port].concat());
    assert!(listed.out.contains("config:ann") && listed.out.contains("config:ben"), "{}{}", listed.out, listed.err);
}
