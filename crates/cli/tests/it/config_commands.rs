//! The commands on the config, for people and programs.

use serde_json::Value;
use toolhub_testkit::TempFolder;

use crate::config::{RunOutput, run_toolhub};

const HASH: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn parse_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn run_config(folder: &TempFolder, arguments: &[&str]) -> RunOutput {
    let all: Vec<&str> = ["config"].iter().chain(arguments).copied().collect();
    run_toolhub(folder.path(), &all, &[])
}

#[test]
fn a_first_config_is_written_once_and_passes_the_check() {
    for (flags, tools) in [(vec!["init"], 6), (vec!["init", "--demo"], 6), (vec!["init", "--empty"], 0)] {
        let folder = TempFolder::new();
        folder.write(".gitignore", "target");
        let ran = run_toolhub(folder.path(), &flags, &[]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let ignored = std::fs::read_to_string(folder.path().join(".gitignore")).unwrap();
        assert_eq!(ignored, "target\n.toolhub/\n");
        let checked = run_config(&folder, &["check"]);
        assert_eq!((checked.code, checked.err.as_str()), (0, ""));
        assert!(checked.out.starts_with(&format!("toolhub.toml is valid: {tools} tools, ")), "{}", checked.out);
        let second = run_toolhub(folder.path(), &flags, &[]);
        assert_eq!(second.code, 2);
        assert!(second.err.contains("already exists") && second.err.contains("--force"), "{}", second.err);
        folder.write("toolhub.toml", "mine");
        let forced: Vec<&str> = flags.iter().copied().chain(["--force", "--json"]).collect();
        let written = run_toolhub(folder.path(), &forced, &[]);
        assert_eq!(parse_json(&written.out)["written"].as_array().map(Vec::len), Some(1), "{}", written.out);
        assert_eq!(run_config(&folder, &["check"]).code, 0);
    }
    let folder = TempFolder::new();
    assert_eq!(run_toolhub(folder.path(), &["init", "--demo", "--empty"], &[]).code, 2);
}

#[test]
fn without_a_file_the_defaults_hold_and_say_so() {
    let folder = TempFolder::new();
    let ran = run_config(&folder, &["check"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.starts_with("no config file; the defaults are valid: 0 tools, store in "), "{}", ran.out);
    let path = run_config(&folder, &["path"]);
    assert_eq!((path.code, path.out.as_str()), (0, ""));
    assert!(path.err.contains("`toolhub init` creates one"), "{}", path.err);
    let missing = run_config(&folder, &["check", "--config", "nowhere.toml"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("cannot read nowhere.toml: no such file"), "{}", missing.err);
}

#[test]
fn the_path_names_the_files_that_weigh_most_first() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "");
    std::fs::create_dir_all(folder.path().join(".config/toolhub")).unwrap();
    folder.write(".config/toolhub/config.toml", "");
    let ran = run_config(&folder, &["path"]);
    let expected =
        ["toolhub.toml", ".config/toolhub/config.toml"].map(|name| folder.path().join(name).display().to_string());
    assert_eq!(ran.out.lines().collect::<Vec<_>>(), expected);
    assert_eq!(parse_json(&run_config(&folder, &["path", "--json"]).out)["files"].as_array().unwrap().len(), 2);
}

#[test]
fn problems_are_json_for_programs() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "[server]\nprot = 1\n");
    let ran = run_toolhub(folder.path(), &["config", "check", "--json"], &[("TOOLHUB__SERVER__PORT", "x")]);
    assert_eq!((ran.code, ran.err.as_str()), (2, ""));
    let document = parse_json(&ran.out);
    assert_eq!(document["ok"], false);
    let first = &document["problems"][0];
    assert_eq!((&first["file"], &first["line"], &first["column"]), (&"toolhub.toml".into(), &2.into(), &1.into()));
    assert_eq!((&first["key"], &first["help"]), (&"server.prot".into(), &"did you mean `port`?".into()));
    assert_eq!(document["problems"][1]["env"], "TOOLHUB__SERVER__PORT");
    let shown = run_toolhub(folder.path(), &["config", "show", "--json"], &[]);
    assert_eq!((shown.code, parse_json(&shown.err)["error"]["code"].as_str()), (2, Some("config_invalid")));
}

#[test]
fn everything_that_holds_is_shown_with_its_origin() {
    let folder = TempFolder::new();
    folder.write(
        "toolhub.toml",
        "[server]\nport = 99\npublic_url = \"https://${NAME}.example\"\n[tools.clock]\nbuiltin = \"clock\"\n",
    );
    let variables = [("NAME", "hub"), ("TOOLHUB__DEFAULTS__TIMEOUT", "9s")];
    let arguments = ["config", "show", "--origin", "--set", "server.json_depth=9"];
    let ran = run_toolhub(folder.path(), &arguments, &variables);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for (start, end) in [
        ("port = 99 ", "# toolhub.toml:2"),
        ("public_url = \"https://hub.example\" ", "# toolhub.toml:3 with ${NAME}"),
        ("timeout = \"9s\" ", "# env TOOLHUB__DEFAULTS__TIMEOUT"),
        ("json_depth = 9 ", "# flag --set server.json_depth"),
        ("body_limit = \"2MiB\" ", "# default"),
    ] {
        let found = ran.out.lines().any(|line| line.starts_with(start) && line.ends_with(end));
        assert!(found, "no line {start} … {end} in\n{}", ran.out);
    }
    let copy = TempFolder::new();
    copy.write("toolhub.toml", &ran.out);
    assert_eq!(run_config(&copy, &["check"]).code, 0, "the printed config is valid");
    let document = parse_json(&run_toolhub(folder.path(), &["config", "show", "--origin", "--json"], &variables).out);
    let port = document["items"].as_array().unwrap().iter().find(|item| item["key"] == "server.port").unwrap();
    assert_eq!((&port["value"], &port["origin"]), (&99.into(), &"toolhub.toml:2".into()));
    assert_eq!(
        parse_json(&run_toolhub(folder.path(), &["config", "show", "--json"], &variables).out)["server"]["port"],
        99
    );
}

