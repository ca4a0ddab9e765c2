//! Golden tests of the command line: each file in `tests/it/cli` is a terminal session that is replayed.
//!
//! A line that begins with `$ ` is a command. What follows is the output of the binary: stdout as it is, stderr after `! `, and
//! the exit code in brackets if it is not 0. Lines at the top that begin with `# ` describe the session, and may set
//! `# columns:`, `# env:` and `# setup:` (`in_process`: a folder with a config; `empty`: one without; `serve`: one whose config
//! is being served; `server`: a remote server and no config; `keys`: one that requires API keys; `mcp`: one with MCP servers).
//! Ids, times and paths are masked; a masked id may be used in a later command. `TOOLHUB_BLESS=1` rewrites the files.

mod mask;
pub(crate) mod script;
mod server;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use mask::Mask;
use script::{Script, Step};
use server::{ServeProcess, TestServer};
use toolhub::server::NewKey;
use toolhub_testkit::TempFolder;

/// The config of these sessions. Nothing listens on its port.
const CONFIG: &str = r#"
[status]
failure_duration = "10m"

[[policy]]
tool = "dangerous"
arguments = { "/folder" = "^/$" }
decision = "deny"
reason = "deleting the root folder is never allowed"

[tools.calculator]
builtin = "calculator"
[tools.clock]
builtin = "clock"
[tools.notes]
builtin = "notes"
[tools.dangerous]
builtin = "dangerous"
approval_timeout = "15m"
"#;

/// Replays a session and compares the output with the file.
fn play_session(name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli").join(name).with_extension("txt");
    let text = std::fs::read_to_string(&file).expect("the session can be read");
    let mut script = Script::parse(&text);
    let played = play(&script);
    if std::env::var_os("TOOLHUB_BLESS").is_some() {
        script.steps = played;
        std::fs::write(&file, script.render()).expect("the session can be written");
        return;
    }
    assert_steps_match(name, &script.steps, &played);
}

/// Replays the commands and returns their output.
pub(crate) fn play(script: &Script) -> Vec<Step> {
    let folder = TempFolder::new();
    let port = free_port();
    let served = match script.setup() {
        "server" => Some(TestServer::start()),
        "keys" => Some(TestServer::start_with_key(NewKey::make().expect("a key can be made"))),
        "mcp" => Some(TestServer::start_with_mcp_servers()),
        _ => None,
    };
    if matches!(script.setup(), "in_process" | "serve") {
        folder.write("toolhub.toml", &format!("[server]\nport = {port}\n{CONFIG}"));
    }
    let _serving = (script.setup() == "serve").then(|| ServeProcess::start(folder.path(), port));
    let mut mask = Mask::new(folder.path(), served.as_ref().map_or(port, TestServer::port));
    if let Some(key) = served.as_ref().and_then(TestServer::key) {
        mask.mask(key);
    }
    let replay = |step: &Step| {
        let output = run(&mask.unmask(&step.command), script, folder.path(), served.as_ref());
        Step { command: step.command.clone(), output: mask.mask(&output) }
    };
    script.steps.iter().map(replay).collect()
}

#[track_caller]
pub(crate) fn assert_steps_match(name: &str, expected: &[Step], got: &[Step]) {
    for (expected, got) in expected.iter().zip(got) {
        let (expected_lines, got_lines) = (normalize_lines(&expected.output), normalize_lines(&got.output));
        assert_eq!(expected_lines, got_lines, "\nin {name} after `$ {}`\n{}\n", expected.command, got.output);
    }
}

/// How many characters of a truncated text are compared: where it is truncated depends on the width of its neighbours.
const CUT_TEXT_PREFIX: usize = 20;

fn normalize_cut_text(word: &str) -> String {
    match word.chars().last() {
        Some(mark @ ('~' | '…')) if word.chars().count() > CUT_TEXT_PREFIX => {
            word.chars().take(CUT_TEXT_PREFIX).chain([mark]).collect()
        }
        _ => word.to_owned(),
    }
}

/// Durations have varying numbers of digits, and column widths follow them: the space between columns is ignored.
fn normalize_lines(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let words = line.trim_start().split("  ").map(str::trim).filter(|word| !word.is_empty());
        let words: Vec<String> = words.map(normalize_cut_text).collect();
        format!("{}{}", &line[..indent], words.join("  "))
    };
    text.lines().map(line).collect()
}

