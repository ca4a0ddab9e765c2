//! MCP servers of a config: started with the hub, called through it, and changed by a reload.

use std::{
    fs,
    io::{BufRead, BufReader, Read as _, Write as _},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{TOOLS, connection::HttpConnection, process::Process};
use crate::config::{RunOutput, run_toolhub};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../connect/tests/mcp_servers/stdio_server.py");

const HTTP_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../connect/tests/mcp_servers/http_server.py");

pub(super) const QUIET: [(&str, &str); 1] = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")];

/// A folder with the list of tools of the test server.
pub(super) fn folder(tools: &[&str]) -> TempFolder {
    let folder = TempFolder::new();
    set_tools(&folder, tools);
    folder
}

fn set_tools(folder: &TempFolder, tools: &[&str]) {
    let tools: Value = tools.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
    folder.write("tools.json", &tools.to_string());
}

/// The section of a test server, all of whose tools are read-only.
pub(super) fn server(folder: &TempFolder, name: &str, more: &str) -> String {
    let tools = folder.path().join("tools.json");
    format!(
        "[mcp_servers.{name}]\ncommand = \"python3\"\nargs = [{SERVER:?}]\nread_only = [\"*\"]\nenv = {{ TOOLS = {tools:?} }}\n{more}\n"
    )
}

pub(super) fn run(folder: &TempFolder, arguments: &[&str]) -> RunOutput {
    run_toolhub(folder.path(), arguments, &QUIET)
}

/// The output of a tool, once its server is connected.
pub(super) fn call(connection: &mut HttpConnection, tool: &str) -> Value {
    for _ in 0..3_000 {
        let response = connection.send(&format!("POST /api/v1/tools/{tool}/calls"), "", "{\"arguments\": {}}");
        if response.status == 200 {
            return response.json()["output"].clone();
        }
        let code = response.json()["code"].clone();
        assert!(code == "tool_not_found" || code == "tool_unavailable", "{}", response.text);
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    panic!("`{tool}` was never there");
}

pub(super) fn reload(connection: &mut HttpConnection) -> Value {
    let response = connection.send("POST /api/v1/reload", "", "");
    assert_eq!(response.status, 200, "{}", response.text);
    response.json()
}

#[test]
fn commands_use_the_tools_of_mcp_servers_of_the_config() {
    let folder = folder(&["echo", "hang"]);
    let more = "exclude = [\"hang\"]\n[mcp_servers.t.tools.echo]\ndescription = \"Of the config.\"\ntags = [\"mine\"]\ntimeout = \"9s\"";
    folder.write("toolhub.toml", &server(&folder, "t", more));
    let checked = run(&folder, &["config", "check"]);
    assert!(checked.out.contains("0 tools, 1 MCP server,"), "{}{}", checked.out, checked.err);
    let listed: Value = serde_json::from_str(&run(&folder, &["--json", "tools", "list"]).out).expect("a list");
    let names: Vec<_> = listed["items"].as_array().into_iter().flatten().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["t__echo"], "{listed}");
    let shown = run(&folder, &["--json", "tools", "show", "t__echo"]).out;
    assert!(shown.contains("Of the config.") && shown.contains("mine"), "{shown}");
    let called = run(&folder, &["--json", "call", "t__echo", "city=Oslo"]);
    assert!(called.code == 0 && called.out.contains("Oslo"), "{}{}", called.out, called.err);
}

#[test]
fn a_tool_that_the_owner_calls_risky_asks_although_its_server_is_read_only() {
    let folder = folder(&["echo", "pid"]);
    let more = "[mcp_servers.t.tools.echo]\nannotations = { read_only = false }\n";
    folder.write("toolhub.toml", &server(&folder, "t", more));
    let asks = run(&folder, &["--json", "--no-input", "call", "t__echo"]);
    assert!(asks.out.contains("\"approval\""), "{}{}", asks.out, asks.err);
    assert_eq!(run(&folder, &["--no-input", "call", "t__pid"]).code, 0);
}

#[test]
fn each_thread_has_a_process_of_its_own_if_the_config_says_so() {
    let folder = folder(&["pid", "count"]);
    folder.write("toolhub.toml", &format!("{TOOLS}{}", server(&folder, "t", "instance = \"per_thread\"")));
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    call(connection, "t__pid");
    let mut call_in = |tool: &str, thread: &str| {
        let body = json!({"arguments": {}, "threadId": thread}).to_string();
        let response = connection.send(&format!("POST /api/v1/tools/{tool}/calls"), "", &body);
        assert_eq!(response.status, 200, "{}", response.text);
        response.json()["output"].as_str().expect("a text").to_owned()
    };
    let (first, second) = (call_in("t__pid", "a"), call_in("t__pid", "b"));
    assert_ne!(first, second);
    assert_eq!([call_in("t__count", "a"), call_in("t__count", "b")], ["1", "1"]);
    let state = |connection: &mut HttpConnection, tool: &str| {
        let response = connection.send(&format!("GET /api/v1/state/contexts/a%2F{tool}/connection"), "", "");
        assert_eq!(response.status, 200, "{}", response.text);
        response.json()
    };
    let live = state(connection, "t__count");
    assert!(live["createdAt"].is_string(), "{live}");
    assert_eq!((&live["data"]["active"], &live["data"]["sessionActive"]), (&json!(true), &json!(true)), "{live}");
    let closed = connection.send("DELETE /api/v1/threads/a/instances/t__count", "", "");
    assert_eq!(closed.json()["closed"], json!(["t__count"]), "{}", closed.text);
    assert!(!fs::exists(format!("/proc/{first}")).expect("/proc is there"), "its process is gone");
    assert!(fs::exists(format!("/proc/{second}")).expect("/proc is there"), "that of another thread is not");
    assert_eq!(state(connection, "t__pid")["data"]["sessionActive"], json!(false));
}

/// `toolhub` at a terminal, which Python provides.
struct Terminal {
    process: Child,
    shown: String,
}

impl Terminal {
    fn start(folder: &TempFolder, arguments: &[&str]) -> Self {
        let script = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
        let mut command = Command::new("python3");
        command.args(["-c", script, env!("CARGO_BIN_EXE_toolhub")]).args(arguments);
        command.current_dir(folder.path()).env("HOME", folder.path()).env("NO_COLOR", "1").env("TERM", "dumb");
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python can be started");
        Self { process, shown: String::new() }
    }

    /// Reads what is shown up to this text, or to the end.
    fn read_until(&mut self, end: Option<&str>) -> &str {
        let output = self.process.stdout.as_mut().expect("it is piped");
        let mut byte = [0];
        while end.is_none_or(|end| !self.shown.contains(end)) && output.read(&mut byte).expect("it can be read") > 0 {
            self.shown.push(char::from(byte[0]));
        }
        &self.shown
    }

    /// Answers a question, and returns the exit code and all that was shown.
    fn answer(mut self, text: &str) -> (i32, String) {
        self.process.stdin.as_mut().expect("it is piped").write_all(text.as_bytes()).expect("it can be written");
        self.read_until(None);
        let code = self.process.wait().expect("it ends").code().unwrap_or(-1);
        (code, self.shown)
    }
}

#[test]
fn only_definitions_that_were_shown_at_the_terminal_are_approved() {
    let folder = TempFolder::new();
    let set_description = |text: &str| {
        let echo = json!({"name": "echo", "description": text, "inputSchema": {"type": "object"}});
        let flood = json!({"name": "flood", "inputSchema": {"type": "object"}});
        folder.write("tools.json", &json!([echo, flood]).to_string());
    };
    set_description("Echoes.");
    let section = server(&folder, "t", "protocol = \"legacy\"");
    folder.write("toolhub.toml", &format!("{TOOLS}{section}"));
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    call(connection, "t__echo");
    // Changes the definition, and waits until the hub has seen it.
    let mut change = |text: &str| {
        set_description(text);
        let flood = connection.send("POST /api/v1/tools/t__flood/calls", "", "{\"arguments\": {\"count\": 1}}");
        assert_eq!(flood.status, 200, "{}", flood.text);
        for _ in 0..3_000 {
            let changes = connection.send("GET /api/v1/mcp-servers/t/changes", "", "");
            if changes.text.contains(text) {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        panic!("the change to {text:?} was never seen");
    };
    let address = format!("http://127.0.0.1:{}", process.port);
    let approve = ["mcp", "approve", "t", "--server", &address];
    change("Asks for keys.");
    let mut terminal = Terminal::start(&folder, &approve);
    assert!(terminal.read_until(Some("[y/N] ")).contains("Asks for keys."), "{}", terminal.shown);
    change("Asks for all keys.");
    let (code, shown) = terminal.answer("y\n");
    assert!(code != 0 && shown.contains("look at the difference again: toolhub mcp diff t"), "{code} {shown}");

    let (code, shown) = Terminal::start(&folder, &approve).answer("n\n");
    assert!(code == 0 && shown.contains("nothing was approved"), "{code} {shown}");
    let (code, shown) = Terminal::start(&folder, &approve).answer("y\n");
    assert!(code == 0 && shown.contains("Asks for all keys.") && shown.contains("approved  echo"), "{code} {shown}");
    call(connection, "t__echo");
}

#[test]
fn a_reload_restarts_changed_servers_only() {
    let folder = folder(&["pid", "echo"]);
    let write = |servers: &[String]| folder.write("toolhub.toml", &format!("{TOOLS}{}", servers.concat()));
    let (same, other) = (server(&folder, "same", ""), server(&folder, "other", ""));
    write(&[same.clone(), other]);
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    let (same_pid, other_pid) = (call(connection, "same__pid"), call(connection, "other__pid"));
    assert_eq!(reload(connection)["sections"], json!([]));

    // Moved lines and other tools change nothing; other settings restart their server.
    let changed = server(&folder, "other", "startup_timeout = \"50s\"\nexclude = [\"echo\"]");
    let dependent = "[tools.clock]\nbuiltin = \"clock\"\ndepends_on = [\"new__echo\"]\n".to_owned();
    write(&[changed, server(&folder, "new", ""), same.clone(), dependent]);
    let report = reload(connection);
    assert_eq!(report["sections"], json!(["mcp_servers.new", "mcp_servers.other"]), "{report}");
    assert_eq!(report["added"], json!(["clock"]));
    assert_eq!(call(connection, "same__pid"), same_pid, "the process of an unchanged server stays");
    assert_ne!(call(connection, "other__pid"), other_pid);
    call(connection, "new__echo");

    // A config with a mistake changes nothing.
    write(&[same.clone(), server(&folder, "new", "prefix = \"same\"")]);
    let refused = connection.send("POST /api/v1/reload", "", "");
    assert!(refused.status == 422 && refused.text.contains("have the same prefix"), "{}", refused.text);
    assert_eq!(call(connection, "same__pid"), same_pid);

    // A tool may take the place of a server.
    write(&[same, "[tools.new__echo]\nbuiltin = \"clock\"\n".to_owned()]);
    let report = reload(connection);
    assert_eq!(report["sections"], json!(["mcp_servers.new", "mcp_servers.other"]), "{report}");
    assert_eq!(connection.send("GET /api/v1/tools/other__pid", "", "").status, 404);
    assert_eq!(connection.send("GET /api/v1/tools/new__echo", "", "").json()["kind"], "stateless");
    assert_eq!(call(connection, "same__pid"), same_pid);
}

#[test]
fn a_server_that_cannot_start_stops_nothing_else() {
    let folder = folder(&["echo"]);
    let broken =
        "[mcp_servers.broken]\ncommand = \"./missing\"\n[mcp_servers.silent]\ncommand = \"sleep\"\nargs = [\"600\"]\n";
    folder.write("toolhub.toml", &format!("{TOOLS}{broken}{}", server(&folder, "t", "")));
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    assert_eq!(super::calculate(connection), 200);
    call(connection, "t__echo");
    assert_eq!(connection.send("GET /readyz", "", "").status, 200);
    let url = format!("http://127.0.0.1:{}", process.port);
    let missing = run(&folder, &["--server", &url, "call", "broken__read", "path=x"]);
    assert!(missing.err.contains("the server `broken`, which may add it, "), "{}", missing.err);
}

#[test]
fn doctor_tries_each_server_and_check_starts_none() {
    let folder = folder(&["echo", "pid"]);
    let started = folder.path().join("started");
    folder.write("touch.sh", &format!("touch {}\n", started.display()));
    let failing = "[mcp_servers.failing]\ncommand = \"sh\"\nargs = [\"touch.sh\"]\n[mcp_servers.off]\nenabled = false\ncommand = \"sh\"\n";
    folder.write("toolhub.toml", &format!("{}{failing}", server(&folder, "t", "")));
    assert_eq!(run(&folder, &["config", "check"]).code, 0);
    assert!(!started.exists(), "`config check` starts no server");
    let doctor = run(&folder, &["doctor"]);
    assert!(doctor.out.contains("mcp server  t: connected, protocol 2026-07-28, 2 tools"), "{}", doctor.out);
    assert!(doctor.out.contains("mcp server  failing: ") && !doctor.out.contains("off:"), "{}", doctor.out);
    assert_eq!(doctor.code, 4, "{}", doctor.out);
    assert!(fs::exists(started).expect("it can be looked at"));
}

/// The test server at an address.
pub(super) struct HttpServer {
    child: Child,
    port: String,
}

impl HttpServer {
    /// With flags that say what it does; `auth` makes it want a token.
    pub(super) fn start(flags: &[&str]) -> Self {
        let mut command = Command::new("python3");
        let mut child = command.arg(HTTP_SERVER).args(flags).stdout(Stdio::piped()).spawn().expect("python3 is there");
        let mut port = String::new();
        let output = child.stdout.take().expect("its stdout is ours");
        BufReader::new(output).read_line(&mut port).expect("it prints its port");
        Self { child, port: port.trim().to_owned() }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

#[test]
fn a_server_at_an_address_gets_the_credentials_of_the_config() {
    let (folder, server) = (TempFolder::new(), HttpServer::start(&["auth"]));
    let url = server.url();
    let section = format!(
        "[mcp_servers.web]\nurl = {url:?}\nread_only = [\"*\"]\nheaders = {{ X-Team = \"blue\" }}\n\
         auth = {{ type = \"bearer\", token = {{ env = \"MCP_TOKEN\" }} }}\n"
    );
    folder.write("toolhub.toml", &section);
    let variables = [QUIET[0], ("MCP_TOKEN", "s3cr3t-token")];
    let run = |arguments: &[&str]| run_toolhub(folder.path(), arguments, &variables);
    let refused = run(&["config", "check"]);
    assert!(refused.code == 2 && refused.err.contains("add allow_hosts = [\"127.0.0.1\"]"), "{}", refused.err);
    folder.write("toolhub.toml", &format!("{section}allow_hosts = [\"127.0.0.1\"]\n"));
    let called = run(&["--json", "call", "web__echo", "city=Oslo"]);
    assert!(called.code == 0 && called.out.contains("blue"), "{}{}", called.out, called.err);
    let shown = run(&["config", "show"]);
    for output in [called, shown] {
        assert!(!output.out.contains("s3cr3t") && !output.err.contains("s3cr3t"), "{}{}", output.out, output.err);
    }
    let wrong = run_toolhub(folder.path(), &["doctor"], &[QUIET[0], ("MCP_TOKEN", "another-token")]);
    assert!(wrong.code == 4 && wrong.out.contains("set `auth`, or correct it"), "{}", wrong.out);
}

#[test]
fn an_address_that_ends_in_sse_may_speak_streamable_http() {
    let (folder, server) = (TempFolder::new(), HttpServer::start(&[]));
    let old = HttpServer::start(&["http-sse"]);
    let section = |name: &str, server: &HttpServer| {
        let url = server.url().replace("/mcp", "/sse");
        format!("[mcp_servers.{name}]\nurl = {url:?}\nallow_hosts = [\"127.0.0.1\"]\nread_only = [\"*\"]\n")
    };
    folder.write("toolhub.toml", &section("web", &server));
    let called = run(&folder, &["--json", "call", "web__echo", "city=Oslo"]);
    assert!(called.code == 0 && called.out.contains("Oslo"), "{}{}", called.out, called.err);
    // One that speaks only HTTP+SSE is told apart when it is connected.
    folder.write("toolhub.toml", &section("old", &old));
    let doctor = run(&folder, &["doctor"]);
    let instead = format!("try `url = \"{}\"`", old.url());
    assert!(doctor.out.replace('\n', " ").contains(&instead), "{instead}\n{}", doctor.out);
}

#[test]
fn a_command_that_needs_no_tools_starts_no_server() {
    let folder = folder(&["echo"]);
    let started = folder.path().join("started");
    folder.write("touch.sh", &format!("touch {}\n", started.display()));
    folder.write("toolhub.toml", "[mcp_servers.t]\ncommand = \"sh\"\nargs = [\"touch.sh\"]\n");
    for command in [["keys", "list"], ["calls", "list"], ["threads", "list"], ["approvals", "list"]] {
        let listed = run(&folder, &command);
        assert!(listed.code == 0 && !started.exists(), "{command:?}: {}{}", listed.out, listed.err);
    }
    run(&folder, &["tools", "list"]);
    assert!(started.exists(), "a list of tools needs the server");
}