/// Plants secrets in every place of a config, and searches all output for them.
#[test]
fn no_command_prints_a_secret() {
    let folder = TempFolder::new();
    let secret = "correct-horse-battery-staple";
    let good = format!(
        "[auth]\nmode = \"keys\"\n[[auth.keys]]\nname = \"a\"\nhash = \"{HASH}\"\nscopes = [\"admin\"]\n\
         [[auth.keys]]\nname = \"b\"\nhash = {{ env = \"KEY_HASH\" }}\nscopes = [\"admin\"]\n\
         [[auth.keys]]\nname = \"c\"\nhash = {{ file = \"hash\" }}\nscopes = [\"admin\"]\n\
         [tools.clock]\nbuiltin = \"clock\"\nversion = \"${{MY_TOKEN}}\"\n\
         metadata = {{ api_token = \"{secret}\", nested = {{ password = \"{secret}\", pin_secret = 31415926535 }} }}\n\
         [llm]\nprovider = \"openai\"\nmodel = \"m\"\napi_key = \"{secret}\"\n"
    );
    folder.write("toolhub.toml", &good);
    folder.write("hash", &HASH.replace('0', "1"));
    let other = HASH.replace('0', "2");
    let variables = [("KEY_HASH", other.as_str()), ("MY_TOKEN", secret)];
    let mut printed = Vec::new();
    for arguments in [vec!["config", "show"], vec!["config", "show", "--origin"], vec!["config", "show", "--json"]] {
        let ran = run_toolhub(folder.path(), &arguments, &variables);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.out.contains("••••cdef") && ran.out.contains("KEY_HASH"), "{}", ran.out);
        printed.push(ran.out);
    }
    // Each on an invalid line, so that the line would be shown.
    for bad in [
        format!("[[auth.keys]]\nname = \"a\"\nhash = \"{secret}\"\nscopes = [\"admin\"]\n[auth]\nmode = \"keys\""),
        format!("auth = {{ mode = \"keys\", keys = [{{ name = \"a\", hash = \"{secret}\", scopes = [\"admin\"] }}] }}"),
        format!("[server]\napi_key = \"{secret}\""),
        format!("[llm]\napi_key = \"{secret}"),
        format!("[llm]\nprovider = \"openai\"\napi_key = \"{secret}\""),
        format!("[llm]\nprovider = \"scripted\"\napi_key = \"{secret}\""),
        format!("[llm]\nprovider = \"openai\"\nmodel = \"m\"\nbase_url = \"http://user:{secret}@host/v1\""),
        "[server]\nport = \"${MY_TOKEN}\"\n[defaults]\ntimeout = \"${MY_TOKEN}\"\n[store]\nbackend = \"${MY_TOKEN}\""
            .into(),
        format!("[tools.x]\nbuiltin = \"clock\"\nauth = {{ token = \"{secret}\" }}"),
    ] {
        folder.write("toolhub.toml", &bad);
        for arguments in [vec!["config", "check"], vec!["config", "check", "--json"]] {
            let ran = run_toolhub(folder.path(), &arguments, &variables);
            assert_eq!(ran.code, 2, "{bad}: {}", ran.out);
            printed.extend([ran.out, ran.err]);
        }
    }
    folder.write("toolhub.toml", "");
    let arguments = ["config", "check", "--set", &format!("tools.x.auth.token={secret}")];
    printed.push(run_toolhub(folder.path(), &arguments, &variables).err);
    for text in printed {
        for hidden in [secret, "31415926535", "0123456789abcdef0123", "1123456789abcdef", "2123456789abcdef"] {
            assert!(!text.contains(hidden), "{hidden} in\n{text}");
        }
    }
}

#[test]
fn a_tool_that_cannot_be_registered_and_has_no_script_is_told_both_in_the_words_of_a_config() {
    let folder = TempFolder::new();
    let text = "[tools.cart]\nkind = \"stateful\"\ncommand = \"python3\"\nargs = [\"nowhere.py\"]\n\
                description = \"A cart.\"\nparameters = { type = \"object\", properties = { state = { type = \"string\" } } }\n";
    folder.write("toolhub.toml", text);
    let ran = run_config(&folder, &["check"]);
    assert_eq!(ran.code, 2);
    for told in ["`state.parameter_name`", "`state.inject = false`", "script `nowhere.py` does not exist"] {
        assert!(ran.err.contains(told), "`{told}` is missing: {}", ran.err);
    }
}

#[test]
fn arguments_that_no_schema_has_are_warned_about() {
    let folder = TempFolder::new();
    folder.write(
        "toolhub.toml",
        r#"
[[policy]]
tool = "dangerous"
arguments = { "/path" = "^/$" }
decision = "deny"

[[policy]]
tool = "dangerous"
arguments = { "/folder" = "^/$" }
decision = "deny"

[tools.dangerous]
builtin = "dangerous"

[tools.user]
description = "A user"
url = "https://api.example/users/{id}"
parameters = { type = "object", properties = { name = { type = "string" } } }
"#,
    );
    let checked = run_config(&folder, &["check"]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    let warnings: Vec<&str> = checked.err.lines().collect();
    assert_eq!(
        warnings,
        [
            "warning: [tools.user] uses {id} in its request, but its `parameters` have no property `id`, so a model cannot give it",
            "warning: the rule for `dangerous` has a condition on the argument `/path`, which no such tool has in its `parameters`",
        ]
    );
}
