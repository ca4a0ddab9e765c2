//! MCP servers of other programs' configs.

use serde_json::json;
use toolhub_testkit::TempFolder;

use crate::config::run_toolhub;

/// The sections that a file becomes, and what is said about it.
fn import(name: &str, text: &str) -> (String, String) {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "# mine\n");
    folder.write(name, text);
    let printed = run_toolhub(folder.path(), &["mcp", "import", name, "--dry-run"], &[]);
    assert_eq!((printed.code, folder.read("toolhub.toml").as_str()), (0, "# mine\n"), "{}", printed.err);
    let ran = run_toolhub(folder.path(), &["mcp", "import", name], &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let config = folder.read("toolhub.toml");
    assert_eq!(config.strip_prefix("# mine\n\n").map(str::trim_end), Some(printed.out.trim_end()));
    (config, printed.err)
}

#[test]
fn servers_of_other_programs_become_sections_without_their_secrets() {
    let claude = json!({"mcpServers": {
        "git hub": {"command": "npx", "args": ["-y", "server", "--api-key", "hunter22"], "env": {"GITHUB_TOKEN": "ghp_hunter22", "LEVEL": "3"}},
        "web": {"type": "http", "url": "https://mcp.example/mcp", "headers": {"Authorization": "Bearer hunter22", "X-Team": "blue"}},
        "old": {"type": "sse", "url": "https://mcp.example/sse"},
        "user": {"url": "https://ann:hunter22@mcp.example/mcp"},
        "keyed": {"url": "https://mcp.example/mcp?api_key=hunter22", "disabled": true, "alwaysAllow": ["x"]},
    }});
    let code = json!({"servers": {"fs": {"command": "server", "args": ["${workspaceFolder}", "${input:api-token}", "${env:HOME}"]}}});
    let codex = "[mcp_servers.docs]\nurl = \"https://docs.example/mcp\"\nbearer_token_env_var = \"DOCS_TOKEN\"\nstartup_timeout_sec = 20\nenabled_tools = [\"read\"]\n";
    for (name, text, lines, notes) in [
        (
            "claude.json",
            claude.to_string(),
            &[
                "[mcp_servers.git_hub]\ncommand = \"npx\"\nargs = [\"-y\", \"server\", \"--api-key\", \"${GIT_HUB_API_KEY}\"]\n",
                "env = { GITHUB_TOKEN = { env = \"GITHUB_TOKEN\" }, LEVEL = \"3\" }\n",
                "url = \"https://mcp.example/mcp\"\nauth = { type = \"bearer\", token = { env = \"WEB_TOKEN\" } }\nheaders = { X-Team = \"blue\" }\n",
                "url = \"https://mcp.example/mcp?${KEYED_SECRET_QUERY}\"\nenabled = false\n",
            ][..],
            &[
                "`old` was left out: it speaks HTTP+SSE",
                "`user` was left out",
                "`keyed`: ignored alwaysAllow",
                "GITHUB_TOKEN, GIT_HUB_API_KEY",
            ][..],
        ),
        ("mcp.json", code.to_string(), &["args = [\".\", \"${FS_API_TOKEN}\", \"${HOME}\"]\n"], &["FS_API_TOKEN"]),
        (
            "config.toml",
            codex.to_owned(),
            &[
                "auth = { type = \"bearer\", token = { env = \"DOCS_TOKEN\" } }\ninclude = [\"read\"]\nstartup_timeout = \"20s\"\n",
            ],
            &["DOCS_TOKEN"],
        ),
    ] {
        let (config, said) = import(name, &text);
        assert!(lines.iter().all(|line| config.contains(line)), "{config}");
        assert!(notes.iter().all(|note| said.contains(note)), "{said}");
        assert!(!config.contains("hunter22") && !said.contains("hunter22"), "{config}{said}");
    }
}

