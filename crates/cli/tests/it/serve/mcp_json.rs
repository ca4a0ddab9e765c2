//! `imports.mcp_json`: MCP servers in the configs of other programs.

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{
    connection::HttpConnection,
    mcp_servers::{QUIET, call, folder, reload, run, server},
    process::Process,
};

const SECRET: &str = "ghp_0123456789abcdefghij";

/// A config of another program with the test server under these names.
fn write_json(folder: &TempFolder, names: &[&str]) {
    let script = server(folder, "t", "").split('"').nth(3).expect("the script").to_owned();
    let tools = folder.path().join("tools.json");
    let one = json!({"command": "python3", "args": [script], "env": {"TOOLS": tools, "API_TOKEN": SECRET}, "odd": 1});
    let servers: Value =
        names.iter().map(|name| ((*name).to_owned(), one.clone())).collect::<serde_json::Map<_, _>>().into();
    folder.write(".mcp.json", &json!({"mcpServers": servers}).to_string());
}

#[test]
fn servers_of_other_programs_are_read_whenever_the_config_is() {
    let folder = folder(&["echo", "pid"]);
    write_json(&folder, &["t"]);
    let policy = "[defaults]\nconfirm = false\n";
    folder.write("toolhub.toml", &format!("[imports]\nmcp_json = [\".mcp.json\"]\n{policy}"));
    let checked = run(&folder, &["config", "check"]);
    let said = format!("{}{}", checked.out, checked.err);
    assert!(checked.code == 0 && said.contains("1 MCP server,"), "{said}");
    assert!(said.contains("`API_TOKEN` looks like a secret") && said.contains("ignored odd"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
    let shown = run(&folder, &["config", "show"]).out;
    assert!(shown.contains("mcp_servers") && !shown.contains(SECRET), "{shown}");
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    let pid = call(connection, "t__pid");
    write_json(&folder, &["t", "second"]);
    assert_eq!(reload(connection)["sections"], json!(["mcp_servers.second"]));
    call(connection, "second__echo");
    assert_eq!(call(connection, "t__pid"), pid, "the process of an unchanged server stays");
}

#[test]
fn mistakes_in_imported_servers_are_told_with_their_places() {
    let folder = folder(&["echo"]);
    write_json(&folder, &["t"]);
    folder.write("broken.json", "{");
    folder.write("none.json", "{}");
    folder.write("unset.json", "{\"mcpServers\": {\"u\": {\"url\": \"https://mcp.example/${NOT_SET_ANYWHERE}\"}}}");
    let files =
        "[imports]\nmcp_json = [\".mcp.json\", \"broken.json\", \"none.json\", \"missing.json\", \"unset.json\"]\n";
    folder.write("toolhub.toml", &format!("{files}[mcp_servers.t]\ncommand = \"cat\"\n"));
    let checked = run(&folder, &["config", "check"]).err;
    for expected in [
        "there are two MCP servers named `t`: the other is at .mcp.json as TOML:1:",
        "toolhub.toml:3:",
        "broken.json: it is not JSON",
        "cannot use none.json: it has no MCP servers",
        "cannot read missing.json",
        "NOT_SET_ANYWHERE",
    ] {
        assert!(checked.contains(expected), "{expected}: {checked}");
    }
    assert!(!checked.contains(SECRET), "{checked}");
}

#[test]
fn servers_of_projects_are_not_read_with_the_config() {
    let folder = folder(&["echo"]);
    let of_project = json!({"command": "cat"});
    let document = json!({
        "mcpServers": {"t": {"command": "cat"}},
        "projects": {"/a": {"mcpServers": {"t": of_project, "u": of_project}}, "/b": {}},
    });
    folder.write("claude.json", &document.to_string());
    folder.write("toolhub.toml", "[imports]\nmcp_json = [\"claude.json\"]\n");
    let checked = run(&folder, &["config", "check"]);
    let said = format!("{}{}", checked.out, checked.err);
    assert!(checked.code == 0 && said.contains("1 MCP server,"), "{said}");
    assert!(said.contains("claude.json: servers of projects are not read; `toolhub mcp import`"), "{said}");
}
