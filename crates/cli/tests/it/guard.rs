//! The guard of command tools: whatever happens to the hub, no process started for it survives.
//!
//! Every process of a test has the test's folder among its arguments, so that survivors are found by listing all processes.
#![allow(clippy::unwrap_used, reason = "a failed precondition should fail the test immediately")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command as Start, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::Instant,
};
use toolhub::{
    CancellationToken, HubBuilder, SourceConnection, ToolBuilder,
    command::{Command, Guard},
    mcp::McpServer,
    prelude::*,
};

use toolhub_testkit::{TempFolder, soak};

/// Tells the test binary to act as the hub to be killed, and its folder.
const FOLDER_VARIABLE: &str = "TOOLHUB_GUARDED_HUB";
/// An MCP server, and how many of them a hub has.
const MCP_SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../connect/tests/mcp_servers/stdio_server.py");
const MCP_SERVERS: usize = 5;
/// How long processes may take to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a child in its process group, one that left the group, one that was forked twice, one that ignores SIGTERM, and one that
/// runs another program; creates a file when all are running, then acts by its name.
const PROCESS_TREE_SCRIPT: &str = r#"
import json, os, signal, subprocess, sys, time
folder, name = sys.argv[1:3]
up = os.path.join(folder, "up-%s-%d" % (name, os.getpid()))
os.makedirs(up)

def here(member):
    open(os.path.join(up, member), "w").close()

def child(member, *steps):
    if os.fork() == 0:
        for step in steps: step()
        here(member)
        time.sleep(1000)
        os._exit(0)

def fork_again():
    if os.fork() > 0: os._exit(0)

child("plain")
child("left", os.setsid)
child("twice", os.setsid, fork_again)
child("deaf", os.setsid, lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", folder], start_new_session=True)
while len(os.listdir(up)) < 4: time.sleep(0.01)
os.rename(up, os.path.join(folder, "up-" + name))
if name == "ends":
    print('"I am done"')
elif name == "lives":
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"id": request["id"], "result": request["arguments"], "state": {"asked": request["id"]}}))
elif name.startswith("mcp"):
    os.execv(sys.executable, [sys.executable, sys.argv[3], folder])
else:
    time.sleep(1000)
"#;

fn with_guard(command: Command) -> Command {
    command.guard(Guard::program(env!("CARGO_BIN_EXE_toolhub"))).grace(Duration::from_millis(200))
}

fn python_command(code: &str, args: &[&str]) -> Command {
    with_guard(Command::new("python3").args(["-c", code]).args(args.iter().copied()))
}

fn process_tree_command(folder: &Path, name: &str) -> Command {
    python_command(PROCESS_TREE_SCRIPT, &[folder.to_str().unwrap(), name])
}

async fn build_hub<const N: usize>(tools: [ToolBuilder; N]) -> ToolHub {
    tools.into_iter().fold(ToolHub::builder(), HubBuilder::tool).build().await.unwrap()
}

/// All processes that have the folder among their arguments, with their arguments.
fn find_processes(folder: &Path) -> Vec<(String, Vec<String>)> {
    let folder = folder.to_str().unwrap();
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<String> =
            words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into()).collect();
        let pid = entry.file_name().into_string().ok()?;
        words.iter().any(|word| word == folder).then_some((pid, words))
    })
    .collect()
}

