//! Programs that cannot be started: nothing has happened, and the error names the setting.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;
use toolhub_connect::command::{Command, Guard};
use toolhub_core::{Effect, ErrorKind, ToolHub};
use toolhub_testkit::TempFolder;

use super::{call, python, wrong};

#[tokio::test]
async fn what_cannot_be_started_has_done_nothing_and_says_what_to_correct() {
    let folder = TempFolder::new();
    let file = |name: &str, text: &str, mode| {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
        folder.join(name)
    };
    let plain = file("plain.py", "print(1)", 0o644);
    let lost = file("lost.py", "#!/no/such/interpreter\nprint(1)", 0o755);
    let odd = file("odd", "\u{7f}ELF but not really", 0o755);
    for (command, words) in [
        (Command::new("no-such-program-4711"), ["none of the folders of PATH", "`command`"]),
        (Command::new(folder.join("missing")), ["there is no file", "`command`"]),
        (Command::new(folder.path()), ["is no file", "`command`"]),
        (Command::new(&plain), ["may not be executed", "chmod +x"]),
        (Command::new("plain.py").env("PATH", folder.text()), ["may not be executed", "chmod +x"]),
        (Command::new(lost), ["could not be started", "#!"]),
        (Command::new(odd), ["could not be started", "made for this system"]),
        (python("").cwd(folder.join("missing")), ["does not exist", "`cwd`"]),
        (python("").cwd(&plain), ["is no folder", "`cwd`"]),
        (
            python("").guard(Guard::program("/no/such/guard")),
            ["the guard `/no/such/guard` is not there", "put it back"],
        ),
    ] {
        for tool in [command.clone().tool("it"), command.stateful_tool("it")] {
            let outcome = call(tool, json!({})).await;
            let error = outcome.error.as_ref().unwrap();
            assert_eq!((error.kind, outcome.effect), (ErrorKind::ToolError, Effect::None), "{error:?}");
            assert!(words.iter().all(|word| error.operator.contains(word)), "{}", error.operator);
            assert!(!error.model.contains('/'), "a model needs no paths: {}", error.model);
        }
    }
}

#[tokio::test]
async fn a_setting_that_no_machine_could_follow_is_refused_when_the_tool_is_registered() {
    for (command, word) in [
        (Command::new(""), "`command` is empty"),
        (python("").arg("a\0b"), "`args` holds a NUL byte"),
        (python("").env("A=B", "c"), "`A=B` cannot be the name of a variable"),
        (python("").pass_env(""), "cannot be the name of a variable"),
        (python("").max_output(0), "`max_output` is 0"),
        (python("").max_line(0), "`max_line` is 0"),
    ] {
        assert!(command.check().unwrap_err().to_string().contains(word));
        for tool in [command.clone().tool("it"), command.stateful_tool("it")] {
            let refused = ToolHub::builder().tool(tool).build().await.unwrap_err();
            assert!(refused.to_string().contains(word), "{refused}");
        }
    }
    assert!(python("").check().is_ok());
}

#[tokio::test]
async fn a_path_begins_where_the_hub_runs_even_if_the_program_runs_elsewhere() {
    let folder = TempFolder::new();
    let program = folder.join("here");
    fs::write(&program, "#!/usr/bin/env python3\nimport json, os\nprint(json.dumps(os.getcwd()))").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let here = std::env::current_dir().unwrap();
    let up = "../".repeat(here.components().count() - 1);
    let relative = format!("{up}{}", program.strip_prefix("/").unwrap().display());
    let outcome = call(Command::new(relative).cwd("/").tool("it"), json!({})).await;
    assert!(outcome.is_success(), "{}", wrong(&outcome));
    assert_eq!(outcome.output, json!("/"));
}
