//! Secrets from every source, searched for in everything that the binary logs, stores, prints and answers.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    thread,
};

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{HttpConnection, Process, mcp_servers::HttpServer, service::Service, tools::wait_until};
use crate::config::run_toolhub;

/// Every planted secret begins with this.
const PLANTED: &str = "canary-";
/// `me:canary-basic-password`, as basic authentication sends it.
const BASIC_PAIR: &str = "bWU6Y2FuYXJ5LWJhc2ljLXBhc3N3b3Jk";

/// The variables of the server, which its config refers to.
const VARIABLES: [(&str, &str); 15] = [
    ("HEADER_VALUE", "canary-header-from-variable"),
    ("WEATHER_KEY", "canary-query-of-url"),
    ("BOT_TOKEN", "canary-path-of-url"),
    ("BEARER_TOKEN", "canary-bearer"),
    ("QUERY_KEY", "canary-api-key-in-query"),
    ("BINARY_TOKEN", "canary-repeated-in-bytes"),
    ("REFUSED_TOKEN", "canary-repeated-in-a-refusal"),
    ("CLIENT_SECRET", "canary-body-of-config"),
    ("ARG_TOKEN", "canary-argument-of-program"),
    ("API_TOKEN", "canary-variable-in-result"),
    ("DATABASE_URL", "postgres://canary-variable-in-error"),
    ("MAIL_PASSWORD", "canary-variable-on-stderr"),
    ("STATE_TOKEN", "canary-variable-in-state"),
    ("MCP_TOKEN", "canary-variable-of-mcp-program"),
    ("MCP_KEY", "canary-header-of-mcp-address"),
];

const CONFIG: &str = r#"
[auth]
mode = "keys"
[[auth.keys]]
name = "ops"
hash = { env = "OPS_HASH" }
scopes = ["admin"]
[server]
tool_hosts = ["127.0.0.1"]
[telemetry]
redact = ["Salary*"]
log = { level = "trace", format = "json" }
[llm]
provider = "scripted"
script = "script.toml"
[agents.default]
[agents.outside]
tool_execution = "external"
[tools.header]
url = "SERVICE/header"
headers = { X-Api-Key = "canary-header-literal", X-Custom = { env = "HEADER_VALUE" } }
[tools.query]
url = "SERVICE/query?appid=${WEATHER_KEY}"
query = { access_token = "canary-query-literal" }
[tools.path]
url = "SERVICE/bot${BOT_TOKEN}/send"
[tools.bearer]
url = "SERVICE/bearer"
auth = { type = "bearer", token = { env = "BEARER_TOKEN" } }
[tools.basic]
url = "SERVICE/basic"
auth = { type = "basic", username = "me", password = { file = "password.txt" } }
[tools.key]
url = "SERVICE/key"
auth = { type = "api_key", name = "appid", in = "query", value = { env = "QUERY_KEY" } }
[tools.session]
url = "SERVICE/session"
session = true
[tools.binary]
url = "SERVICE/binary"
auth = { type = "bearer", token = { env = "BINARY_TOKEN" } }
[tools.refused]
url = "SERVICE/refuse"
auth = { type = "bearer", token = { env = "REFUSED_TOKEN" } }
[tools.body]
url = "SERVICE/body"
method = "POST"
body = { client_secret = "${CLIENT_SECRET}" }
[tools.post]
url = "SERVICE/quiet"
method = "POST"
body = { password = "{password}" }
[tools.result]
command = "python3"
args = ["program.py", "result", "--token=${ARG_TOKEN}"]
pass_env = ["API_TOKEN"]
[tools.error]
command = "python3"
args = ["program.py", "error"]
pass_env = ["DATABASE_URL"]
[tools.stderr]
command = "python3"
args = ["program.py", "stderr"]
pass_env = ["MAIL_PASSWORD"]
[tools.broken]
command = "python3"
args = ["program.py", "broken"]
env = { OTHER_TOKEN = "canary-variable-in-broken-output" }
[tools.keeper]
command = "python3"
args = ["program.py", "state"]
kind = "stateful"
pass_env = ["STATE_TOKEN"]
[tools.login]
command = "python3"
args = ["program.py", "login"]
parameters = { type = "object", properties = { pin_token = { type = "integer" } } }
[tools.pay]
command = "python3"
args = ["program.py", "login"]
confirm = true
parameters = { type = "object", properties = { password = { type = "string" }, qty = { type = "integer" } } }
[mcp_servers.leaky]
command = "python3"
args = ["mcp.py"]
pass_env = ["MCP_TOKEN"]
read_only = ["*"]
[mcp_servers.remote]
url = "MCP_URL"
allow_hosts = ["127.0.0.1"]
headers = { X-Key = { env = "MCP_KEY" } }
read_only = ["*"]
"#;

