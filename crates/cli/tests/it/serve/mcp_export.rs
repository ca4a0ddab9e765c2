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
    let program = json!({"command": env!("CARGO_BIN_EXE_toolhub"), "args": arguments});
    let expected = [
        json!({"mcpServers": {"toolhub": program}}),
        json!({"mcpServers": {"toolhub": {"type": "http", "url": url}}}),
        json!({"mcpServers": {"toolhub": {"url": url}}}),
        json!({"servers": {"toolhub": {"type": "http", "url": url}}}),
        json!({"mcp_servers": {"toolhub": {"url": url}}}),
        json!({"mcpServers": {"toolhub": {"httpUrl": url}}}),
    ];
    for (client, expected) in CLIENTS.into_iter().zip(expected) {
        assert_eq!(export(&folder, client, &[]), expected, "{client}");
    }
    // A client can also start the hub itself.
    for client in CLIENTS {
        let (table, mut expected) = match client {
            "vscode" => ("servers", json!({"type": "stdio"})),
            "codex" => ("mcp_servers", json!({})),
            _ => ("mcpServers", json!({})),
        };
        expected.as_object_mut().expect("an object").extend(program.as_object().expect("an object").clone());
        assert_eq!(export(&folder, client, &["--stdio"]), json!({table: {"toolhub": expected}}), "{client}");
    }
    let thread = export(&folder, "cursor", &["--thread", "trip", "--name", "hub", "--server", "https://hub.example/"]);
    assert_eq!(thread, json!({"mcpServers": {"hub": {"url": "https://hub.example/mcp/t/trip"}}}));
    let thread = export(&folder, "claude-desktop", &["--thread", "trip", "--server", "https://hub.example"]);
    let arguments = json!(["mcp", "serve", "--stdio", "--server", "https://hub.example", "--thread", "trip"]);
    assert_eq!(thread["mcpServers"]["toolhub"]["args"], arguments);
    let refused =
        ["--set=server.port=0", "--name="].map(|flag| run(&folder, &["mcp", "export", "--client", "cursor", flag]));
    assert!(refused.iter().all(|refused| refused.code == 2 && refused.out.is_empty()), "{refused:?}");
    // A link is still right after an upgrade.
    let link = folder.path().join("linked");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_toolhub"), &link).expect("a link");
    let mut linked = std::process::Command::new(&link);
    linked.args(["mcp", "export", "--client", "cursor", "--stdio"]).current_dir(folder.path()).env_clear();
    let linked: Value = serde_json::from_slice(&linked.output().expect("it runs").stdout).expect("JSON");
    assert_eq!(linked["mcpServers"]["toolhub"]["command"], json!(link));
    // Without a config file the client would not find the hub.
    assert_eq!(run(&TempFolder::new(), &["mcp", "export", "--client", "claude-desktop"]).code, 2);
    let secret = run(&folder, &["mcp", "export", "--client", "cursor", "--server", "https://user:pw@hub.example"]);
    assert!(secret.code == 2 && secret.out.is_empty(), "{secret:?}");
}