#[test]
fn every_text_that_contains_a_secret_becomes_a_reference() {
    let args = |args: &[&str]| json!({"command": "run", "args": args});
    let env = |name: &str, value: &str| json!({"command": "run", "env": {name: value}});
    let headers = |name: &str, value: &str| json!({"url": "https://mcp.example/mcp", "headers": {name: value}});
    for (server, line) in [
        (args(&["postgresql://bob:hunter22@host/db"]), "args = [\"${S_SECRET}\"]"),
        (args(&["redis://:hunter22@host", "a:hunter22@tcp(db)/x"]), "args = [\"${S_SECRET}\", \"${S_SECRET_2}\"]"),
        (args(&["--dsn=mysql://bob:hunter22@host/db"]), "args = [\"--dsn=${S_DSN}\"]"),
        (
            args(&["--header", "Authorization: Bearer hunter22", "-H", "X-Custom: Basic hunter22"]),
            "args = [\"--header\", \"Authorization: ${S_AUTHORIZATION}\", \"-H\", \"X-Custom: ${S_X_CUSTOM}\"]",
        ),
        (args(&["--header=X-Api-Key: hunter22"]), "args = [\"--header=X-Api-Key: ${S_X_API_KEY}\"]"),
        (args(&["-HX-Api-Key:hunter22"]), "args = [\"-HX-Api-Key:${S_HX_API_KEY}\"]"),
        (args(&["-e", "APP_TOKEN=hunter22"]), "args = [\"-e\", \"APP_TOKEN=${S_APP_TOKEN}\"]"),
        (args(&["-c", "TOKEN=hunter22 x"]), "args = [\"-c\", \"${S_C}\"]"),
        (args(&["-c", "x --api-key hunter22"]), "args = [\"-c\", \"${S_C}\"]"),
        (args(&["-c", "x 'https://h.example/?api_key=hunter22'"]), "args = [\"-c\", \"${S_C}\"]"),
        (args(&["x://bob:hunter22@${HOST}"]), "args = [\"${S_SECRET}\"]"),
        (args(&["${TOKEN:-hunter22}"]), "args = [\"${TOKEN}\"]"),
        (env("DATABASE_URL", "postgres://bob:hunter22@host"), "env = { DATABASE_URL = { env = \"DATABASE_URL\" } }"),
        (env("DSN", "host=db password=hunter22"), "env = { DSN = { env = \"DSN\" } }"),
        (headers("X-Custom", "Basic hunter22"), "headers = { X-Custom = { env = \"S_X_CUSTOM\" } }"),
        (headers("X-Custom", "token hunter22"), "headers = { X-Custom = { env = \"S_X_CUSTOM\" } }"),
        // Nothing to hide.
        (args(&["--header", "Authorization: Bearer ${T}"]), "args = [\"--header\", \"Authorization: Bearer ${T}\"]"),
        (
            args(&["http://localhost:3000/@a/b", "ssh://git@host/x"]),
            "[\"http://localhost:3000/@a/b\", \"ssh://git@host/x\"]",
        ),
        (args(&["x://bob:${PASS}@host", "-y", "a@1.2"]), "args = [\"x://bob:${PASS}@host\", \"-y\", \"a@1.2\"]"),
        (args(&["-v", "/data/secrets:/secrets", "A=b"]), "args = [\"-v\", \"/data/secrets:/secrets\", \"A=b\"]"),
    ] {
        let (config, said) = import("a.json", &json!({"mcpServers": {"s": server}}).to_string());
        assert!(config.contains(line), "{line}\n{config}");
        assert!(!config.contains("hunter22") && !said.contains("hunter22"), "{config}{said}");
    }
}

#[test]
fn secrets_of_the_same_name_with_different_values_become_different_variables() {
    let env = |token: &str| json!({"command": "run", "env": {"API_TOKEN": token}});
    let bearer = |token: &str| json!({"url": "https://mcp.example/mcp", "headers": {"Authorization": format!("Bearer {token}")}});
    let servers = json!({
        "a": env("hunter22"), "b": env("hunter23"), "c": env("hunter22"), "d": env("${API_TOKEN_2}"),
        "x-y": bearer("hunter24"), "x_y": bearer("hunter25"),
    });
    let (config, said) = import("a.json", &json!({"mcpServers": servers}).to_string());
    let section =
        |name: &str| config.split_once(&format!("[mcp_servers.{name}]\n")).unwrap().1.split("\n[").next().unwrap();
    let refers = |name: &str, variable: &str| section(name).contains(&format!("{{ env = \"{variable}\" }}"));
    assert!(refers("a", "API_TOKEN") && refers("b", "B_API_TOKEN") && refers("c", "API_TOKEN"), "{config}");
    assert!(refers("x-y", "X_Y_TOKEN") && refers("x_y", "X_Y_TOKEN_2"), "{config}");
    assert!(said.contains("`b`: API_TOKEN is used elsewhere, so it is B_API_TOKEN here"), "{said}");
    assert!(!config.contains("hunter") && !said.contains("hunter"), "{config}{said}");
    // A variable that the file refers to has a value of its own.
    let (config, said) =
        import("a.json", &json!({"mcpServers": {"a": env("hunter22"), "b": env("${API_TOKEN}")}}).to_string());
    assert!(config.contains("{ env = \"A_API_TOKEN\" }") && config.contains("\"${API_TOKEN}\""), "{config}{said}");
}

