//! Recent statistics of a tool, from the journal.

use std::time::Duration;

use toolhub::{
    CallQuery,
    backend::Memory,
    clock::Clock,
    prelude::*,
    testing::{ScriptStep, TestClock, scripted},
};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn calls_count_by_their_end_whosever_they_are_and_those_of_other_tools_do_not() {
    let clock = TestClock::new();
    let steps = [
        ScriptStep::Return(json!(1)),
        ScriptStep::Fail(ToolError::new("dark")),
        ScriptStep::Fail(ToolError::new("dark").retryable(None)),
        ScriptStep::Return(json!(1)),
    ];
    let (look, _) = scripted("look", steps);
    let (other, _) = scripted("other", []);
    let hub = ToolHub::builder().store(Memory::new()).clock(clock.clone());
    let hub = hub.tool(look.idempotent()).tool(other).build().await.unwrap();
    hub.call("look", json!({"n": 1})).await;
    clock.advance(10 * MINUTE).await;
    hub.call("look", json!({"n": 2})).tenant(Tenant::new("other").unwrap()).await;
    hub.call("look", json!({"n": 3})).thread("t").await;
    hub.call("other", json!({})).await;
    let recent = async |window| hub.recent_stats("look", window).await.unwrap().unwrap();
    let lately = recent(5 * MINUTE).await;
    assert_eq!((lately.calls, lately.latency.count, lately.complete), (2, 2, true), "{lately:?}");
    assert_eq!((lately.errors.get("tool_error"), lately.retries), (Some(&1), 1), "{lately:?}");
    assert_eq!((lately.from, lately.until), (clock.now() - 5 * MINUTE, clock.now()));
    assert_eq!(recent(20 * MINUTE).await.calls, 3);
    assert_eq!(hub.recent_stats("nobody", MINUTE).await.unwrap(), None);
    assert_eq!(hub.call_retention(), Duration::from_secs(30 * 24 * 3600));
}

#[tokio::test]
async fn statistics_over_more_records_than_are_read_are_marked_incomplete() {
    let (look, _) = scripted("look", []);
    let hub = ToolHub::builder().store(Memory::new()).tool(look.read_only()).build().await.unwrap();
    for n in 0..10_100 {
        assert!(hub.call("look", json!({})).await.error.is_none());
        // Buffered records are written before the buffer is full.
        if n % 2_000 == 0 {
            hub.calls(&Tenant::default(), &CallQuery::default()).await.unwrap();
        }
    }
    let recent = hub.recent_stats("look", 60 * MINUTE).await.unwrap().unwrap();
    assert_eq!((recent.calls, recent.complete), (10_000, false));
    assert!(recent.from > recent.until - 60 * MINUTE, "{recent:?}");
}
