//! A running tool asks its caller: answers, refusals, and the clock of the call meanwhile. Its log lines and amounts of progress.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::StreamExt;
use toolhub::{
    CallUpdate, InputError, InputHandler, InputKind, InputRequest,
    events::EventKind,
    prelude::*,
    testing::{AssertOutcome, EventRecorder},
};

/// Answers forms after a while, or never.
struct Person {
    after: Option<Duration>,
    answer: Option<Value>,
    /// How many requests are open.
    open: AtomicUsize,
}

impl Person {
    fn new(after: impl Into<Option<Duration>>, answer: Option<Value>) -> Arc<Self> {
        Arc::new(Self { after: after.into(), answer, open: AtomicUsize::new(0) })
    }
}

impl InputHandler for Person {
    fn accepts(&self, kind: InputKind) -> bool {
        kind == InputKind::Form
    }

    fn answer(&self, request: InputRequest) -> toolhub::BoxFuture<'_, Option<Value>> {
        assert_eq!(request.params, json!({"message": "Which city?"}));
        struct Open<'a>(&'a AtomicUsize);
        impl Drop for Open<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        self.open.fetch_add(1, SeqCst);
        let open = Open(&self.open);
        Box::pin(async move {
            let _open = open;
            match self.after {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
            self.answer.clone()
        })
    }
}

fn question(kind: InputKind) -> InputRequest {
    InputRequest::new(kind, json!({"message": "Which city?"}))
}

/// Asks for a form, works for half a second, and returns the answer or why there is none.
async fn ask(_: NoArguments, cx: CallContext) -> Result<Value, ToolError> {
    let accepted = cx.accepts_input(InputKind::Form);
    let answer = cx.request_input(question(InputKind::Form)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(accepted, answer != Err(InputError::Unsupported));
    assert_eq!(cx.request_input(question(InputKind::Sampling)).await, Err(InputError::Unsupported));
    Ok(answer.unwrap_or_else(|error| json!(error.to_string())))
}

async fn hub() -> ToolHub {
    let limited = |tool: ToolBuilder| tool.timeout(Duration::from_secs(1));
    let second = Duration::from_secs(1);
    let builder = ToolHub::builder()
        .tool(limited(tool("ask", ask)))
        .tool(tool("ask_attempt", ask).attempt_timeout(second).timeout(second * 5))
        .tool(tool("ask_idle", ask).idle_timeout(second).timeout(second * 5))
        .tool(limited(tool("ask_often", |_: NoArguments, cx: CallContext| async move {
            let mut unanswered = 0;
            while unanswered < 20 {
                unanswered += usize::from(cx.request_input(question(InputKind::Form)).await.is_err());
            }
            Ok::<_, ToolError>(unanswered)
        })))
        .tool(limited(tool("slow", |_: NoArguments, cx: CallContext| async move {
            let _ = cx.request_input(question(InputKind::Form)).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok::<_, ToolError>("late")
        })));
    builder.build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_answer_of_the_caller_reaches_the_tool() {
    let hub = hub().await;
    let person = Person::new(Duration::from_secs(1), Some(json!({"city": "Delft"})));
    assert_eq!(hub.call("ask", json!({})).input(person).await.assert_success(), &json!({"city": "Delft"}));
    let person = Person::new(Duration::ZERO, None);
    let declined = hub.call("ask", json!({})).input(person).await;
    assert_eq!(declined.assert_success(), &json!("the caller declined the input request"));
    let unsupported = hub.call("ask", json!({})).await;
    assert_eq!(unsupported.assert_success(), &json!("the caller cannot answer this input request"));
}

#[tokio::test(start_paused = true)]
async fn the_clock_of_a_call_stops_while_its_caller_is_asked() {
    let hub = hub().await;
    for name in ["ask", "ask_attempt", "ask_idle"] {
        let person = Person::new(Duration::from_secs(100), Some(json!("Delft")));
        let outcome = hub.call(name, json!({})).input(person).await;
        assert_eq!(outcome.assert_success(), &json!("Delft"), "{name}");
        assert_eq!(outcome.duration, Duration::from_millis(100_500), "{name}");
    }
    // The time after the answer counts.
    let person = Person::new(Duration::from_secs(100), Some(json!("Delft")));
    let outcome = hub.call("slow", json!({})).input(person).await;
    outcome.assert_error(ErrorKind::Timeout);
    assert_eq!(outcome.duration, Duration::from_secs(101));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_does_not_answer_is_given_up_after_two_minutes() {
    let (hub, person) = (hub().await, Person::new(None, None));
    let outcome = hub.call("ask", json!({})).input(person.clone()).await;
    assert_eq!(outcome.assert_success(), &json!("the caller did not answer the input request in time"));
    assert_eq!(outcome.duration, Duration::from_millis(120_500));
    assert_eq!(person.open.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn all_input_requests_of_a_call_together_are_open_for_ten_minutes_at_most() {
    let (hub, person) = (hub().await, Person::new(None, None));
    let outcome = hub.call("ask_often", json!({})).input(person.clone()).await;
    assert_eq!(outcome.assert_success(), &json!(20));
    assert_eq!(outcome.duration, Duration::from_secs(600));
    assert_eq!(person.open.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_withdraws_its_input_request() {
    let (hub, person) = (hub().await, Person::new(None, None));
    let mut running = hub.call("ask", json!({})).input(person.clone()).start();
    while person.open.load(SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    running.cancel();
    running.outcome().await.assert_error(ErrorKind::Cancelled);
    assert_eq!(person.open.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn amounts_and_log_lines_of_a_tool_reach_its_caller_in_order() {
    let noisy = |_: NoArguments, cx: CallContext| async move {
        cx.progress_of(3.0, Some(12.0), "reading");
        cx.log("warning", "row 4 is empty");
        cx.progress_of(7.0, None, "writing");
        Ok::<_, ToolError>(())
    };
    let hub = ToolHub::builder().tool(tool("noisy", noisy)).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    let mut running = hub.call("noisy", json!({})).start();
    let updates: Vec<_> = running.updates().collect().await;
    running.await.assert_success();
    let lines = updates.iter().map(|update| match update {
        CallUpdate::Progress(progress) => {
            format!("{} {:?} {:?} {:?}", progress.message, progress.done, progress.total, progress.fraction)
        }
        CallUpdate::Log(line) => format!("[{}] {}", line.level, line.message),
        other => format!("{other:?}"),
    });
    let lines = lines.collect::<Vec<_>>();
    let expected =
        ["reading Some(3.0) Some(12.0) Some(0.25)", "[warning] row 4 is empty", "writing Some(7.0) None None"];
    assert_eq!(lines, expected);
    let events: Vec<_> = recorder
        .events()
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::CallProgress { message, done, total, .. } => Some(format!("{message} {done:?} {total:?}")),
            EventKind::CallLog { level, message, .. } => Some(format!("[{level}] {message}")),
            _ => None,
        })
        .collect();
    assert_eq!(events, ["reading Some(3.0) Some(12.0)", "[warning] row 4 is empty", "writing Some(7.0) None"]);
}
