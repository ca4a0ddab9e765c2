//! The tools of the demo. The library carries none; these belong to the binary.

use std::{
    error::Error,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use toolhub::{Sqlite, prelude::*, sqlite::Options, status::StatusSettings};

use super::calculator;

/// What the crashing tool says.
pub(super) const ON_PURPOSE: &str = "this crash is part of the demo";

/// How long a failing tool is withheld in the demo. Five minutes unless said otherwise, which nobody wants to watch.
pub(super) const WITHHELD: Duration = Duration::from_millis(400);

/// A hub with all demo tools, which keeps its records in this file.
pub(crate) async fn hub(store: &Path) -> Result<ToolHub, Box<dyn Error>> {
    let hub = ToolHub::builder()
        .store(Sqlite::open(store, Options::default())?)
        .status(StatusSettings { failure_duration: WITHHELD, ..StatusSettings::default() })
        .resource(Service::default())
        .resource(Shaky::default())
        .rule(Rule::deny("dangerous").when("/folder", "^/$").because("nobody deletes everything"))
        .tool(tool("calculator", calculate).read_only().closed_world())
        .tool(tool("clock", clock).description("What time it is, in UTC.").read_only().closed_world())
        .tool(tool("notes", notes).additive().closed_world())
        .tool(stateful("counter", Counter).additive().closed_world())
        .tool(tool("library", library).description("Read a very long book aloud.").read_only().closed_world())
        .tool(tool("slow", slow).timeout(Duration::from_millis(300)).closed_world())
        .tool(tool("crash", crash).description("Crash, to show what happens then.").closed_world())
        .tool(
            tool("hiccup", hiccup)
                .description("Ask a service that answers every third time.")
                .read_only()
                .retry(Retry { first: Duration::from_millis(50), ..Retry::default() }),
        )
        // Each call is one try here, so that the failures can be counted by eye.
        .tool(tool("flaky", flaky).description("Ask a service that is down at first.").read_only().no_retry())
        .tool(tool("report", report).description("Count the notes.").read_only().closed_world().after("clock"))
        .tool(tool("search", search).read_only().per_minute(2))
        .tool(tool("dangerous", dangerous).confirm().max_concurrency(1).closed_world())
        .build()
        .await?;
    Ok(hub)
}

/// Work out an arithmetic expression.
#[derive(Deserialize, JsonSchema)]
struct Calculation {
    /// Numbers, + - * / and brackets, such as (1 + 2) * 3
    expression: String,
}

async fn calculate(calculation: Calculation) -> Result<f64, ToolError> {
    calculator::evaluate(&calculation.expression)
        .map_err(|wrong| ToolError::refused(format!("`{}`: {wrong}", calculation.expression)))
}

async fn clock(_: NoArguments, cx: CallContext) -> Result<String, ToolError> {
    Ok(cx.now().to_string())
}

/// Remember a line, or show all lines of this conversation.
#[derive(Deserialize, JsonSchema)]
struct Note {
    /// The line to remember; without it, nothing is added.
    #[serde(default)]
    add: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
struct Notes {
    lines: Vec<String>,
}
impl ToolState for Notes {
    const NAME: &'static str = "notes";
}

async fn notes(note: Note, mut notes: State<Notes>) -> Result<Vec<String>, ToolError> {
    if let Some(line) = note.add {
        notes.lines.push(line.clone());
        if line.is_empty() {
            return Err(ToolError::refused("an empty line is not worth remembering"));
        }
    }
    Ok(notes.lines.clone())
}

struct Counter;

/// Count up, per conversation.
#[derive(Deserialize, JsonSchema)]
struct Count {
    /// How far; 1 where nothing is said.
    #[serde(default)]
    by: Option<u32>,
}

#[derive(Default, Serialize, Deserialize)]
struct Total(u64);
impl ToolState for Total {
    const NAME: &'static str = "counter";
}

impl StatefulTool for Counter {
    type Arguments = Count;
    type State = Total;
    type Output = u64;

    async fn call(&self, count: Count, total: &mut Total, _: &CallContext) -> Result<u64, ToolError> {
        total.0 += u64::from(count.by.unwrap_or(1));
        Ok(total.0)
    }
}

async fn library(_: NoArguments) -> Result<String, ToolError> {
    Ok((1..=2_000).map(|n| format!("{n}. Once upon a time there was a tool that talked too much.\n")).collect())
}

/// Take as long as asked, saying how far it is.
#[derive(Deserialize, JsonSchema)]
struct Patience {
    /// How many steps of 50 ms.
    #[schemars(range(max = 100))]
    steps: u32,
}

async fn slow(patience: Patience, cx: CallContext) -> Result<String, ToolError> {
    for step in 1..=patience.steps {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cx.progress_at(f64::from(step) / f64::from(patience.steps), format!("step {step} of {}", patience.steps));
    }
    Ok("done at last".into())
}

async fn crash(_: NoArguments) -> Result<(), ToolError> {
    std::panic::panic_any(ON_PURPOSE)
}

/// The service behind `flaky`: down until it was asked three times.
#[derive(Default)]
struct Service {
    asked: AtomicU32,
}

async fn flaky(_: NoArguments, service: Shared<Service>) -> Result<&'static str, ToolError> {
    match service.asked.fetch_add(1, Ordering::Relaxed) {
        0..3 => Err(ToolError::of(ErrorKind::UpstreamUnreachable, "The service cannot be reached.")),
        _ => Ok("the service is up again"),
    }
}

/// The service behind `hiccup`: answers every third time.
#[derive(Default)]
struct Shaky {
    asked: AtomicU32,
}

async fn hiccup(_: NoArguments, service: Shared<Shaky>) -> Result<&'static str, ToolError> {
    if service.asked.fetch_add(1, Ordering::Relaxed) % 3 < 2 {
        return Err(ToolError::of(ErrorKind::UpstreamError, "The service has a hiccup."));
    }
    Ok("the service has answered")
}

/// Search a slow catalogue. It takes two searches a minute.
#[derive(Deserialize, JsonSchema)]
struct Search {
    /// A word.
    word: String,
}

/// How long one search takes.
pub(super) const SEARCH: Duration = Duration::from_millis(200);

async fn search(search: Search) -> Result<String, ToolError> {
    tokio::time::sleep(SEARCH).await;
    Ok(format!("{} books about {}", search.word.len(), search.word))
}

/// Delete a folder. (It only pretends to.)
#[derive(Deserialize, JsonSchema)]
struct Deletion {
    /// Such as /tmp/old
    #[schemars(length(min = 1))]
    folder: String,
}

async fn dangerous(deletion: Deletion) -> Result<String, ToolError> {
    Ok(format!("{} is deleted (not really)", deletion.folder))
}

async fn report(_: NoArguments, notes: State<Notes>, cx: CallContext) -> Result<String, ToolError> {
    Ok(format!("{} notes at {}", notes.lines.len(), cx.now()))
}
