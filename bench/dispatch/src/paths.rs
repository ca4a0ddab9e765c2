//! The timed call paths, all for the same tiny tool: `{"a":1,"b":2}` → `{"sum":3}`.

use std::{future::Future, hint::black_box, pin::Pin, sync::LazyLock};

use toolhub::{
    StatusScope,
    ids::{Tenant, ThreadId},
    prelude::*,
};

pub(crate) const ARGUMENTS: &str = r#"{"a":1,"b":2}"#;

/// Add two numbers.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Add {
    a: i64,
    b: i64,
}

#[derive(Serialize)]
pub(crate) struct Sum {
    sum: i64,
}

pub(crate) async fn add(numbers: Add) -> Result<Sum, ToolError> {
    Ok(Sum { sum: numbers.a + numbers.b })
}

#[derive(Default, Serialize, Deserialize)]
struct Total {
    sum: i64,
}
impl ToolState for Total {
    const NAME: &'static str = "total";
}

async fn add_up(numbers: Add, mut total: State<Total>) -> Result<Sum, ToolError> {
    total.sum = numbers.a + numbers.b;
    Ok(Sum { sum: total.sum })
}

/// The minimum that every library does: a tool behind a `dyn`, with arguments and result as JSON values.
trait BaselineTool: Sync + Send {
    fn call(&self, arguments: Value) -> Pin<Box<dyn Future<Output = Value> + Send + '_>>;
}

struct BaselineAdd;
impl BaselineTool for BaselineAdd {
    fn call(&self, arguments: Value) -> Pin<Box<dyn Future<Output = Value> + Send + '_>> {
        Box::pin(async move {
            let numbers = serde_json::from_value(arguments).expect("the arguments match the type");
            let Ok(sum) = add(numbers).await else { unreachable!("small numbers have a sum") };
            serde_json::to_value(sum).expect("a sum is JSON")
        })
    }
}

pub(crate) async fn baseline_call() {
    static BASELINE: LazyLock<Box<dyn BaselineTool>> = LazyLock::new(|| Box::new(BaselineAdd));
    let output = BASELINE.call(parse_json(black_box(ARGUMENTS))).await;
    black_box(output.to_string());
}

/// A hub with the tools above and `others` more.
pub(crate) async fn hub(others: usize) -> ToolHub {
    let others = (0..others).map(|n| tool(&format!("other_{n}"), add).read_only());
    ToolHub::builder()
        .tool(tool("add", add).read_only())
        .tool(tool("add_effect", add))
        .tool(tool("add_up", add_up))
        .tools(others)
        // No retention of completed calls, or their records would fill the memory.
        .call_retention(std::time::Duration::ZERO)
        .build()
        .await
        .expect("the tools are valid")
}

pub(crate) async fn hub_text(hub: &ToolHub) {
    let outcome = hub.call("add", parse_json(black_box(ARGUMENTS))).await;
    black_box(outcome.output.to_string());
}

pub(crate) async fn hub_value(hub: &ToolHub) {
    black_box(hub.call("add", json!({"a": 1, "b": 2})).await);
}

pub(crate) async fn hub_effect(hub: &ToolHub) {
    let outcome = hub.call("add_effect", parse_json(black_box(ARGUMENTS))).thread("bench").await;
    black_box(outcome.output.to_string());
}

pub(crate) async fn hub_state(hub: &ToolHub) {
    let outcome = hub.call("add_up", parse_json(black_box(ARGUMENTS))).thread("bench").await;
    black_box(outcome.output.to_string());
}

/// Makes a fixed number of calls, on a runtime of the current thread.
pub(crate) fn run_calls<F: Future<Output = ()>>(call: impl Fn() -> F) {
    crate::measure::runtime().block_on(async {
        for _ in 0..100_000 {
            call().await;
        }
    });
}

/// How many threads have a failure record in [`hub_with_many_threads`].
pub(crate) const THREADS: usize = 10_000;

/// A hub with a hundred tools and many threads with failure records, and the last of those threads.
pub(crate) async fn hub_with_many_threads() -> (ToolHub, Tenant, ThreadId) {
    let tools = (0..100).map(|n| tool(&format!("tool_{n}"), add).read_only());
    let hub = ToolHub::builder().tools(tools).build().await.expect("the tools are valid");
    let (tenant, mut last) = (Tenant::default(), ThreadId::mint());
    for n in 0..THREADS {
        last = ThreadId::new(format!("thread-{n}")).expect("a valid thread id");
        let failed = Err(ToolError::new("once"));
        let tool = format!("tool_{}", n % 100);
        hub.report_result(&tool, StatusScope::Thread(&tenant, &last), failed)
            .await
            .expect("the memory store does not fail");
    }
    (hub, tenant, last)
}

pub(crate) async fn list_available_tools(hub: &ToolHub, tenant: &Tenant, thread: &ThreadId) {
    black_box(hub.available_tools(StatusScope::Thread(tenant, thread)).await.expect("the memory store does not fail"));
}

pub(crate) fn parse_json(text: &str) -> Value {
    serde_json::from_str(text).expect("the arguments are JSON")
}
