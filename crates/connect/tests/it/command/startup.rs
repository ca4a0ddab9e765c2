//! Programs that cannot be started: the call has no effect, and the error names the setting.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;
use toolhub_connect::command::{Command, Guard};
use toolhub_core::{Effect, ErrorKind, ToolHub};
use toolhub_testkit::TempFolder;

use super::{call, expect_error, python};

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
    for (command, fragments) in [
        (Command::new("no-such-program-4711"), ["not found in PATH", "`command`"]),
        (Command::new(folder.join("missing")), ["does not exist", "`command`"]),
        (Command::new(folder.path()), ["is not a file", "`command`"]),
        (Command::new(&plain), ["is not executable", "chmod +x"]),
        (Command::new("plain.py").env("PATH", folder.text()), ["is not executable", "chmod +x"]),
        (Command::new(lost), ["could not be started", "#!"]),
        (Command::new(odd), ["could not be started", "built for this system"]),
        (python("").cwd(folder.join("missing")), ["does not exist", "`cwd`"]),
        (python("").cwd(&plain), ["is not a directory", "`cwd`"]),
        (
            python("").guard(Guard::program("/no/such/guard")),
            ["guard program `/no/such/guard` does not exist", "restore it"],
        ),
    ] {
        for tool in [command.clone().tool("it"), command.stateful_tool("it")] {
            let outcome = call(tool, json!({})).await;
            let error = outcome.error.as_ref().unwrap();
            assert_eq!((error.kind, outcome.effect), (ErrorKind::ToolError, Effect::None), "{error:?}");
            assert!(fragments.iter().all(|fragment| error.operator.contains(fragment)), "{}", error.operator);
            assert!(!error.model.contains('/'), "the model text contains a path: {}", error.model);
        }
    }
}

#[tokio::test]
async fn a_setting_that_no_machine_could_follow_is_refused_when_the_tool_is_registered() {
    for (command, fragment) in [
        (Command::new(""), "`command` is empty"),
        (python("").arg("a\0b"), "`args` contains a NUL byte"),
        (python("").env("A=B", "c"), "`A=B` is not a valid variable name"),
        (python("").pass_env(""), "is not a valid variable name"),
        (python("").max_output(0), "`max_output` is 0"),
        (python("").max_line(0), "`max_line` is 0"),
    ] {
        assert!(command.check().unwrap_err().to_string().contains(fragment));
        for tool in [command.clone().tool("it"), command.stateful_tool("it")] {
            let refused = ToolHub::builder().tool(tool).build().await.unwrap_err();
            assert!(refused.to_string().contains(fragment), "{refused}");
        }
    }
    assert!(python("").check().is_ok());
}

#[tokio::test]
async fn a_path_begins_where_the_hub_runs_even_if_the_program_runs_elsewhere() {
    let folder = TempFolder::new();
    let program = folder.join("program");
    fs::write(&program, "#!/usr/bin/env python3\nimport json, os\nprint(json.dumps(os.getcwd()))").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let current_dir = std::env::current_dir().unwrap();
    let up = "../".repeat(current_dir.components().count() - 1);
    let relative = format!("{up}{}", program.strip_prefix("/").unwrap().display());
    let outcome = call(Command::new(relative).cwd("/").tool("it"), json!({})).await;
    assert!(outcome.is_success(), "{}", expect_error(&outcome));
    assert_eq!(outcome.output, json!("/"));
}