fn run(command_line: &str, script: &Script, folder: &Path, served: Option<&TestServer>) -> String {
    let (stdin, words) = script::parse_command(command_line);
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolhub"));
    command.args(&words).current_dir(folder).env_clear().env("HOME", folder).env("TERM", "xterm");
    command.env("LANG", "C.UTF-8").env("COLUMNS", script.columns().to_string()).envs(script.env());
    if let Some(server) = served {
        command.env("TOOLHUB_URL", server.url());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary can be started");
    if let Some(mut input) = child.stdin.take() {
        // The command may have exited without reading stdin.
        let _ = input.write_all(stdin.as_bytes());
    }
    let output = child.wait_with_output().expect("the binary ends");
    let text = |bytes| String::from_utf8(bytes).expect("the binary writes UTF-8");
    let (out, err) = (text(output.stdout), text(output.stderr));
    if script.checks_width() {
        let wide = out.lines().find(|line| line.chars().count() > script.columns());
        assert_eq!(wide, None, "too wide for {} columns, after `$ {command_line}`", script.columns());
    }
    assert!(
        !out.contains('\u{1b}') || command_line.contains("--color always"),
        "escapes in a pipe after `$ {command_line}`"
    );
    let notes: String = err.lines().map(|line| format!("! {line}").trim_end().to_owned() + "\n").collect();
    let code = match output.status.code() {
        Some(0) => String::new(),
        code => format!("[exit {}]\n", code.map_or("signal".into(), |code| code.to_string())),
    };
    let gap = if out.is_empty() || out.ends_with('\n') { "" } else { "\n" };
    format!("{out}{gap}{notes}{code}")
}

/// A free port. Another process might take it in the meantime; then one session fails visibly.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("it has an address").port()
}

#[test]
fn every_session_is_played() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/cli");
    let files =
        std::fs::read_dir(folder).expect("the folder is there").map(|file| file.expect("it can be listed").path());
    let texts: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    let played = include_str!("cli.rs");
    for file in texts {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("it has a name").to_owned();
        assert!(played.contains(&format!("play_session(\"{name}\")")), "no test replays {name}.txt");
    }
}

#[test]
fn first_steps() {
    play_session("first_steps");
}

#[test]
fn mistakes_lead_to_the_right_command() {
    play_session("mistakes");
}

#[test]
fn lists_fit_a_wide_terminal() {
    play_session("wide");
}

#[test]
fn lists_fit_a_narrow_terminal() {
    play_session("narrow");
}

#[test]
fn programs_get_json() {
    play_session("json");
}

#[test]
fn a_plain_terminal_gets_plain_letters() {
    play_session("ascii");
}

#[test]
fn arguments_are_typed_by_the_schema() {
    play_session("arguments");
}

#[test]
fn calls_that_wait_for_a_person_say_so() {
    play_session("approvals");
}

#[test]
fn operators_take_tools_out_of_service_and_bring_them_back() {
    play_session("operators");
}

#[test]
fn states_are_read_and_written() {
    play_session("state");
}

#[test]
fn a_server_is_asked_over_the_network() {
    play_session("server");
}

#[test]
fn mcp_servers_are_listed_restarted_and_approved() {
    play_session("mcp");
}

#[test]
fn a_server_that_wants_a_key_says_so() {
    play_session("key_wanted");
}

#[test]
fn colours_come_when_they_are_asked_for_and_never_into_a_pipe_by_themselves() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &format!("[server]\nport = 1\n{CONFIG}"));
    let coloured = |flags: &[&str], variables: &[(&str, &str)]| {
        let ran = crate::config::run_toolhub(folder.path(), &[&["tools", "list"], flags].concat(), variables);
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.out.contains("\u{1b}[")
    };
    assert!(coloured(&["--color", "always"], &[("TERM", "xterm")]));
    assert!(!coloured(&["--color", "never"], &[("TERM", "xterm"), ("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[], &[("TERM", "xterm")]));
    assert!(!coloured(&[], &[("TERM", "xterm"), ("NO_COLOR", "1")]));
}

#[test]
fn the_past_of_a_state_and_the_numbers_of_a_tool_are_shown() {
    play_session("past");
}

#[test]
fn keys_are_made_for_the_config() {
    play_session("keys");
}

#[test]
fn the_doctor_says_how_to_mend_things() {
    play_session("doctor");
}

#[test]
fn a_server_that_runs_on_the_config_is_found() {
    play_session("running");
}

#[test]
fn a_backup_is_made_and_put_back() {
    play_session("backup");
}

#[test]
fn an_agent_is_talked_to() {
    play_session("chat");
}

#[test]
fn a_bad_config_is_told_by_every_command() {
    play_session("bad_config");
}

#[test]
fn a_script_that_makes_no_sense_is_told_with_its_lines() {
    play_session("stub_llm");
}