/// Waits until no process is left. Checks twice in a row, so that a process that is just starting is not missed.
async fn assert_no_process_left(folder: &Path) {
    let (started, mut clear_checks) = (Instant::now(), 0);
    while clear_checks < 2 {
        let left: Vec<String> = find_processes(folder).into_iter().map(|(pid, _)| pid).collect();
        clear_checks = if left.is_empty() { clear_checks + 1 } else { 0 };
        assert!(started.elapsed() < EXIT_TIMEOUT, "still running after {EXIT_TIMEOUT:?}: {left:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn wait_for_file(path: PathBuf) {
    let started = Instant::now();
    while !path.exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "still waiting for {}", path.display());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Not a test but the hub that is killed; does nothing unless the variable is set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test below, in its own process"]
async fn calls_programs_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else { return };
    let hub = build_hub([
        process_tree_command(&folder, "hangs").tool("hangs"),
        process_tree_command(&folder, "lives").stateful_tool("lives"),
    ])
    .await;
    println!("ready");
    let hangs = hub.call("hangs", json!({})).start();
    let lived = hub.call("lives", json!({"a": 1})).thread("t").await;
    assert!(lived.is_success(), "{lived:?}");
    std::future::pending::<()>().await;
    drop(hangs);
}

/// Starts this test binary as a hub, and waits until it is ready.
async fn start_hub(test: &str, folder: &Path) -> tokio::process::Child {
    let mut hub = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(FOLDER_VARIABLE, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(hub.stdout.take().unwrap()).lines();
    while lines.next_line().await.unwrap().expect("it exited early") != "ready" {}
    hub
}

#[tokio::test]
async fn a_hub_that_is_killed_leaves_nobody_behind() {
    let kills = soak(10, 50);
    for kill in 0..kills {
        let folder = TempFolder::new();
        let mut hub = start_hub("guard::calls_programs_until_it_is_killed", folder.path()).await;
        if kill % 2 == 0 {
            wait_for_file(folder.path().join("up-hangs")).await;
            wait_for_file(folder.path().join("up-lives")).await;
            assert!(
                find_processes(folder.path()).len() >= 14,
                "two guards with six each: {:?}",
                find_processes(folder.path())
            );
        } else {
            // Kill while programs are starting, whichever of them are running by then.
            tokio::time::sleep(Duration::from_millis(15 * kill)).await;
        }
        hub.kill().await.unwrap();
        assert_no_process_left(folder.path()).await;
    }
}

/// Not a test but the hub that is killed; does nothing unless the variable is set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test below, in its own process"]
async fn has_mcp_servers_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from) else { return };
    let builder = (0..MCP_SERVERS).fold(ToolHub::builder(), |builder, number| {
        let name = format!("mcp{number}");
        let server = McpServer::stdio(&name, "python3")
            .args(["-c", PROCESS_TREE_SCRIPT, folder.to_str().unwrap(), &name, MCP_SERVER])
            .guard(Guard::program(env!("CARGO_BIN_EXE_toolhub")));
        builder.source(server.source().unwrap())
    });
    let hub = builder.build().await.unwrap();
    println!("ready");
    while !hub.sources().iter().all(|source| source.info().status.connection == SourceConnection::Connected) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fs::write(folder.join("connected"), "").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_hub_that_is_killed_leaves_no_mcp_server_behind() {
    for kill in 0..soak(2, 10) {
        let folder = TempFolder::new();
        let mut hub = start_hub("guard::has_mcp_servers_until_it_is_killed", folder.path()).await;
        if kill % 2 == 0 {
            wait_for_file(folder.path().join("connected")).await;
            let running = find_processes(folder.path()).len();
            assert!(running >= MCP_SERVERS * 7, "a guard, a server and five others each: {running}");
        } else {
            // Kill while the servers are starting.
            tokio::time::sleep(Duration::from_millis(30 * kill)).await;
        }
        hub.kill().await.unwrap();
        assert_no_process_left(folder.path()).await;
    }
}

#[tokio::test]
async fn a_cancelled_call_leaves_nobody_behind_who_left_the_group_either() {
    let folder = TempFolder::new();
    let (hub, cancel) =
        (build_hub([process_tree_command(folder.path(), "hangs").tool("hangs")]).await, CancellationToken::new());
    let (outcome, ()) = tokio::join!(hub.call("hangs", json!({})).cancel_on(&cancel), async {
        wait_for_file(folder.path().join("up-hangs")).await;
        cancel.cancel();
    });
    assert_eq!(outcome.error.unwrap().kind, ErrorKind::Cancelled);
    assert_no_process_left(folder.path()).await;
}

#[tokio::test]
async fn one_that_forks_faster_than_anybody_looks_is_caught() {
    let folder = TempFolder::new();
    let code = "
import os, sys
os.setsid() if os.fork() == 0 else open(sys.argv[1] + '/up', 'w')
while True:
    if os.fork(): os._exit(0)";
    let hub = build_hub([python_command(code, &[folder.path().to_str().unwrap()]).tool("forks")]).await;
    let outcome = hub.call("forks", json!({})).await;
    assert_eq!(outcome.error.as_ref().unwrap().kind, ErrorKind::ToolError, "{outcome:?}");
    assert!(folder.path().join("up").exists());
    assert_no_process_left(folder.path()).await;
}

#[tokio::test]
async fn many_that_fork_and_leave_their_group_at_once_are_caught() {
    let folder = TempFolder::new();
    // They begin when the program ends and closes the pipe.
    let code = "
import os, sys
begin, end = os.pipe()
for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        os.close(end)
        os.read(begin, 1)
        while True:
            os.setsid()
            if os.fork(): os._exit(0)
open(sys.argv[1] + '/up', 'w')";
    // A hundred on an idle machine; beside other tests they would take all processor time from the guard.
    let chains = toolhub_testkit::soak("20", "100");
    let hub = build_hub([python_command(code, &[folder.path().to_str().unwrap(), chains]).tool("forks")]).await;
    let outcome = hub.call("forks", json!({})).await;
    assert_eq!(outcome.error.as_ref().unwrap().kind, ErrorKind::ToolError, "{outcome:?}");
    assert!(folder.path().join("up").exists());
    assert_no_process_left(folder.path()).await;
}

#[tokio::test]
async fn a_program_that_ends_takes_along_what_it_started() {
    let folder = TempFolder::new();
    let hub = build_hub([process_tree_command(folder.path(), "ends").tool("ends")]).await;
    let outcome = hub.call("ends", json!({})).await;
    assert_eq!(outcome.output, json!("I am done"), "{outcome:?}");
    assert_no_process_left(folder.path()).await;
}

#[tokio::test]
async fn a_thread_that_is_cleaned_up_leaves_nobody_behind() {
    let folder = TempFolder::new();
    let hub = build_hub([process_tree_command(folder.path(), "lives").stateful_tool("lives")]).await;
    for n in 0..2 {
        let outcome = hub.call("lives", json!({"n": n})).thread("t").await;
        assert_eq!(outcome.output, json!({"n": n}), "{outcome:?}");
    }
    hub.cleanup_thread(&Tenant::default(), &ThreadId::new("t").unwrap()).await;
    assert_no_process_left(folder.path()).await;
}

#[tokio::test]
async fn a_guard_that_somebody_ends_ends_everybody_below() {
    let folder = TempFolder::new();
    let hub = build_hub([process_tree_command(folder.path(), "hangs").tool("hangs")]).await;
    let (outcome, ()) = tokio::join!(hub.call("hangs", json!({})), async {
        wait_for_file(folder.path().join("up-hangs")).await;
        let all = find_processes(folder.path());
        let (guard, _) = all.iter().find(|(_, words)| words.get(1).is_some_and(|word| word == "guard")).unwrap();
        assert!(Start::new("kill").arg(guard).status().unwrap().success());
    });
    assert_eq!(outcome.error.as_ref().unwrap().kind, ErrorKind::Crashed, "{outcome:?}");
    assert_no_process_left(folder.path()).await;
}

#[tokio::test]
async fn below_a_guard_a_program_speaks_and_fails_as_it_would_without_one() {
    let folder = TempFolder::new();
    let script = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        assert!(Start::new("chmod").arg("+x").arg(&file).status().unwrap().success());
        file
    };
    let lost = script("lost", "#!/no/such/interpreter\n");
    // A guard with too few file descriptors to start.
    let toolhub = env!("CARGO_BIN_EXE_toolhub");
    let poor = script("poor", &format!("#!/bin/sh\nulimit -n 4\nexec '{toolhub}' \"$@\"\n"));
    let hub = build_hub([
        python_command(
            "import sys, json; print(json.dumps([json.load(sys.stdin)['arguments'], sys.argv[1:]]))",
            &["--", "-x", "a b"],
        )
        .tool("echo"),
        python_command("import sys; print('aside', file=sys.stderr); sys.exit(3)", &[]).tool("code"),
        python_command("import os; os.kill(os.getpid(), 11)", &[]).tool("signal"),
        python_command("import os, time; os.close(1); time.sleep(1000)", &[]).stateful_tool("closed"),
        with_guard(Command::new(lost)).tool("lost"),
        Command::new("echo").arg("1").guard(Guard::program(poor)).tool("poor"),
    ])
    .await;
    let big = json!({"text": "x".repeat(300_000)});
    let echo = hub.call("echo", big.clone()).await;
    assert!(echo.output == json!([big, ["--", "-x", "a b"]]), "{:?}", echo.error);
    for (tool, kind, effect, word) in [
        ("code", ErrorKind::Crashed, Effect::Unknown, "exited with code 3"),
        ("code", ErrorKind::Crashed, Effect::Unknown, "aside"),
        ("signal", ErrorKind::Crashed, Effect::Unknown, "signal 11 (SIGSEGV)"),
        ("closed", ErrorKind::Crashed, Effect::None, "before it read the request"),
        ("lost", ErrorKind::ToolError, Effect::None, "could not be started"),
        ("poor", ErrorKind::ToolError, Effect::None, "could not be started"),
    ] {
        let outcome =
            hub.call(tool, json!({})).thread(format!("{tool}-{word}").replace(' ', "-").replace(['(', ')'], "")).await;
        let error = outcome.error.as_ref().unwrap();
        assert_eq!((error.kind, outcome.effect), (kind, effect), "{tool}: {error:?}");
        assert!(error.operator.contains(word), "{tool}: {}", error.operator);
    }
}

#[test]
fn a_guard_is_nothing_to_type() {
    let typed = Start::new(env!("CARGO_BIN_EXE_toolhub")).arg("guard").output().unwrap();
    assert_eq!(typed.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&typed.stderr).contains("do not run it by hand"));
    let orphan =
        Start::new(env!("CARGO_BIN_EXE_toolhub")).args(["guard", "1", "0", "--", "echo", "started"]).output().unwrap();
    assert_eq!((orphan.status.code(), orphan.stdout.as_slice()), (Some(2), [].as_slice()), "its parent is not the hub");
    let help = Start::new(env!("CARGO_BIN_EXE_toolhub")).arg("--help").output().unwrap();
    let help: Value = String::from_utf8_lossy(&help.stdout).into();
    assert!(!help.as_str().unwrap().contains("guard"), "{help}");
}
