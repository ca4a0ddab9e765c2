//! MCP servers added and removed at run time: over the API, and by commands that change the config.

use std::fs;

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{
    TOOLS,
    connection::HttpConnection,
    mcp_servers::{HttpServer, QUIET, call, folder, reload, run, server},
    process::Process,
};
use crate::config::run_toolhub;

const TOKEN: &str = "s3cr3t-token";

/// A server that the API accepts.
fn definition(web: &HttpServer) -> Value {
    json!({
        "name": "web", "url": web.url(), "readOnly": ["*"], "auth": {"type": "bearer", "token": TOKEN},
        "tools": {"echo": {"rateLimit": {"requests": 100, "per": "1m"}}},
    })
}

#[test]
fn a_server_added_over_the_api_is_remembered_and_its_secret_is_sealed() {
    let (folder, web) = (TempFolder::new(), HttpServer::start(&["auth"]));
    let config =
        |more: &str| folder.write("toolhub.toml", &format!("{TOOLS}[server]\ntool_hosts = [\"127.0.0.1\"]\n{more}"));
    config("");
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    let added = connection.send("POST /api/v1/mcp-servers", "", &definition(&web).to_string());
    assert_eq!(added.status, 201, "{}", added.text);
    call(connection, "web__echo");
    assert_eq!(connection.send("POST /api/v1/mcp-servers", "", &definition(&web).to_string()).status, 409);
    let shown = connection.send("GET /api/v1/mcp-servers/web", "", "").text;
    assert!(!shown.contains(TOKEN), "{shown}");

    // A reload keeps it, unless the config has a server of the same name.
    let pids = |connection: &mut HttpConnection| {
        connection.send("GET /api/v1/mcp-servers/web", "", "").json()["since"].clone()
    };
    let since = pids(connection);
    reload(connection);
    assert_eq!(pids(connection), since);
    config("[mcp_servers.web]\nenabled = false\nurl = \"https://mcp.example/mcp\"\n");
    reload(connection);
    assert_eq!(connection.send("GET /api/v1/mcp-servers/web", "", "").json()["connection"], "disabled");
    let configured = connection.send("DELETE /api/v1/mcp-servers/web", "", "");
    assert!(configured.status == 409 && configured.text.contains("remove [mcp_servers.web]"), "{}", configured.text);
    config("");
    reload(connection);
    call(connection, "web__echo");

    // It is there after a restart, and nothing in the store shows its secret.
    drop(process);
    for file in fs::read_dir(folder.path().join(".toolhub")).expect("the folder of the store") {
        let bytes = fs::read(file.expect("a file").path()).expect("it can be read");
        assert!(!String::from_utf8_lossy(&bytes).contains(TOKEN), "the secret is sealed");
    }
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    call(connection, "web__echo");
    assert_eq!(connection.send("DELETE /api/v1/mcp-servers/web", "", "").status, 204);
    assert_eq!(connection.send("GET /api/v1/tools/web__echo", "", "").status, 404);
    let audit = connection.send("GET /api/v1/audit", "", "").text;
    assert!(audit.contains("mcp_server.remove") && audit.contains("mcp_server.add"), "{audit}");
}

#[test]
fn what_concerns_the_machine_is_not_accepted_over_the_api() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    let mut check = |server: Value, status: u16, expected: &[&str]| {
        let refused = connection.send("POST /api/v1/mcp-servers", "", &server.to_string());
        assert_eq!(refused.status, status, "{}", refused.text);
        for part in expected {
            assert!(refused.text.contains(part), "{part}: {}", refused.text);
        }
    };
    check(json!({"name": "x", "command": "sh"}), 403, &["command_forbidden", "[mcp_servers.NAME]"]);
    let machine = json!({
        "name": "x", "url": "https://mcp.example/mcp", "env": {"A": "b"}, "cwd": "/", "roots": ["/"], "allowHosts": ["10.0.0.1"],
        "headers": {"X-Key": {"env": "HOME"}}, "urll": "x",
    });
    check(
        machine,
        422,
        &["`env` is not", "`cwd` is not", "`roots` is not", "`allow_hosts` is not", "`headers`: a secret"],
    );
    check(json!({"name": "x", "url": "https://mcp.example/mcp", "urll": "x", "trust": 7}), 422, &["urll", "`trust`"]);
    check(
        json!({"name": "x", "url": "http://127.0.0.1:9/mcp"}),
        422,
        &["requests to `127.0.0.1` are refused", "tool_hosts"],
    );
    check(json!({"name": "x", "type": "sse", "url": "https://mcp.example/sse"}), 422, &["HTTP+SSE"]);
    check(json!({"name": "x"}), 422, &["neither `command` nor `url`"]);
}