/// An MCP server that repeats its secret wherever it can.
const MCP_PROGRAM: &str = r#"
import json, os, sys
token = os.environ["MCP_TOKEN"]
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
print("started with", token, file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "server/discover":
        send(id=id, error={"code": -32601, "message": "unknown, " + token})
    elif method == "initialize":
        info = {"name": "leaky " + token, "version": token}
        send(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "logging": {}}, "serverInfo": info})
    elif method == "tools/list":
        names = ["text", "structured", "image", "reported", "failed", "invalid"]
        schema = {"type": "object", "properties": {"a": {"type": "string", "description": token}}}
        broken = {"name": "broken", "description": token, "inputSchema": {"type": "object", "$ref": token}}
        send(id=id, result={"tools": [{"name": n, "description": "uses " + token, "inputSchema": schema} for n in names] + [broken]})
    elif method == "tools/call":
        name, progress = params["name"], params["_meta"]["progressToken"]
        send(method="notifications/message", params={"level": "info", "logger": token, "data": {"token": token}})
        send(method="notifications/progress", params={"progressToken": progress, "progress": 1, "message": "with " + token})
        if name == "failed":
            send(id=id, error={"code": -32000, "message": "failed with " + token, "data": token})
        elif name == "invalid":
            send(id=id, result={"content": 7, "resultType": token})
        else:
            text = {"type": "text", "text": "the token is " + token}
            link = {"type": "resource_link", "uri": "https://example.org/" + token, "name": token}
            structured = {"structuredContent": {"token": token}} if name == "structured" else {}
            send(id=id, result={"content": [text, link], "isError": name == "reported", **structured})
    elif id is not None:
        send(id=id, result={})
"#;

const PROGRAM: &str = r#"
import json, os, sys
mode = sys.argv[1]
if mode == "state":
    for line in sys.stdin:
        asked = json.loads(line)
        saved = {"saved": "Bearer " + os.environ["STATE_TOKEN"]}
        print(json.dumps({"id": asked["id"], "result": "saved", "state": saved}), flush=True)
arguments = json.load(sys.stdin)["arguments"]
if mode == "result":
    print(json.dumps({"token was": os.environ["API_TOKEN"], "args": sys.argv[2:]}))
elif mode == "error":
    print(json.dumps({"error": "cannot connect to " + os.environ["DATABASE_URL"]}))
    sys.exit(1)
elif mode == "stderr":
    print("password is", os.environ["MAIL_PASSWORD"], file=sys.stderr)
    sys.exit("giving up on " + os.environ["MAIL_PASSWORD"])
elif mode == "broken":
    print("not JSON: " + os.environ["OTHER_TOKEN"])
else:
    print(json.dumps(sum(len(str(value)) for value in arguments.values())))
"#;

const SCRIPT: &str = r#"
[[turn]]
when = { user = "log in" }
call = [{ tool = "login", args = { session_token = "canary-argument-of-model" } }]
[[turn]]
when = { user = "outside" }
call = [{ tool = "login", args = { session_token = "given-to-an-executor" } }]
[[turn]]
when = { user = "mistake" }
call = [{ tool = "login", args = { pin_token = "canary-invalid-argument-of-model" } }]
[[turn]]
when = { tool_result = "*" }
say = "Done."
"#;

/// Everything that was searched, with the place it comes from.
#[derive(Default)]
struct Findings(Vec<(String, String)>);

impl Findings {
    fn add(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.0.push((place.into(), text.into()));
    }

