//! `toolhub mcp export`: the config with which MCP clients use the hub.

use std::fs;

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{TOOLS, mcp_servers::run};
use crate::config::run_toolhub;

const CLIENTS: [&str; 6] = ["claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini"];

fn hub(auth: &str) -> TempFolder {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &format!("[server]\nport = 8123\n{TOOLS}{auth}"));
    folder
}

/// What is exported for a client, as JSON.
fn export(folder: &TempFolder, client: &str, more: &[&str]) -> Value {
    let ran = run(folder, &[&["mcp", "export", "--client", client], more].concat());
    assert_eq!(ran.code, 0, "{client}: {}", ran.err);
    match client {
        "codex" => serde_json::to_value(ran.out.parse::<toml::Table>().expect("TOML")).expect("JSON"),
        _ => serde_json::from_str(&ran.out).expect("JSON"),
    }
}

#[test]
fn each_client_gets_the_entry_of_its_config() {
    let folder = hub("");
    let file = folder.path().canonicalize().expect("it exists").join("toolhub.toml");
    let url = "http://127.0.0.1:8123/mcp";
    let arguments = json!(["mcp", "serve", "--stdio", "--config", file]);
    let expected = [
        json!({"mcpServers": {"toolhub": {"command": "toolhub", "args": arguments}}}),
        json!({"mcpServers": {"toolhub": {"type": "http", "url": url}}}),
        json!({"mcpServers": {"toolhub": {"url": url}}}),
        json!({"servers": {"toolhub": {"type": "http", "url": url}}}),
        json!({"mcp_servers": {"toolhub": {"url": url}}}),
        json!({"mcpServers": {"toolhub": {"httpUrl": url}}}),
    ];
    for (client, expected) in CLIENTS.into_iter().zip(expected) {
        assert_eq!(export(&folder, client, &[]), expected, "{client}");
    }
    let thread = export(&folder, "cursor", &["--thread", "trip", "--name", "hub", "--server", "https://hub.example/"]);
    assert_eq!(thread, json!({"mcpServers": {"hub": {"url": "https://hub.example/mcp/t/trip"}}}));
    let thread = export(&folder, "claude-desktop", &["--thread", "trip", "--server", "https://hub.example"]);
    let arguments = json!(["mcp", "serve", "--stdio", "--server", "https://hub.example", "--thread", "trip"]);
    assert_eq!(thread["mcpServers"]["toolhub"]["args"], arguments);
    // Without a config file the client would not find the hub.
    assert_eq!(run(&TempFolder::new(), &["mcp", "export", "--client", "claude-desktop"]).code, 2);
}

#[test]
fn a_key_is_referred_to_and_never_copied() {
    let hash = "sha256:".to_owned() + &"0".repeat(64);
    let folder = hub(&format!(
        "[auth]\nmode = \"keys\"\n[[auth.keys]]\nname = \"k\"\nhash = \"{hash}\"\nscopes = [\"tools:read\"]\n"
    ));
    let references = [
        "",
        "Bearer ${TOOLHUB_TOKEN}",
        "Bearer ${env:TOOLHUB_TOKEN}",
        "Bearer ${input:toolhub-token}",
        "",
        "Bearer $TOOLHUB_TOKEN",
    ];
    for (client, reference) in CLIENTS.into_iter().zip(references) {
        let variables = [("TOOLHUB_TOKEN", "thk_canary")];
        let ran = run_toolhub(folder.path(), &["mcp", "export", "--client", client], &variables);
        assert!(ran.code == 0 && !ran.out.contains("canary") && !ran.out.contains("sha256"), "{client}: {}", ran.out);
        assert!(ran.out.contains(reference), "{client}: {}", ran.out);
    }
    assert_eq!(export(&folder, "codex", &[])["mcp_servers"]["toolhub"]["bearer_token_env_var"], "TOOLHUB_TOKEN");
    let inputs = export(&folder, "vscode", &[])["inputs"].clone();
    assert_eq!((&inputs[0]["id"], &inputs[0]["password"]), (&json!("toolhub-token"), &json!(true)), "{inputs}");
    let desktop = run(&folder, &["mcp", "export", "--client", "claude-desktop"]);
    assert!(desktop.err.contains("TOOLHUB_TOKEN"), "{}", desktop.err);
}

#[test]
fn a_file_of_a_client_keeps_everything_else_and_a_copy_is_left() {
    let folder = hub("");
    let path = |name: &str| folder.path().join(name);
    let copies = || {
        let names =
            fs::read_dir(folder.path()).expect("it can be listed").map(|file| file.expect("a file").file_name());
        names.filter(|name| name.to_string_lossy().contains(".bak-")).count()
    };
    let before = "{\n  // mine\n  \"servers\": {\n    \"other\": {\"command\": \"x\"},\n  },\n  \"n\": 1.10\n}\n";
    folder.write("mcp.json", before);
    let write = |client: &str, file: &str| run(&folder, &["mcp", "export", "--client", client, "--write", file]);
    let written = write("vscode", "mcp.json");
    assert_eq!(written.code, 0, "{}", written.err);
    let after = fs::read_to_string(path("mcp.json")).expect("it is there");
    let entry = "{\"command\": \"x\"},\n    \"toolhub\": {\n      \"type\": \"http\",\n      \"url\": \"http://127.0.0.1:8123/mcp\"\n    },";
    assert_eq!(after, before.replace("{\"command\": \"x\"},", entry));
    assert_eq!(copies(), 1);
    // A second time, nothing changes.
    assert!(write("vscode", "mcp.json").out.contains("unchanged"));
    assert_eq!(copies(), 1);

    folder.write("config.toml", "model = \"o3\" # mine\n");
    assert_eq!(write("codex", "config.toml").code, 0);
    let after = fs::read_to_string(path("config.toml")).expect("it is there");
    assert!(after.starts_with("model = \"o3\" # mine\n\n[mcp_servers.toolhub]\n"), "{after}");

    // A new file is created, and what is written is understood by the import.
    assert_eq!(write("claude-desktop", "new.json").code, 0);
    let imported = run(&folder, &["mcp", "import", "new.json", "--dry-run"]);
    assert!(imported.out.contains("command = \"toolhub\""), "{}{}", imported.out, imported.err);

    for broken in ["{", "[]", "{\"mcpServers\": 7}"] {
        folder.write("broken.json", broken);
        let refused = write("claude-code", "broken.json");
        assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
        assert_eq!(fs::read_to_string(path("broken.json")).expect("it is there"), broken);
    }
}
