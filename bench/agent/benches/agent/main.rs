//! What a step of an agent costs beside the round trip to its model, and what a thousand threads at once do to memory.
//!
//! In: nothing. Out: two tables. The model is scripted, answers at once and is spoken to over HTTP by the real client, so its round trip
//! is as short as any can be. The neighbour makes the same requests with the same client and calls the same function itself.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops where it stands")]
#![allow(clippy::disallowed_methods, reason = "this is where real time is measured")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use toolhub::{
    Sqlite,
    agent::{AgentPlan, AgentService, CallResult, Message, Model, OpenAi, Prompt, Script, Stub},
    export::Format,
    ids::ThreadId,
    prelude::*,
    sqlite::Options,
};

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
    // Without `--bench` cargo only wants to know whether it runs.
    let long = std::env::args().any(|word| word == "--bench");
    let (turns, runs, rounds, threads) = if long { (7, 300, 5, 1_000) } else { (1, 2, 1, 10) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let stub = Stub::serve(Script::parse(SCRIPT).unwrap(), 0).await.unwrap();
        let model: Arc<dyn Model> = Arc::new(OpenAi::new("demo").base_url(stub.base_url()));
        let folder = std::env::temp_dir().join(format!("toolhub-bench-agent-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        measure_steps(&model, &folder, turns, runs).await;
        measure_concurrent_threads(&model, &folder, rounds, threads).await;
        std::fs::remove_dir_all(&folder).unwrap();
    });
}

async fn service(model: &Arc<dyn Model>, file: Option<&std::path::Path>) -> AgentService {
    let mut builder = ToolHub::builder().tool(tool("add", add));
    if let Some(file) = file {
        builder = builder.store(Sqlite::open(file, Options::default()).unwrap());
    }
    let service = AgentService::new(&builder.build().await.unwrap());
    service.define("default", AgentPlan::new(model.clone()));
    service
}

/// How long a step takes: bare, in memory, on SQLite; medians over the turns.
async fn measure_steps(model: &Arc<dyn Model>, folder: &std::path::Path, turns: usize, runs: usize) {
    let (memory, disk) = (service(model, None).await, service(model, Some(&folder.join("steps.db"))).await);
    let tools = memory.hub().export(Format::OpenAi);
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for turn in 0..=turns {
        for (at, times) in times.iter_mut().enumerate() {
            let begun = Instant::now();
            for run in 0..runs {
                match at {
                    0 => baseline_run(model, &tools).await,
                    1 => agent_run(&memory, &format!("m{turn}-{run}")).await,
                    _ => agent_run(&disk, &format!("d{turn}-{run}")).await,
                }
            }
            // Two steps each; the first turn only warms up.
            if turn > 0 {
                times.push(begun.elapsed() / (2 * runs as u32));
            }
        }
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let [bare, memory, disk] = times.each_mut().map(median);
    println!("| one step | µs | more than bare, µs | beside a model that takes a second |");
    println!("|---|---|---|---|");
    println!("| bare: the request and the function | {} | | |", bare.as_micros());
    for (name, time) in [("agent, in memory", memory), ("agent, on SQLite", disk)] {
        let more = time.saturating_sub(bare).as_micros();
        println!("| {name} | {} | {more} | {:.3} % |", time.as_micros(), more as f64 / 10_000.0);
    }
}

/// The same requests by hand.
async fn baseline_run(model: &Arc<dyn Model>, tools: &[Value]) {
    let mut messages = vec![Message::User { content: "add 1 and 2".into() }];
    let reply = model.ask(prompt(&messages, tools), &|_| {}).await.unwrap();
    let call = &reply.calls[0];
    let sum = add(serde_json::from_value(call.arguments.clone()).unwrap()).await.unwrap();
    let (id, tool, text) = (call.id.clone(), call.tool.clone(), sum.to_string());
    let result = CallResult { id, call_id: None, tool, text, is_error: false, pictures: Vec::new() };
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

/// A thousand threads at once, again and again: nobody hears another, and memory stays where it is.
async fn measure_concurrent_threads(model: &Arc<dyn Model>, folder: &std::path::Path, rounds: usize, threads: usize) {
    let service = service(model, Some(&folder.join("many.db"))).await;
    println!("\n| {threads} threads at once, on SQLite | runs/s | resident, MB |");
    println!("|---|---|---|");
    for round in 1..=rounds {
        let begun = Instant::now();
        let runs = (0..threads).map(|at| {
            let service = &service;
            async move {
                let thread = ThreadId::new(format!("t{at}")).unwrap();
                let said = format!("add {at} and {round}");
                let mut run = service.send(&Tenant::default(), &thread, said).await.unwrap();
                assert_eq!(run.wait_ended().await.content, format!("That makes {}.", at + round));
            }
        });
        futures_util::future::join_all(runs).await;
        let rate = threads as f64 / begun.elapsed().as_secs_f64();
        println!("| message {round} of each | {rate:.0} | {} |", resident_mb());
    }
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() / 1024
}
