//! Implementations of the bundled tools. None of them touches anything outside the hub.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use toolhub::prelude::*;

use super::calculator::evaluate;

pub(super) fn calculator(name: &str) -> ToolBuilder {
    // Work on the CPU does not belong on a worker of the async runtime.
    blocking(name, calculate).title("Calculator").output::<f64>().read_only().closed_world()
}

/// Work out an arithmetic expression.
#[derive(Deserialize, JsonSchema)]
struct Calculation {
    /// Numbers, + - * / and brackets, such as (1 + 2) * 3
    expression: String,
}

#[expect(clippy::needless_pass_by_value, reason = "a tool function takes its arguments by value")]
fn calculate(calculation: Calculation) -> Result<Value, ToolError> {
    let refused = |error| {
        let shown: String = calculation.expression.chars().take(100).collect();
        ToolError::refused(format!("`{shown}`: {error}"))
    };
    let result = evaluate(&calculation.expression).map_err(refused)?;
    // Up to 2^53 an f64 represents every integer exactly, so it is shown as an integer.
    let is_integer = result.fract() == 0.0 && result.abs() < 9_007_199_254_740_992.0;
    Ok(if is_integer { json!(result as i64) } else { json!(result) })
}

pub(super) fn clock(name: &str) -> ToolBuilder {
    tool(name, time).title("Clock").description("What time it is, in UTC.").read_only().closed_world()
}

async fn time(_: NoArguments, cx: CallContext) -> Result<String, ToolError> {
    Ok(cx.now().to_string())
}

pub(super) fn report(name: &str) -> ToolBuilder {
    tool(name, write_report).title("Report").read_only().closed_world()
}

/// Write a short report out of what was found before.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Report {
    /// What it is about
    title: String,
    /// What was found, a line for each thing
    #[serde(default)]
    lines: Vec<String>,
}

async fn write_report(report: Report, cx: CallContext) -> Result<String, ToolError> {
    let lines = report.lines.iter().map(|line| format!("- {line}\n"));
    Ok(format!("# {}\n\n{}\nwritten at {}\n", report.title, lines.collect::<String>(), cx.now()))
}

pub(super) fn notes(name: &str) -> ToolBuilder {
    tool(name, note).title("Notes").additive().closed_world()
}

/// Remember a line, or show all lines of this conversation.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Note {
    /// The line to remember; without it, nothing is added.
    #[serde(default)]
    add: Option<String>,
}

/// The lines of one conversation.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Notes {
    pub(crate) lines: Vec<String>,
}

impl ToolState for Notes {
    const NAME: &'static str = "notes";
}

async fn note(note: Note, mut notes: State<Notes>) -> Result<Vec<String>, ToolError> {
    if let Some(line) = note.add {
        notes.lines.push(line.clone());
        if line.is_empty() {
            return Err(ToolError::refused("an empty line is not worth remembering"));
        }
    }
    Ok(notes.lines.clone())
}

pub(super) fn counter(name: &str) -> ToolBuilder {
    stateful(name, Counter).title("Counter").output::<u64>().additive().closed_world()
}

struct Counter;

/// Count up, per conversation.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Count {
    /// How far; the default is 1.
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

/// Fails often enough to be withheld, and works after its recovery.
pub(super) fn flaky(name: &str) -> ToolBuilder {
    let calls = Arc::new(AtomicU32::new(0));
    let call = move |_: NoArguments| {
        let earlier = calls.fetch_add(1, Ordering::Relaxed);
        async move {
            match earlier {
                0..3 => Err(ToolError::with_kind(ErrorKind::UpstreamUnreachable, "The service cannot be reached.")),
                _ => Ok("the service is up again"),
            }
        }
    };
    // No retries, so that each call is one failure.
    tool(name, call).title("Flaky").description("Ask a service that is down at first.").read_only().no_retry()
}

/// Requires an approval, and only pretends to delete.
pub(super) fn dangerous(name: &str) -> ToolBuilder {
    tool(name, delete).title("Delete a folder").confirm().max_concurrency(1).closed_world()
}

/// Delete a folder. (It only pretends to.)
#[derive(Deserialize, JsonSchema)]
struct Deletion {
    /// Such as /tmp/old
    #[schemars(length(min = 1))]
    folder: String,
}

async fn delete(deletion: Deletion) -> Result<String, ToolError> {
    Ok(format!("{} is deleted (not really)", deletion.folder))
}
