//! The tools of the tour: the bundled ones, and some that demonstrate failures.

use std::{
    error::Error,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use toolhub::{Sqlite, prelude::*, sqlite::Options, status::StatusSettings};

use crate::builtin::{self, Notes};

/// The panic message of the crashing tool.
pub(super) const CRASH_MESSAGE: &str = "this crash is part of the demo";

/// How long a failing tool is withheld in the tour; the default of five minutes would be too long to watch.
pub(super) const FAILURE_DURATION: Duration = Duration::from_millis(400);

/// A hub with all demo tools, on this store.
pub(crate) async fn build_hub(store: &Path) -> Result<ToolHub, Box<dyn Error>> {
    let hub = ToolHub::builder()
        .store(Sqlite::open(store, Options::default())?)
        .status(StatusSettings { failure_duration: FAILURE_DURATION, ..StatusSettings::default() })
        .resource(FlakyService::default())
        .rule(Rule::deny("dangerous").when("/folder", "^/$").reason("deleting the root folder is never allowed"))
        .tools(builtin::ALL.iter().map(|builtin| builtin.tool(builtin.name)))
        .tool(tool("library", library).description("Read a very long book aloud.").read_only().closed_world())
        .tool(tool("slow", slow).timeout(Duration::from_millis(300)).closed_world())
        .tool(tool("crash", crash).description("Crash, to show what happens then.").closed_world())
        .tool(
            tool("transient", transient)
                .description("Ask a service that answers every third time.")
                .read_only()
                .retry(Retry { first: Duration::from_millis(50), ..Retry::default() }),
        )
        .tool(tool("digest", digest).description("Count the notes.").read_only().closed_world().after("clock"))
        .tool(tool("search", search).read_only().per_minute(2))
        .build()
        .await?;
    Ok(hub)
}

async fn library(_: NoArguments) -> Result<String, ToolError> {
    Ok((1..=2_000).map(|n| format!("{n}. Once upon a time there was a tool that talked too much.\n")).collect())
}

/// Take as long as asked, reporting progress.
#[derive(Deserialize, JsonSchema)]
struct SlowArguments {
    /// How many steps of 50 ms.
    #[schemars(range(max = 100))]
    steps: u32,
}

async fn slow(arguments: SlowArguments, cx: CallContext) -> Result<String, ToolError> {
    for step in 1..=arguments.steps {
        tokio::time::sleep(Duration::from_millis(50)).await;
        cx.progress_at(f64::from(step) / f64::from(arguments.steps), format!("step {step} of {}", arguments.steps));
    }
    Ok("done at last".into())
}

async fn crash(_: NoArguments) -> Result<(), ToolError> {
    std::panic::panic_any(CRASH_MESSAGE)
}

/// The service behind `transient`: succeeds every third time.
#[derive(Default)]
struct FlakyService {
    requests: AtomicU32,
}

async fn transient(_: NoArguments, service: Shared<FlakyService>) -> Result<&'static str, ToolError> {
    if service.requests.fetch_add(1, Ordering::Relaxed) % 3 < 2 {
        return Err(ToolError::with_kind(ErrorKind::UpstreamError, "The service is temporarily unavailable."));
    }
    Ok("the service has answered")
}

/// Search a slow catalogue. It takes two searches a minute.
#[derive(Deserialize, JsonSchema)]
struct Search {
    /// A word.
    word: String,
}

/// Duration of one search.
pub(super) const SEARCH_DURATION: Duration = Duration::from_millis(200);

async fn search(search: Search) -> Result<String, ToolError> {
    tokio::time::sleep(SEARCH_DURATION).await;
    Ok(format!("{} books about {}", search.word.len(), search.word))
}

async fn digest(_: NoArguments, notes: State<Notes>, cx: CallContext) -> Result<String, ToolError> {
    Ok(format!("{} notes at {}", notes.lines.len(), cx.now()))
}