#[test]
fn flags_of_the_config_are_exported_and_variables_that_change_it_are_refused() {
    let folder = hub("");
    folder.write("keys.env", "A=1\n");
    let flags = ["--set", "server.port=8124", "--env-file", "keys.env"];
    let arguments = export(&folder, "claude-desktop", &flags)["mcpServers"]["toolhub"]["args"].clone();
    let env_file = folder.path().canonicalize().expect("it exists").join("keys.env");
    let expected = json!(["--env-file", env_file, "--set", "server.port=8124"]);
    assert_eq!(arguments.as_array().expect("a list")[5..], *expected.as_array().expect("a list"), "{arguments}");
    let variables = [("TOOLHUB__SERVER__PORT", "8124")];
    let refused = run_toolhub(folder.path(), &["mcp", "export", "--client", "cursor", "--stdio"], &variables);
    assert!(refused.code == 2 && refused.err.contains("TOOLHUB__SERVER__PORT"), "{refused:?}");
    // An address has the port.
    let ran = run_toolhub(folder.path(), &["mcp", "export", "--client", "cursor"], &variables);
    assert!(ran.code == 0 && ran.out.contains(":8124/mcp"), "{ran:?}");
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
    let references = [
        json!({}),
        json!({"env": {"TOOLHUB_TOKEN": "${TOOLHUB_TOKEN}"}}),
        json!({"env": {"TOOLHUB_TOKEN": "${env:TOOLHUB_TOKEN}"}}),
        json!({"env": {"TOOLHUB_TOKEN": "${input:toolhub-token}"}}),
        json!({"env_vars": ["TOOLHUB_TOKEN"]}),
        json!({"env": {"TOOLHUB_TOKEN": "$TOOLHUB_TOKEN"}}),
    ];
    for (client, reference) in CLIENTS.into_iter().zip(references) {
        let exported = export(&folder, client, &["--stdio"]);
        let table = ["mcpServers", "servers", "mcp_servers"].into_iter().find(|table| exported.get(table).is_some());
        let mut entry = exported[table.expect("a table")]["toolhub"].clone();
        entry.as_object_mut().expect("an object").retain(|name, _| name.starts_with("env"));
        assert_eq!(entry, reference, "{client}");
    }
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
    assert!(imported.out.contains("/toolhub\""), "{}{}", imported.out, imported.err);

    // What the user added to the entry stays.
    let entry = "{\"mcpServers\": {\"toolhub\": {\n  \"command\": \"toolhub\", // mine\n  \"args\": [\"mcp\", \"serve\", \"--stdio\", \"old\"],\n  \"env\": {\"A\": \"1\"}\n}}}";
    folder.write("desktop.json", entry);
    assert_eq!(write("claude-desktop", "desktop.json").code, 0);
    let after = fs::read_to_string(path("desktop.json")).expect("it is there");
    assert!(
        after.contains("// mine") && after.contains("\"env\": {\"A\": \"1\"}") && !after.contains("old"),
        "{after}"
    );
    let codex = "[mcp_servers.toolhub]\nurl = \"http://old\"\nenabled = false\n";
    folder.write("config.toml", codex);
    assert_eq!(write("codex", "config.toml").code, 0);
    let after = fs::read_to_string(path("config.toml")).expect("it is there");
    assert!(after.contains("enabled = false\n") && after.contains(":8123/mcp") && !after.contains("old"), "{after}");

    // A file with a comment only, and the folder of a client.
    for (file, before) in [("comment.json", Some("// mine")), (".vscode/mcp.json", None), ("missing/mcp.json", None)] {
        before.into_iter().for_each(|text| {
            folder.write(file, text);
        });
        let written = write("claude-code", file);
        assert_eq!(written.code == 0, file != "missing/mcp.json", "{}", written.err);
    }
    let commented = fs::read_to_string(path("comment.json")).expect("it is there");
    assert!(commented.starts_with("// mine\n{\n"), "{commented}");
    let imported = run(&folder, &["mcp", "import", "comment.json", "--dry-run"]);
    assert!(imported.out.contains(":8123/mcp"), "{}{}", imported.out, imported.err);

    // Line ends stay as they are.
    folder.write("windows.json", "{\r\n  \"mcpServers\": {}\r\n}\r\n");
    assert_eq!(write("claude-code", "windows.json").code, 0);
    let after = fs::read_to_string(path("windows.json")).expect("it is there");
    assert!(after.contains(":8123/mcp") && !after.replace("\r\n", "").contains('\n'), "{after:?}");
    assert_eq!(write("claude-code", ".vscode").code, 2);

    for broken in ["{", "[]", "{\"mcpServers\": 7}"] {
        folder.write("broken.json", broken);
        let refused = write("claude-code", "broken.json");
        assert_eq!(refused.code, 2, "{}{}", refused.out, refused.err);
        assert_eq!(fs::read_to_string(path("broken.json")).expect("it is there"), broken);
    }
}