    /// All files of a folder, however deep; config and programs of the test contain the secrets themselves.
    fn add_files(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).expect("the folder can be read").flatten() {
            let (path, own) = (entry.path(), ["toolhub.toml", "script.toml", "program.py", "mcp.py", "password.txt"]);
            if path.is_dir() {
                self.add_files(&path);
            } else if !own.iter().any(|name| path.ends_with(name)) {
                let bytes = fs::read(&path).expect("the file can be read");
                self.add(path.display().to_string(), String::from_utf8_lossy(&bytes));
            }
        }
    }

    #[track_caller]
    fn assert_none(&self, secrets: &[&str]) {
        let around = |text: &str, at: usize| {
            let (from, to) = (at.saturating_sub(200), (at + 100).min(text.len()));
            text[text.floor_char_boundary(from)..text.ceil_char_boundary(to)].to_owned()
        };
        let hits = self.0.iter().flat_map(|(place, text)| {
            let found = secrets.iter().filter_map(move |secret| text.find(secret));
            found.map(move |at| format!("{place}: …{}…", around(text, at)))
        });
        let hits: Vec<String> = hits.collect();
        assert!(hits.is_empty(), "{} hits:\n{}", hits.len(), hits.join("\n"));
    }
}

/// Reads the stream of events until the server ends it.
fn follow_events(port: u16, key: &str) -> thread::JoinHandle<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server accepts connections");
    let head = format!("GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("the request is sent");
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The arguments of each tool, and what its answer contains.
fn calls() -> Vec<(&'static str, Value, &'static str)> {
    let (success, failure) = ("\"status\":\"success\"", "\"status\":\"error\"");
    let plain = [
        "header", "query", "path", "bearer", "basic", "key", "session", "session", "binary", "body", "result", "keeper",
    ];
    let mut calls: Vec<_> = plain.into_iter().map(|tool| (tool, json!({}), success)).collect();
    calls.extend(["refused", "error", "stderr", "broken"].into_iter().map(|tool| (tool, json!({}), failure)));
    calls.extend([
        ("post", json!({"password": "canary-argument-of-rest"}), success),
        ("login", json!({"password": "canary-argument"}), success),
        ("login", json!({"list": [{"refresh_token": "canary-nested-argument"}]}), success),
        ("login", json!({"salaryNow": "canary-listed-argument"}), success),
        ("login", json!({"pin_token": "canary-invalid-argument"}), "\"code\":\"arguments_invalid\""),
        ("leaky__text", json!({"password": "canary-argument-of-mcp"}), success),
        ("leaky__structured", json!({}), success),
        ("leaky__image", json!({}), success),
        ("leaky__reported", json!({}), failure),
        ("leaky__failed", json!({}), failure),
        ("leaky__invalid", json!({}), failure),
        ("remote__echo", json!({}), success),
    ]);
    calls
}

#[test]
fn secrets_planted_in_every_source_are_nowhere_to_be_found() {
    let folder = TempFolder::new();
    let service = Service::start();
    let created = run_toolhub(folder.path(), &["--json", "keys", "create", "ops", "--scope", "admin"], &[]);
    let created: Value = serde_json::from_str(&created.out).expect("a key");
    let (key, hash) = (created["key"].as_str().expect("a key"), created["hash"].as_str().expect("its hash"));
    let address = format!("http://127.0.0.1:{}", service.port);
    let mcp = HttpServer::start(&[]);
    let config = CONFIG.replace("MCP_URL", &mcp.url());
    let config = config.replace("\nurl = \"SERVICE", &format!("\nallow_hosts = [\"127.0.0.1\"]\nurl = \"{address}"));
    folder.write("toolhub.toml", &config);
    folder
        .write("script.toml", SCRIPT)
        .write("program.py", PROGRAM)
        .write("mcp.py", MCP_PROGRAM)
        .write("password.txt", "canary-basic-password\n");
    let path = std::env::var("PATH").unwrap_or_default();
    let variables = [&VARIABLES[..], &[("OPS_HASH", hash), ("PATH", path.as_str())]].concat();
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let events = follow_events(server.port, key);
    let mut connection = HttpConnection::connect(server.port);
    let own = format!("authorization: Bearer {key}\r\nx-api-key: canary-http-header\r\ncookie: a=canary-cookie\r\n");
    let mut findings = Findings::default();
    let mut send = |what: &str, body: &Value| {
        let response = connection.send(what, &own, &if body.is_null() { String::new() } else { body.to_string() });
        (response.status, response.text)
    };

    for server in ["leaky", "remote"] {
        let what = format!("GET /api/v1/mcp-servers/{server}");
        wait_until(|| send(&what, &Value::Null).1.contains("\"connected\""));
    }
    for (tool, arguments, expected) in calls() {
        let what = format!("POST /api/v1/tools/{tool}/calls");
        let (_, text) = send(&what, &json!({"arguments": arguments, "threadId": "t"}));
        assert!(text.contains(expected), "{tool}: {text}");
        findings.add(format!("answer of {tool}"), text);
    }
    let requests = service.requests().join("\n");
    for (_, secret) in VARIABLES[..8].iter().chain(&[("", "sid=canary-cookie-of-service")]) {
        assert!(requests.contains(secret), "the service got {secret}");
    }
    let made = json!({"name": "made", "url": format!("{address}/made"),
        "auth": {"type": "bearer", "token": "canary-tool-made-over-the-api"}});
    let (status, text) = send("POST /api/v1/tools", &made);
    assert_eq!(status, 201, "{text}");
    findings.add("created tool", text);
    findings.add("answer of made", send("POST /api/v1/tools/made/calls", &json!({"arguments": {}})).1);
    for content in ["log in", "mistake"] {
        let (status, text) = send("POST /api/v1/threads/talk/messages", &json!({ "content": content }));
        assert_eq!(status, 200, "{text}");
        findings.add("message", text);
    }
    // An external executor gets the secrets of its calls; nothing else does.
    let message = json!({"content": "outside", "agent": "outside"});
    let (_, waiting) = send("POST /api/v1/threads/outside/messages", &message);
    assert!(waiting.contains("given-to-an-executor"), "{waiting}");
    findings.add("export", send("GET /api/v1/threads/outside/export", &Value::Null).1);
    findings.add("messages", send("GET /api/v1/threads/outside/messages", &Value::Null).1);
    // One call is used, one edited but not made again, one stays open.
    let mut ask = |password: &str, thread: &str| {
        let body = json!({"arguments": {"password": password}, "threadId": thread});
        let (_, text) = send("POST /api/v1/tools/pay/calls", &body);
        let waiting: Value = serde_json::from_str(&text).expect("JSON");
        findings.add("waiting call", text);
        (waiting["approval"]["id"].as_str().expect("an approval").to_owned(), waiting)
    };
    let (used, _) = ask("canary-approved-argument", "t1");
    let (edited, _) = ask("canary-edited-argument", "t2");
    let (open, _) = ask("canary-open-argument", "t3");
    let yes = json!({"outcome": "proceed_once"});
    findings.add("approved", send(&format!("POST /api/v1/approvals/{used}"), &yes).1);
    let edit = json!({"outcome": "proceed_once", "arguments": {"password": "canary-written-by-approver"}});
    findings.add("edited", send(&format!("POST /api/v1/approvals/{edited}"), &edit).1);

    // A state keeps what it was given, its history does not.
    let state = json!({"data": {"salaryOld": "given-to-a-state"}});
    assert_eq!(send("PUT /api/v1/state/contexts/t%2Fstaff/business", &state).0, 201);
    let (_, history) = send("GET /api/v1/state/contexts/t%2Fstaff/business/history", &Value::Null);
    assert!(history.contains("[redacted]") && !history.contains("given-to-a-state"), "{history}");

    findings.add("query", send("GET /api/v1/tools?q=x&api_key=canary-http-query", &Value::Null).1);
    for what in [
        "GET /api/v1/calls?limit=100",
        "GET /api/v1/approvals",
        "GET /api/v1/tools?limit=100",
        "GET /api/v1/tools/path",
        "GET /api/v1/tools/query",
        "GET /api/v1/config",
        "GET /api/v1/config?origins=true",
        "GET /api/v1/agents",
        "GET /api/v1/audit",
        "GET /metrics",
        "GET /api/v1/keys",
        "GET /api/v1/runs",
        "GET /api/v1/threads",
        "GET /api/v1/threads/talk/messages",
        "GET /api/v1/threads/t/export",
        "GET /api/v1/threads/t3/export",
        "GET /api/v1/threads/talk/export",
        "GET /api/v1/state/contexts/t%2Fkeeper/business",
        "GET /api/v1/state/contexts/t%2Fkeeper/business/history",
        "GET /readyz?verbose",
        "GET /api/v1/mcp-servers",
        "GET /api/v1/mcp-servers/leaky",
        "GET /api/v1/mcp-servers/leaky/logs",
        "GET /api/v1/mcp-servers/leaky/changes",
        "GET /api/v1/mcp-servers/remote",
        "GET /api/v1/tools/leaky__text",
    ] {
        let (status, text) = send(what, &Value::Null);
        assert_eq!(status, 200, "{what}: {text}");
        findings.add(what, text);
    }
    let answers = findings.0.iter().filter(|(place, _)| place == "answer of binary");
    let answer: Value =
        serde_json::from_str(&answers.map(|(_, text)| text.as_str()).collect::<String>()).expect("JSON");
    let artifact = answer["output"]["artifactId"].as_str().expect("an artifact");
    let (_, bytes) = send(&format!("GET /api/v1/artifacts/{artifact}"), &Value::Null);
    assert!(bytes.contains("Bearer ****"), "{bytes}");
    findings.add("artifact", bytes);
    let body = "{\"token\": \"canary-broken-body\"";
    findings.add("broken body", connection.send("POST /api/v1/tools/login/calls", &own, body).text);
    let wrong = "authorization: Bearer canary-wrong-key\r\n";
    findings.add("wrong key", connection.send("GET /api/v1/tools", wrong, "").text);

    let url = format!("http://127.0.0.1:{}", server.port);
    let session = [&variables[..], &[("TOOLHUB_URL", url.as_str()), ("TOOLHUB_TOKEN", key)]].concat();
    for command in [
        "calls list",
        "calls list --json",
        "approvals list --all",
        "tools list",
        "tools show path",
        "tools explain query",
        "threads messages talk",
        "threads messages talk --json",
        "runs list talk",
        "state get t/keeper",
        "config show",
        "config show --origin",
        "config show --json",
        "doctor",
        "mcp list",
        "mcp get leaky",
        "mcp logs leaky",
        "mcp get remote",
        "tools explain leaky__text",
    ] {
        let ran = run_toolhub(folder.path(), &command.split(' ').collect::<Vec<_>>(), &session);
        assert!(ran.code == 0 && !ran.out.is_empty(), "toolhub {command}: {}", ran.err);
        findings.add(format!("toolhub {command}"), ran.out + &ran.err);
    }
    let refused = run_toolhub(folder.path(), &["call", "login", "pin_token=canary-invalid-argument-of-cli"], &session);
    findings.add("toolhub call", refused.out + &refused.err);

    let backup = connection.send("POST /api/v1/backups", &own, "");
    assert!((200..300).contains(&backup.status), "{}", backup.text);
    server.signal("KILL");
    let (_, out, log) = server.wait_for_exit();
    assert!(log.contains("call failed"), "the log is complete");
    findings.add("stdout", out);
    findings.add("log", log);
    let events = events.join().expect("the events are read");
    assert!(events.contains("tool.execution.failed"), "{events}");
    findings.add("events", events);
    findings.add_files(folder.path());
    let is_searched =
        |part: &str| findings.0.iter().any(|(place, text)| place.contains(part) && text.contains("sealed:"));
    assert!(is_searched("toolhub.db") && is_searched("backups"), "store and backup hold the open calls");
    let digits = hash.trim_start_matches("sha256:");
    findings.assert_none(&[PLANTED, BASIC_PAIR, key, digits]);
    findings.0.retain(|(place, _)| place != "GET /api/v1/runs");
    findings.assert_none(&["given-to-an-executor"]);

    // The sealed call goes on with its secret.
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let mut connection = HttpConnection::connect(server.port);
    let own = format!("authorization: Bearer {key}\r\n");
    let answered = connection.send(&format!("POST /api/v1/approvals/{open}"), &own, &yes.to_string());
    assert_eq!(answered.status, 200, "{}", answered.text);
    let call = answered.json()["callId"].as_str().expect("a call").to_owned();
    let ended = connection.send(&format!("GET /api/v1/calls/{call}/events"), &own, "").text;
    assert!(ended.contains(&format!("\"output\":{}", "canary-open-argument".len())), "{ended}");
    let asked = connection.send("POST /api/v1/tools/made/calls", &own, "{}").text;
    assert!(
        asked.contains("/made") && service.requests().concat().contains("canary-tool-made-over-the-api"),
        "{asked}"
    );
    server.signal("KILL");
    server.wait_for_exit();

    // Without the key the tool is left out, and all else is there.
    fs::remove_file(folder.path().join(".toolhub/toolhub.db.key")).expect("the store has a key");
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let mut connection = HttpConnection::connect(server.port);
    assert_eq!(connection.send("GET /api/v1/tools/made", &own, "").status, 404);
    assert_eq!(connection.send(&format!("GET /api/v1/calls/{call}"), &own, "").status, 200);
    assert_eq!(connection.send("POST /api/v1/tools", &own, &made.to_string()).status, 201);
    server.signal("TERM");
    let (_, _, log) = server.wait_for_exit();
    assert!(log.contains("cannot decrypt a stored definition"), "{log}");
}