#[test]
fn a_file_without_servers_and_a_name_that_exists_change_nothing() {
    let folder = TempFolder::new();
    let config = "[mcp_servers.fs]\ncommand = \"cat\"\n";
    folder.write("toolhub.toml", config);
    folder.write("same.json", "{\"mcpServers\": {\"fs\": {\"command\": \"cat\"}}}");
    folder.write("clash.json", "{\"mcpServers\": {\"a b\": {\"command\": \"cat\"}, \"a.b\": {\"command\": \"cat\"}}}");
    folder.write("none.json", "{\"theme\": \"dark\"}");
    folder.write("no_servers.json", "{\"mcpServers\": {}, \"projects\": {\"/a\": {\"mcpServers\": {}}}}");
    folder.write("empty.json", " \n");
    folder.write("broken.json", "{\"mcpServers\": {");
    for (name, reason) in [
        ("same.json", "has an MCP server named `fs` already"),
        ("clash.json", "`a b` and `a.b` would both be named `a_b`"),
        ("none.json", "has no MCP servers"),
        ("no_servers.json", "has no MCP servers"),
        ("empty.json", "it is empty"),
        ("broken.json", "it is not JSON: EOF"),
        ("missing.json", "cannot import"),
    ] {
        let ran = run_toolhub(folder.path(), &["mcp", "import", name], &[]);
        assert_eq!((ran.code, folder.read("toolhub.toml").as_str()), (2, config), "{}", ran.err);
        assert!(ran.err.contains(reason), "{}", ran.err);
    }
}

#[test]
fn comments_and_trailing_commas_of_vs_code_are_read() {
    let text =
        "// my servers\n{\"servers\": {\n  /* files */ \"fs\": {\"command\": \"cat\", \"args\": [\"//x\",],},\n},}\n";
    let (config, _) = import("mcp.json", text);
    assert!(config.contains("[mcp_servers.fs]\ncommand = \"cat\"\nargs = [\"//x\"]\n"), "{config}");
}

#[test]
fn servers_of_the_projects_of_claude_code_are_imported_too() {
    let fs = |root: &str| json!({"command": "cat", "args": [root]});
    let web = json!({"type": "http", "url": "https://mcp.example/mcp"});
    let document = json!({
        "mcpServers": {"fs": fs("/")},
        "projects": {
            "/home/me/shop": {"mcpServers": {"fs": fs("/shop"), "web": web}, "history": []},
            "/home/me/site": {"mcpServers": {"fs": fs("/site"), "web": web}},
            "/home/me/none": {"mcpServers": {}},
        },
    });
    let (config, said) = import(".claude.json", &document.to_string());
    let sections: Vec<&str> = config.lines().filter(|line| line.starts_with('[')).collect();
    let expected = ["[mcp_servers.fs]", "[mcp_servers.fs_shop]", "[mcp_servers.web]", "[mcp_servers.fs_site]"];
    assert_eq!(sections, expected);
    assert!(config.contains("args = [\"/shop\"]\ncwd = \"/home/me/shop\"\n"), "{config}");
    assert!(said.contains("`fs_shop` is a server of the project /home/me/shop"), "{said}");
}

#[test]
fn a_later_import_does_not_share_a_variable_that_may_have_another_value() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "# mine\n");
    let imports = |name: &str, token: &str, variables: &[(&str, &str)]| {
        let server = json!({"command": "cat", "env": {"API_TOKEN": token}});
        folder.write("a.json", &json!({"mcpServers": {name: server}}).to_string());
        let ran = run_toolhub(folder.path(), &["mcp", "import", "a.json"], variables);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let config = folder.read("toolhub.toml");
        config.rsplit("{ env = \"").next().and_then(|rest| rest.split('"').next()).map(String::from).unwrap()
    };
    assert_eq!(imports("one", "hunter22", &[]), "API_TOKEN");
    assert_eq!(imports("two", "hunter23", &[]), "TWO_API_TOKEN");
    assert_eq!(imports("three", "hunter22", &[("API_TOKEN", "hunter22")]), "API_TOKEN");
    assert_eq!(imports("four", "hunter24", &[("FOUR_API_TOKEN", "hunter25")]), "FOUR_API_TOKEN_2");
}

#[test]
fn what_cannot_be_taken_over_is_left_out_alone_with_a_note() {
    let gemini = json!({"mcpServers": {
        "good": {"httpUrl": "https://mcp.example/mcp", "headers": {"X-Key": "$GOOD_KEY"}},
        "run": {"command": "run", "args": ["--key", "$RUN_KEY"], "env": {"API_TOKEN": "$RUN_TOKEN", "EMPTY": null}, "url": "https://a.example"},
        "number": 5,
        "text": {"command": "run", "args": "-y"},
        "socket": {"url": "wss://mcp.example"},
        "old": {"type": "sse", "url": "https://mcp.example/sse"},
    }});
    let (config, said) = import("settings.json", &gemini.to_string());
    for line in [
        "headers = { X-Key = \"${GOOD_KEY}\" }",
        "args = [\"--key\", \"${RUN_KEY}\"]",
        "env = { API_TOKEN = \"${RUN_TOKEN}\" }",
    ] {
        assert!(config.contains(line), "{line}\n{config}");
    }
    assert_eq!(config.matches("[mcp_servers.").count(), 2, "{config}");
    for note in [
        "`number` was left out: it has neither `command` nor `url`",
        "`text` was left out: `args` is not a list of texts",
        "`socket` was left out: its address does not begin with",
        "such as https://mcp.example/mcp",
        "`run`: ignored its address",
    ] {
        assert!(said.contains(note), "{note}\n{said}");
    }
}
