//! Programs that hang, flood or fork: their call ends with a clear error, they are killed, and other calls are unaffected.

use std::{
    fmt, fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use toolhub_core::{CancellationToken, ErrorKind, Outcome, Retry, ToolBuilder};
use toolhub_testkit::TempFolder;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::{
    WAIT_TIMEOUT, call, expect_error, expect_output, hub, python, python_with_markers, wait_for_exit, wait_for_lines,
};

/// Calls a tool, waits for its marker file, cancels the call.
async fn cancel_after_marker(tool: ToolBuilder, folder: &TempFolder, marker: &str) -> (Outcome, Vec<String>) {
    let (hub, cancel) = (hub([tool]).await, CancellationToken::new());
    let calling = hub.call("it", json!({})).cancel_on(&cancel);
    let (outcome, pids) = tokio::join!(calling, async {
        let pids = wait_for_lines(&folder.join(marker)).await;
        cancel.cancel();
        pids
    });
    (outcome, pids)
}

#[tokio::test]
async fn a_cancelled_program_is_asked_to_end_and_does_so_in_order() {
    let folder = TempFolder::new();
    let program = "
def bye(*_):
    sign('bye', 'in order')
    sys.exit(0)
signal.signal(signal.SIGTERM, bye)
sign('up')
time.sleep(1000)";
    let tool = python_with_markers(&folder, program).grace(Duration::from_secs(600)).tool("it");
    let (outcome, pids) = cancel_after_marker(tool, &folder, "up").await;
    assert_eq!(outcome.error.unwrap().kind, ErrorKind::Cancelled);
    assert_eq!(wait_for_lines(&folder.join("bye")).await, ["in order"]);
    wait_for_exit(&pids[0]).await;
}

#[tokio::test]
async fn one_that_does_not_listen_is_killed_with_what_it_forked() {
    let folder = TempFolder::new();
    let program = "
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child == 0:
    time.sleep(1000)
sign('up', os.getpid(), child)
time.sleep(1000)";
    let command = python_with_markers(&folder, program).grace(Duration::from_millis(100));
    for tool in [command.clone().tool("it"), command.stateful_tool("it")] {
        let (outcome, pids) = cancel_after_marker(tool, &folder, "up").await;
        assert_eq!(outcome.error.unwrap().kind, ErrorKind::Cancelled);
        for pid in pids {
            wait_for_exit(&pid).await;
        }
        fs::remove_file(folder.join("up")).unwrap();
    }
}

#[tokio::test]
async fn one_that_hangs_ends_with_its_time() {
    let folder = TempFolder::new();
    let program = "sign('up')\ntime.sleep(1000)";
    let tool = python_with_markers(&folder, program).tool("it").timeout(Duration::from_millis(1_500));
    let outcome = call(tool, json!({})).await;
    assert_eq!(outcome.error.unwrap().kind, ErrorKind::Timeout);
    // On a slow machine the program may not have written its marker yet.
    if let Ok(pid) = fs::read_to_string(folder.join("up")) {
        wait_for_exit(pid.trim()).await;
    }
}

#[tokio::test]
async fn no_second_program_is_asked_while_the_first_uses_its_grace() {
    let hangs = || python("import time; time.sleep(1000)");
    for tool in [hangs().tool("it"), hangs().stateful_tool("it")] {
        let retry = Retry { attempts: 3, first: Duration::from_millis(1), ..Retry::default() };
        let tool = tool.read_only().retry(retry).attempt_timeout(Duration::from_millis(100));
        let outcome = call(tool, json!({})).await;
        assert_eq!((outcome.error.unwrap().kind, outcome.attempts), (ErrorKind::Timeout, 1));
    }
}

#[tokio::test]
async fn a_program_that_uses_its_grace_holds_the_place_of_its_call() {
    // On SIGTERM, it stays for up to a second, or until a second process has come.
    let program = "
here = os.path.join(sys.argv[1], 'here')
def others():
    return [name for name in os.listdir(sys.argv[1]) if name.startswith('came-')]
def leave(*_):
    end = time.monotonic() + 1
    while len(others()) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    os.unlink(here)
    os._exit(0)
def work():
    alone = not os.path.exists(here)
    open(os.path.join(sys.argv[1], 'came-%d' % os.getpid()), 'w').close()
    if not alone:
        return 'two at once'
    open(here, 'w').close()
    if len(others()) == 1:
        signal.signal(signal.SIGTERM, leave)
        sign('begun')
        while True:
            time.sleep(600)
    return 'alone'
";
    let (one_shot, long_running) = (
        "json.load(sys.stdin)\nprint(json.dumps(work()))",
        "for line in sys.stdin:\n    print(json.dumps({'result': work()}), flush=True)",
    );
    for (name, serve) in [("one-shot", one_shot), ("long-running", long_running)] {
        let folder = TempFolder::new();
        let command = python_with_markers(&folder, &format!("{program}\n{serve}")).grace(Duration::from_secs(600));
        let tool = if serve == one_shot { command.tool("it") } else { command.stateful_tool("it") };
        let hub = hub([tool.max_concurrency(1).queue_timeout(WAIT_TIMEOUT).timeout(WAIT_TIMEOUT)]).await;
        let running = hub.call("it", json!({})).start();
        wait_for_lines(&folder.join("begun")).await;
        running.cancel();
        running.await;
        assert_eq!(expect_output(hub.call("it", json!({})).await), "alone", "{name}");
    }
}

#[tokio::test]
async fn a_flood_of_output_is_stopped_while_it_comes() {
    let folder = TempFolder::new();
    let program = "sign('up')\nwhile True: print('x' * 1000)";
    let command = python_with_markers(&folder, program).max_output(100_000);
    for tool in [command.clone().tool("it"), command.stateful_tool("it")] {
        let outcome = call(tool, json!({})).await;
        assert_eq!(outcome.error.as_ref().unwrap().kind, ErrorKind::ToolError);
        let error = expect_error(&outcome);
        assert!(error.contains("`max_output`") || error.contains("not JSON"), "{error}");
        wait_for_exit(&wait_for_lines(&folder.join("up")).await[0]).await;
    }
    let outcome = call(python_with_markers(&folder, program).max_output(100_000).tool("it"), json!({})).await;
    assert!(expect_error(&outcome).contains("more than 100000 bytes"), "{}", expect_error(&outcome));
}

#[tokio::test]
async fn a_flood_of_error_output_stops_nothing_and_the_end_of_it_is_told() {
    let flood = "
import sys
for number in range(50_000):
    print('line', number, 'x' * 80, file=sys.stderr)
";
    assert_eq!(expect_output(call(python(&format!("{flood}\nprint(1)")).tool("it"), json!({})).await), json!(1));
    let outcome =
        call(python(&format!("{flood}\nprint('the last word', file=sys.stderr)\nexit(1)")).tool("it"), json!({})).await;
    let error = expect_error(&outcome);
    assert!(error.contains("line 49999") && error.ends_with("the last word"), "{error}");
    assert!(error.len() < 5_000 && !error.contains("line 1000 "), "{} bytes", error.len());
}

/// Captures the log messages of this thread.
#[derive(Clone, Default)]
pub(super) struct LogCapture(Arc<Mutex<Vec<String>>>);

impl LogCapture {
    pub(super) fn text(&self) -> String {
        self.0.lock().unwrap().join("\n")
    }
}

impl Visit for LogCapture {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for LogCapture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn what_a_program_says_aside_goes_to_the_log_up_to_a_bound() {
    let log = LogCapture::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let program = "
import sys
print('first', '\\x1b[2J', 'x' * 5000, 'token-4711', file=sys.stderr)
print('second token-4711', file=sys.stderr)
for number in range(1000): print('line', number, file=sys.stderr)
exit(1)";
    call(python(program).env("TOKEN", "token-4711").tool("it"), json!({})).await;
    let log = log.0.lock().unwrap();
    let lines: Vec<&String> =
        log.iter().filter(|line| ["first", "second", "line"].iter().any(|prefix| line.starts_with(prefix))).collect();
    assert_eq!(lines.len(), 200, "{lines:?}");
    assert!(lines[0].len() <= 1_003 && !lines[0].contains('\u{1b}'), "{}", lines[0]);
    assert_eq!(*lines[1], "second ••••");
    assert!(log.iter().any(|line| line.contains("more than 200 lines")), "{log:?}");
}

#[tokio::test]
async fn a_line_that_does_not_end_is_stopped() {
    let program = python("import sys\nwhile True: sys.stdout.write('x' * 1000)").max_line(50_000);
    let outcome = call(program.stateful_tool("it"), json!({})).await;
    assert!(expect_error(&outcome).contains("line of more than 50000 bytes"), "{}", expect_error(&outcome));
}

#[tokio::test]
async fn neighbours_do_not_notice() {
    let folder = TempFolder::new();
    let hub = hub([
        python_with_markers(&folder, "sign('hangs')\ntime.sleep(1000)").tool("hangs"),
        python_with_markers(&folder, "sign('floods')\nwhile True: print('x' * 1000, file=sys.stderr)")
            .stateful_tool("floods"),
        python("import os; os.abort()").tool("aborts"),
        python("import json, sys; print(json.load(sys.stdin)['arguments']['n'] + 1)").tool("adds"),
    ])
    .await;
    let cancel = CancellationToken::new();
    let bad = async {
        let (hangs, floods) = tokio::join!(
            hub.call("hangs", json!({})).cancel_on(&cancel),
            hub.call("floods", json!({})).thread("t").cancel_on(&cancel)
        );
        [hangs, floods].map(|outcome| outcome.error.unwrap().kind)
    };
    let good = async {
        wait_for_lines(&folder.join("hangs")).await;
        wait_for_lines(&folder.join("floods")).await;
        for n in 0..5 {
            let aborted = hub.call("aborts", json!({})).thread(format!("other-{n}")).await;
            assert_eq!(aborted.error.unwrap().kind, ErrorKind::Crashed);
            let added: Value = expect_output(hub.call("adds", json!({"n": n})).await);
            assert_eq!(added, json!(n + 1));
        }
        cancel.cancel();
    };
    let (bad, ()) = tokio::join!(bad, good);
    assert_eq!(bad, [ErrorKind::Cancelled; 2]);
    for name in ["hangs", "floods"] {
        wait_for_exit(&wait_for_lines(&folder.join(name)).await[0]).await;
    }
}

#[tokio::test]
async fn a_program_ends_with_the_hub_it_belongs_to() {
    let folder = TempFolder::new();
    let program = "sign('up')\nfor line in sys.stdin: print(json.dumps({'result': 1}))";
    let hub = hub([python_with_markers(&folder, program).stateful_tool("it")]).await;
    expect_output(hub.call("it", json!({})).thread("t").await);
    drop(hub);
    wait_for_exit(&wait_for_lines(&folder.join("up")).await[0]).await;
}
