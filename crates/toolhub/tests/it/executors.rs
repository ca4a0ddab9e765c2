//! Kinds of tools added from outside the workspace.

use toolhub::{BoxFuture, Definition, Executor, Job, Kind, RateLimit, Reply, Rule, prelude::*, testing::AssertOutcome};

/// Runs tools of kind `shout`: returns the configured word in upper case.
struct Shouter;

impl Executor for Shouter {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let times = job.arguments["times"].as_u64().unwrap_or(1);
            let word = job.tool.config["word"].as_str().unwrap_or_default();
            if times > 3 {
                return Err(ToolError::with_kind(ErrorKind::UpstreamUnreachable, "too loud for the line"));
            }
            Ok(Reply { output: json!({"times": times}), content: vec![Content::text(word.repeat(times as usize))] })
        })
    }

    fn validate_definition(&self, definition: &Definition) -> Result<(), String> {
        if definition.config["word"].is_string() { Ok(()) } else { Err("its config needs a `word`".into()) }
    }
}

fn shout(config: Value) -> ToolBuilder {
    let parameters = json!({"type": "object", "properties": {"times": {"type": "integer", "minimum": 1}}});
    ToolBuilder::new("hey", "shout").description("Shout.").parameters(parameters).config(config).read_only()
}

#[tokio::test]
async fn a_foreign_kind_passes_the_same_pipeline_stages() {
    let hub = ToolHub::builder().executor("shout", Shouter).tool(shout(json!({"word": "hey!"}))).build().await.unwrap();
    let outcome = hub.call("hey", json!({"times": 2})).await;
    assert_eq!(outcome.assert_success(), &json!({"times": 2}));
    assert_eq!(outcome.model_text(), "hey!hey!");
    hub.call("hey", json!({"times": 0})).await.assert_error(ErrorKind::ArgumentsInvalid);
    let failed = hub.call("hey", json!({"times": 9})).await;
    failed.assert_error(ErrorKind::UpstreamUnreachable);
    assert!(failed.error.unwrap().retryable);
    assert_eq!(hub.get("hey").unwrap().definition.kind, Kind::from("shout"));
    // The registry lists tools and cannot run them; a call through the hub passes rules, limits and the status.
    assert!(hub.registry().snapshot().get("hey").is_some());
    let asks = ToolHub::builder()
        .executor("shout", Shouter)
        .tool(shout(json!({"word": "hey!"})).no_retry().rate_limit(RateLimit::per_hour(4)))
        .rule(Rule::deny("hey").when("/times", "^2$").reason("not twice"))
        .build()
        .await
        .unwrap();
    asks.call("hey", json!({"times": 2})).await.assert_error(ErrorKind::Forbidden);
    for _ in 0..3 {
        asks.call("hey", json!({"times": 9})).await.assert_error(ErrorKind::UpstreamUnreachable);
    }
    asks.call("hey", json!({"times": 1})).await.assert_error(ErrorKind::ToolFailedStatus);
    asks.reset_tool_status("hey", StatusScope::Shared).await.unwrap();
    asks.call("hey", json!({"times": 1})).await.assert_success();
    asks.call("hey", json!({"times": 1})).await.assert_error(ErrorKind::RateLimited);
}

#[tokio::test]
async fn an_executor_may_refuse_a_definition() {
    let built = ToolHub::builder().executor("shout", Shouter).tool(shout(json!({}))).build().await;
    assert_eq!(built.unwrap_err().to_string(), "`hey` cannot be registered: its config needs a `word`");
}

#[tokio::test]
async fn two_executors_for_one_kind_are_refused() {
    let built = ToolHub::builder().executor("shout", Shouter).executor("shout", Shouter).build().await;
    assert!(built.unwrap_err().to_string().contains("two executors for tools of kind `shout`"));
}