#[test]
fn commands_add_and_remove_servers_in_the_config_file() {
    let folder = folder(&["echo"]);
    let comment = "# about the clock\n";
    folder.write(
        "toolhub.toml",
        &format!("# mine\n[tools.first]\nbuiltin = \"clock\"\n\n{comment}[tools.clock]\nbuiltin = \"clock\"\n"),
    );
    let config = || fs::read_to_string(folder.path().join("toolhub.toml")).expect("the config");
    let before = config();
    let tools = folder.path().join("tools.json").display().to_string();
    let script = server(&folder, "t", "").split('"').nth(3).expect("the script").to_owned();
    let (tools, secret) = (format!("TOOLS={tools}"), "API_TOKEN=ghp_0123456789abcdef");
    let mut arguments =
        vec!["mcp", "add", "t", "python3", "--env", &tools, "--env", secret, "--read-only", "*", "--", &script];
    let dry = run(&folder, &[&["mcp", "add", "--dry-run"], &arguments[2..]].concat());
    assert!(dry.code == 0 && dry.out.contains("[mcp_servers.t]") && config() == before, "{}{}", dry.out, dry.err);
    let added = run(&folder, &arguments);
    assert!(added.code == 0 && added.out.contains("added to"), "{}{}", added.out, added.err);
    assert!(added.err.contains("API_TOKEN") && !config().contains("ghp_"), "{}", config());
    let called =
        run_toolhub(folder.path(), &["--json", "call", "t__echo", "city=Oslo"], &[QUIET[0], ("API_TOKEN", "x")]);
    assert!(called.code == 0 && called.out.contains("Oslo"), "{}{}", called.out, called.err);
    arguments[2] = "a b";
    assert_eq!(run(&folder, &arguments).code, 2);
    let removed = run_toolhub(folder.path(), &["mcp", "remove", "t"], &[QUIET[0], ("API_TOKEN", "x")]);
    assert!(removed.code == 0 && removed.out.contains("removed from"), "{}{}", removed.out, removed.err);
    assert_eq!(config(), before);
    let unknown = run(&folder, &["mcp", "remove", "t"]);
    assert!(unknown.code != 0 && unknown.err.contains("no MCP server is named `t`"), "{}", unknown.err);
}

#[test]
fn commands_that_change_the_config_do_not_need_its_variables() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "[tools.clock]\nbuiltin = \"clock\"\n");
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let ran = run(&folder, arguments);
        assert!(ran.code == code && (ran.out.clone() + &ran.err).contains(expected), "{}{}", ran.out, ran.err);
    };
    check(&["mcp", "add", "s", "npx", "--", "--api-key=zzz"], 0, "S_API_KEY");
    check(&["mcp", "add", "s", "cat"], 2, "toolhub mcp remove s");
    check(&["mcp", "add", "t", "cat"], 0, "added to");
    check(&["mcp", "add", "u", "https://mcp.example/mcp"], 0, "added to");
    check(&["mcp", "remove", "s"], 0, "removed from");
    check(&["mcp", "remove", "s"], 5, "no MCP server is named `s`");
    assert!(!folder.read("toolhub.toml").contains("S_API_KEY"));
}

#[test]
fn a_command_adds_an_address_to_the_running_hub() {
    let (folder, web) = (TempFolder::new(), HttpServer::start(&["auth"]));
    folder.write("toolhub.toml", &format!("{TOOLS}[server]\ntool_hosts = [\"127.0.0.1\"]\n"));
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let server = format!("http://127.0.0.1:{}", process.port);
    let run = |arguments: &[&str]| {
        run_toolhub(folder.path(), &[&["--server", &server], arguments].concat(), &[QUIET[0], ("WEB_TOKEN", TOKEN)])
    };
    let unset = run(&["mcp", "add", "web", &web.url(), "--bearer-env", "NOT_SET"]);
    assert!(unset.code == 2 && unset.err.contains("`NOT_SET` is not set"), "{}", unset.err);
    let added = run(&["mcp", "add", "web", &web.url(), "--bearer-env", "WEB_TOKEN", "--read-only", "*"]);
    assert!(added.code == 0 && added.out.contains("connected"), "{}{}", added.out, added.err);
    let called = run(&["--json", "call", "web__echo", "city=Oslo"]);
    assert!(called.code == 0 && called.out.contains("Oslo"), "{}{}", called.out, called.err);
    let removed = run(&["mcp", "remove", "web"]);
    assert!(removed.code == 0 && removed.out.contains("removed"), "{}{}", removed.out, removed.err);
    assert_eq!(run(&["--json", "call", "web__echo"]).code, 5);
}
