//! Single tools of MCP servers: in the config, after a reload, and created over the API.

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{
    TOOLS,
    connection::HttpConnection,
    mcp_servers::{HttpServer, QUIET, call, folder, reload, run, server},
    process::Process,
};

#[test]
fn a_tool_of_the_config_may_be_one_of_an_mcp_server() {
    let folder = folder(&["echo", "pid"]);
    let web = HttpServer::start(&[]);
    let tools = format!(
        "[tools.look]\nkind = \"mcp\"\nserver = \"t\"\ntool = \"echo\"\ndescription = \"Looks.\"\ntimeout = \"9s\"\n\
         [tools.search]\nserver_url = \"{}\"\ntool = \"echo\"\nallow_hosts = [\"127.0.0.1\"]\n\
         annotations = {{ read_only = true }}\n[tools.clock]\nbuiltin = \"clock\"\ndepends_on = [\"look\"]\n",
        web.url()
    );
    folder.write("toolhub.toml", &format!("{}{tools}", server(&folder, "t", "")));
    let checked = run(&folder, &["config", "check"]);
    assert!(checked.code == 0 && checked.out.contains("3 tools, 1 MCP server,"), "{}{}", checked.out, checked.err);
    let listed: Value = serde_json::from_str(&run(&folder, &["--json", "tools", "list"]).out).expect("a list");
    let names: Vec<_> = listed["items"].as_array().into_iter().flatten().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["clock", "look", "search", "t__echo", "t__pid"], "{listed}");
    for tool in ["look", "search"] {
        let called = run(&folder, &["--json", "call", tool, "city=Oslo"]);
        assert!(called.code == 0 && called.out.contains("Oslo"), "{}{}", called.out, called.err);
    }
    let shown = run(&folder, &["--json", "tools", "show", "look"]).out;
    assert!(shown.contains("Looks."), "{shown}");
}

#[test]
fn a_reload_moves_a_tool_to_a_server_and_back() {
    let folder = folder(&["pid"]);
    let write = |tool: &str| folder.write("toolhub.toml", &format!("{TOOLS}{}{tool}", server(&folder, "t", "")));
    write("[tools.who]\nbuiltin = \"clock\"\n");
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    let is_pid = |output: &Value| output.as_str().is_some_and(|text| text.parse::<u32>().is_ok());
    assert!(!is_pid(&call(connection, "who")));
    for _ in 0..2 {
        write("[tools.who]\nserver = \"t\"\ntool = \"pid\"\n");
        reload(connection);
        assert!(is_pid(&call(connection, "who")));
        write("[tools.who]\nbuiltin = \"clock\"\n");
        reload(connection);
        assert!(!is_pid(&call(connection, "who")));
    }
}

#[test]
fn changed_tools_of_a_server_leave_its_process_running() {
    let folder = folder(&["pid", "echo"]);
    let write = |tools: &str| folder.write("toolhub.toml", &format!("{TOOLS}{}{tools}", server(&folder, "t", "")));
    write("[tools.who]\nserver = \"t\"\ntool = \"pid\"\n");
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    let pid = call(connection, "who");
    let description = |connection: &mut HttpConnection| {
        connection.send("GET /api/v1/tools/who", "", "").json()["description"].clone()
    };

    // Another description holds at once, and a second tool appears.
    let second = "[tools.second]\nserver = \"t\"\ntool = \"pid\"\n";
    write(&format!("[tools.who]\nserver = \"t\"\ntool = \"pid\"\ndescription = \"Says who.\"\n{second}"));
    let report = reload(connection);
    let changes = (&report["added"], &report["replaced"], &report["sections"]);
    assert_eq!(changes, (&json!(["second"]), &json!(["who"]), &json!([])), "{report}");
    assert_eq!(description(connection), "Says who.");
    assert_eq!(call(connection, "second"), pid);

    // A tool that is gone is gone at once; its name may be that of another one.
    write(&format!("[tools.who]\nbuiltin = \"clock\"\n{second}"));
    reload(connection);
    assert_ne!(call(connection, "who"), pid);
    assert_eq!(call(connection, "second"), pid);
    write("[tools.who]\nserver = \"t\"\ntool = \"pid\"\n");
    reload(connection);
    assert_eq!(connection.send("GET /api/v1/tools/second", "", "").status, 404);
    assert_eq!(call(connection, "who"), pid);
    assert_eq!(call(connection, "t__pid"), pid);
}

