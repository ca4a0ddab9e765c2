//! The tools of a node. Each notes when it begins, and when it has its effect.
//!
//! In: calls with the time that they take. Out: replies, and entries of the ledger. The tools of a frozen node do not work.

use std::{sync::Arc, time::Duration};

use toolhub::{BoxFuture, Executor, Job, Kind, Reply, prelude::*};

use super::world::{Execution, PROBED_TOOL, World};

/// The calls that have counted, as a state of a thread.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Counter {
    pub(super) calls: Vec<CallId>,
}

impl ToolState for Counter {
    const NAME: &'static str = "counter";
}

/// How long a call takes, in milliseconds.
#[derive(Deserialize, JsonSchema)]
struct Work {
    ms: u64,
}

#[derive(Clone)]
struct Worker {
    world: Arc<World>,
    node: usize,
}

/// The tools of a node.
pub(super) fn tools(world: &Arc<World>, node: usize) -> Vec<ToolBuilder> {
    let worker = Worker { world: world.clone(), node };
    let plain = |name: &str| {
        let tool = ToolBuilder::new(name, Kind::Stateless).description("Works for a while.").no_retry();
        tool.executor(Arc::new(worker.clone())).timeout(Duration::from_secs(20))
    };
    let counting = worker.clone();
    let count = move |work: Work, mut counter: State<Counter>, cx: CallContext| {
        let worker = counting.clone();
        async move {
            worker.work("count", &cx, json!({"ms": work.ms})).await?;
            counter.calls.push(cx.call_id());
            Ok::<_, ToolError>(counter.calls.len())
        }
    };
    vec![
        plain("look").read_only(),
        plain("pay"),
        plain("order").confirm(),
        plain("note"),
        plain("index").idempotent().rerun_interrupted(),
        plain(PROBED_TOOL).read_only().timeout(Duration::from_secs(2)),
        tool("count", count),
    ]
}

impl Worker {
    async fn work(&self, tool: &str, context: &CallContext, arguments: Value) -> Result<Value, ToolError> {
        let (world, node) = (&self.world, self.node);
        world.faults[node].thawed().await;
        let time = Duration::from_millis(arguments["ms"].as_u64().unwrap_or_default());
        let entry = {
            let mut ledger = world.ledger();
            let execution = Execution {
                tool: tool.to_owned(),
                call: context.call_id(),
                node,
                arguments,
                key: context.idempotency_key().map(ToString::to_string),
                began: world.now(),
                ended: None,
                has_failed: false,
                statuses: ledger.statuses.len(),
            };
            ledger.executions.push(execution);
            ledger.executions.len() - 1
        };
        tokio::time::sleep(time).await;
        world.faults[node].thawed().await;
        world.ledger().executions[entry].ended = Some(world.now());
        if tool == PROBED_TOOL && world.is_broken() {
            world.ledger().executions[entry].has_failed = true;
            return Err(ToolError::with_kind(ErrorKind::UpstreamError, "it is broken"));
        }
        Ok(json!(entry))
    }
}

impl Executor for Worker {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let output = self.work(job.tool.name.as_str(), job.context, job.arguments.clone()).await?;
            Ok(output.into())
        })
    }
}
