//! Overhead of an agent step over the round trip to its model, and the memory use of a thousand concurrent threads.
//!
//! In: nothing. Out: two tables. The model is a scripted stub that responds immediately over HTTP to the real client, so its round trip
//! is minimal. The baseline makes the same requests with the same client and calls the same function directly.
#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first unexpected error")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use toolhub::{
    Sqlite,
    agent::{AgentDefinition, AgentService, CallResult, Message, Model, OpenAi, Prompt, Script, Stub},
    export::Format,
    ids::ThreadId,
    prelude::*,
    sqlite::Options,
};
use toolhub_testkit::TempFolder;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SCRIPT: &str = r#"
[[turn]]
when = { tool_result = "add" }
say = "That makes ${result}."
[[turn]]
when = { user = "add (?<a>\\d+) and (?<b>\\d+)" }
call = [{ tool = "add", args = { a = "$a", b = "$b" } }]
"#;

/// Add two numbers.
#[derive(Deserialize, JsonSchema)]
struct Add {
    a: String,
    b: String,
}

async fn add(Add { a, b }: Add) -> Result<u64, ToolError> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| ToolError::refused("no number"));
    Ok(number(&a)? + number(&b)?)
}

fn main() {
    // Without `--bench`, cargo only checks that the benchmark runs.
    let full = std::env::args().any(|arg| arg == "--bench");
    let (rounds, runs, messages, threads) = if full { (7, 300, 5, 1_000) } else { (1, 2, 1, 10) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let stub = Stub::serve(Script::parse(SCRIPT).unwrap(), 0).await.unwrap();
        let model: Arc<dyn Model> = Arc::new(OpenAi::new("demo").base_url(stub.base_url()));
        let folder = TempFolder::new();
        measure_steps(&model, &folder, rounds, runs).await;
        measure_concurrent_threads(&model, &folder, messages, threads).await;
    });
}

async fn service(model: &Arc<dyn Model>, file: Option<&std::path::Path>) -> AgentService {
    let mut builder = ToolHub::builder().tool(tool("add", add));
    if let Some(file) = file {
        builder = builder.store(Sqlite::open(file, Options::default()).unwrap());
    }
    let service = AgentService::new(&builder.build().await.unwrap());
    service.define("default", AgentDefinition::new(model.clone()));
    service
}

/// Times a step: baseline, in memory, on SQLite; medians over the rounds.
async fn measure_steps(model: &Arc<dyn Model>, folder: &std::path::Path, rounds: usize, runs: usize) {
    let (memory, disk) = (service(model, None).await, service(model, Some(&folder.join("steps.db"))).await);
    let tools = memory.hub().export(Format::OpenAi);
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (variant, times) in times.iter_mut().enumerate() {
            let start = Instant::now();
            for run in 0..runs {
                match variant {
                    0 => baseline_run(model, &tools).await,
                    1 => agent_run(&memory, &format!("m{round}-{run}")).await,
                    _ => agent_run(&disk, &format!("d{round}-{run}")).await,
                }
            }
            // Each run has two steps. The first round is a warm-up.
            if round > 0 {
                times.push(start.elapsed() / (2 * runs as u32));
            }
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let [baseline, memory, disk] = times.each_mut().map(median);
    println!("| one step | µs | overhead, µs | relative to a model that takes one second |");
    println!("|---|---|---|---|");
    println!("| baseline: request and function | {} | | |", baseline.as_micros());
    for (name, time) in [("agent, in memory", memory), ("agent, on SQLite", disk)] {
        let overhead = time.saturating_sub(baseline).as_micros();
        println!("| {name} | {} | {overhead} | {:.3} % |", time.as_micros(), overhead as f64 / 10_000.0);
    }
}

/// The same requests without an agent.
async fn baseline_run(model: &Arc<dyn Model>, tools: &[Value]) {
    let mut messages = vec![Message::User { content: "add 1 and 2".into() }];
    let reply = model.ask(prompt(&messages, tools), &|_| {}).await.unwrap();
    let call = &reply.calls[0];
    let sum = add(serde_json::from_value(call.arguments.clone()).unwrap()).await.unwrap();
    let (id, tool, text) = (call.id.clone(), call.tool.clone(), sum.to_string());
    let result = CallResult { id, call_id: None, tool, text, is_error: false, images: Vec::new() };
    messages.push(Message::Assistant { content: reply.text, reasoning: reply.reasoning, calls: reply.calls });
    messages.push(Message::Tool { results: vec![result] });
    assert_eq!(model.ask(prompt(&messages, tools), &|_| {}).await.unwrap().text, "That makes 3.");
}

fn prompt<'a>(messages: &'a [Message], tools: &'a [Value]) -> Prompt<'a> {
    Prompt { system: "", messages, tools, may_call: true, stream: false, timeout: Duration::from_secs(9), trace: None }
}

async fn agent_run(service: &AgentService, thread: &str) {
    let thread = ThreadId::new(thread).unwrap();
    let mut run = service.send(&Tenant::default(), &thread, "add 1 and 2").await.unwrap();
    assert_eq!(run.wait_ended().await.content, "That makes 3.");
}

/// Sends messages to all threads concurrently: each must get its own answer, and resident memory must not grow with the messages.
async fn measure_concurrent_threads(model: &Arc<dyn Model>, folder: &std::path::Path, messages: usize, threads: usize) {
    let service = service(model, Some(&folder.join("many.db"))).await;
    println!("\n| {threads} concurrent threads, on SQLite | runs/s | resident, MB |");
    println!("|---|---|---|");
    for message in 1..=messages {
        let start = Instant::now();
        let runs = (0..threads).map(|number| {
            let service = &service;
            async move {
                let thread = ThreadId::new(format!("t{number}")).unwrap();
                let text = format!("add {number} and {message}");
                let mut run = service.send(&Tenant::default(), &thread, text).await.unwrap();
                assert_eq!(run.wait_ended().await.content, format!("That makes {}.", number + message));
            }
        });
        futures_util::future::join_all(runs).await;
        let rate = threads as f64 / start.elapsed().as_secs_f64();
        println!("| message {message} of each | {rate:.0} | {} |", resident_mb());
    }
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() / 1024
}