#[test]
fn a_tool_of_a_server_is_back_after_a_reload_that_failed() {
    let folder = folder(&["pid", "echo"]);
    let write =
        |tools: &str| folder.write("toolhub.toml", &format!("{TOOLS}{}{tools}", server(&folder, "t", "prefix = \"\"")));
    write("[tools.who]\nserver = \"t\"\ntool = \"pid\"\n");
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    let pid = call(connection, "who");
    // The name is taken by a tool that the server lists, which only the running hub knows.
    write("[tools.echo]\nbuiltin = \"clock\"\n");
    let refused = connection.send("POST /api/v1/reload", "", "");
    assert!(refused.status != 200 && refused.text.contains("added by `t`"), "{}", refused.text);
    assert_eq!(call(connection, "who"), pid);
}

#[test]
fn a_tool_of_a_server_that_the_owner_does_not_call_read_only_any_more_is_read_again() {
    let folder = folder(&["pid"]);
    // It answers no list but the first.
    let server =
        server(&folder, "t", "").replace("read_only = [\"*\"]\n", "").replace("]\nenv", ", \"late-list\"]\nenv");
    let write = |tools: &str| folder.write("toolhub.toml", &format!("{TOOLS}{server}{tools}"));
    write("[tools.who]\nserver = \"t\"\ntool = \"pid\"\nannotations = { read_only = true }\n");
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    call(connection, "who");
    write("[tools.who]\nserver = \"t\"\ntool = \"pid\"\n");
    reload(connection);
    assert_eq!(connection.send("GET /api/v1/tools/who", "", "").status, 404);
}

#[test]
fn a_tool_of_an_mcp_server_is_created_over_the_api_and_survives_a_restart() {
    let (folder, web) = (TempFolder::new(), HttpServer::start(&[]));
    folder.write("toolhub.toml", &format!("{TOOLS}[server]\ntool_hosts = [\"127.0.0.1\"]\n"));
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    let tool = |name: &str, tool: &str| {
        json!({"name": name, "serverUrl": web.url(), "tool": tool, "annotations": {"readOnly": true}}).to_string()
    };
    let missing = connection.send("POST /api/v1/tools", "", &tool("look", "missing"));
    assert!(missing.status == 422 && missing.text.contains("does not have it"), "{} {}", missing.status, missing.text);
    let server = json!({"name": "look", "server": "t"}).to_string();
    let named = connection.send("POST /api/v1/tools", "", &server);
    assert!(named.status == 422 && named.text.contains("no MCP server named `t`"), "{} {}", named.status, named.text);
    let created = connection.send("POST /api/v1/tools", "", &tool("look", "echo"));
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(created.json()["kind"], "mcp");
    call(connection, "look");
    drop(process);
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    call(connection, "look");
    drop(web);
    assert_eq!(connection.send("DELETE /api/v1/tools/look", "", "").status, 204);
    assert_eq!(connection.send("GET /api/v1/mcp-servers/look", "", "").status, 404);
}

#[test]
fn the_tour_kills_an_mcp_server_and_its_tool_returns() {
    let tour = run(&TempFolder::new(), &["demo", "--tour"]);
    let (withheld, returned) = (tour.out.find("echo is withheld"), tour.out.find("echo is available again"));
    assert!(tour.code == 0 && withheld.is_some() && withheld < returned, "{}{}", tour.out, tour.err);
}
