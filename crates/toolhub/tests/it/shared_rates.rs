//! Rate limits of several hubs on one store.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use toolhub::{
    RateLimit,
    backend::{Backend, Memory},
    prelude::*,
    testing::{AssertOutcome, TestClock, scripted},
};

use crate::faulty_store::FaultyStore;

/// Hubs on one store, with a tool that reads and has this limit.
async fn hubs(number: usize, store: Arc<dyn Backend>, limit: RateLimit) -> (Vec<ToolHub>, TestClock) {
    let (clock, mut hubs) = (TestClock::new(), Vec::new());
    for _ in 0..number {
        let tool = scripted("read", []).0.read_only().rate_limit(limit.clone());
        let builder = ToolHub::builder().shared_store(store.clone()).clock(clock.clone()).tool(tool);
        hubs.push(builder.build().await.unwrap());
    }
    (hubs, clock)
}

async fn passes(hub: &ToolHub) -> bool {
    let outcome = hub.call("read", json!({})).thread("t").await;
    assert!(outcome.is_success() || outcome.error_kind() == Some(ErrorKind::RateLimited), "{outcome:?}");
    outcome.is_success()
}

#[tokio::test(start_paused = true)]
async fn several_hubs_together_pass_as_many_calls_as_the_limit_and_hardly_fewer() {
    let (hubs, _) = hubs(3, Arc::new(Memory::new()), RateLimit::per_second(100)).await;
    let mut passed = 0;
    for _ in 0..2_000 {
        for hub in &hubs {
            passed += usize::from(passes(hub).await);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A full burst, and ten seconds.
    assert!((1_045..=1_100).contains(&passed), "{passed}");
}

#[tokio::test(start_paused = true)]
async fn permits_that_a_hub_keeps_are_not_used_beside_a_full_burst_of_another() {
    for idle in [5, 25, 50, 75, 95, 99, 100, 150, 500] {
        let (hubs, _) = hubs(2, Arc::new(Memory::new()), RateLimit::per_second(100)).await;
        // Borrows more permits than it uses.
        assert!(passes(&hubs[0]).await);
        tokio::time::sleep(Duration::from_millis(idle)).await;
        let mut passed = 1;
        for hub in [&hubs[1], &hubs[0], &hubs[1]] {
            while passes(hub).await {
                passed += 1;
            }
        }
        // The first call is paid back after ten milliseconds.
        let limit = 100 + u64::from(idle >= 10);
        assert!((limit - 10..=limit).contains(&passed), "{passed} after {idle} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_thread_holds_on_all_hubs_together() {
    let limit = RateLimit::per_minute(4).each_thread();
    let (hubs, _) = hubs(2, Arc::new(Memory::new()), limit).await;
    let mut passed = 0;
    for _ in 0..5 {
        for hub in &hubs {
            passed += usize::from(passes(hub).await);
        }
    }
    assert_eq!(passed, 4);
    hubs[1].call("read", json!({})).thread("other").await.assert_success();
    let refused = hubs[0].call("read", json!({})).thread("t").await;
    assert!(refused.error.unwrap().retry_after.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_wait_waits_for_its_turn_among_all_hubs() {
    let limit = RateLimit::per_second(10).wait(Duration::from_secs(10));
    let (hubs, _) = hubs(2, Arc::new(Memory::new()), limit).await;
    let began = tokio::time::Instant::now();
    let calls = (0..40).map(|number| {
        let hub = &hubs[number % 2];
        async move {
            hub.call("read", json!({})).thread("t").await.assert_success();
        }
    });
    futures_util::future::join_all(calls).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(2_900) && took < Duration::from_millis(3_500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn while_the_store_does_not_answer_a_hub_goes_by_its_own_share() {
    let store: Arc<FaultyStore> = Arc::default();
    let (hubs, _) = hubs(1, store.clone(), RateLimit::per_minute(5)).await;
    store.unavailable.store(true, Ordering::Release);
    let mut passed = 0;
    for _ in 0..8 {
        passed += usize::from(passes(&hubs[0]).await);
    }
    assert_eq!(passed, 5);
}

#[tokio::test(start_paused = true)]
async fn hubs_that_the_store_does_not_answer_pass_no_more_than_the_limit_together() {
    for (number, per_minute) in [(3, 1), (3, 2), (2, 30)] {
        let store: Arc<FaultyStore> = Arc::default();
        let (hubs, _) = hubs(number, store.clone(), RateLimit::per_minute(per_minute)).await;
        let pass_all = async || {
            let mut passed = 0;
            for hub in &hubs {
                passed += u32::from(passes(hub).await);
            }
            passed
        };
        // Until all know each other.
        tokio::time::sleep(Duration::from_secs(10)).await;
        while pass_all().await > 0 {}
        store.unavailable.store(true, Ordering::Release);
        assert_eq!(pass_all().await, 0, "the limit was used up before the store was lost");
        let mut passed = 0;
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            passed += pass_all().await;
        }
        let limit = 10 * per_minute;
        assert!(passed <= limit && passed >= limit * 8 / 10, "{passed} calls passed, at most {limit} may");
        store.unavailable.store(false, Ordering::Release);
        let mut passed = 0;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            passed += pass_all().await;
        }
        let most = per_minute + u32::try_from(number).unwrap();
        assert!(passed <= most, "{passed} calls passed, although those before the store was back used up the limit");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_others_are_faster_than_goes_by_the_limit_of_all() {
    let memory = Arc::new(Memory::new());
    let store = Arc::new(FaultyStore { memory: memory.clone(), ..FaultyStore::default() });
    let limit = RateLimit::per_minute(5);
    let (first, clock) = hubs(1, memory, limit.clone()).await;
    let tool = scripted("read", []).0.read_only().rate_limit(limit);
    let slow = ToolHub::builder().shared_store(store.clone()).clock(clock).tool(tool).build().await.unwrap();
    assert!(passes(&first[0]).await);
    store.rate_conflicts.store(u32::MAX, Ordering::Release);
    // A share of its own, beside the limit of all, would let some pass in that time.
    for _ in 0..60 {
        let refused = slow.call("read", json!({})).thread("t").await;
        refused.assert_error(ErrorKind::RateLimited);
        assert!(refused.error.unwrap().retry_after.is_some());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    while passes(&first[0]).await {}
    tokio::time::sleep(Duration::from_secs(25)).await;
    store.rate_conflicts.store(20, Ordering::Release);
    assert!(passes(&slow).await, "it tries again");
    assert!(passes(&slow).await);
    assert!(!passes(&slow).await && !passes(&first[0]).await);
}

#[tokio::test(start_paused = true)]
async fn a_permit_of_a_call_that_left_while_it_waited_lets_no_other_call_pass_before_its_time() {
    let limit = RateLimit::per_second(1).burst(1).wait(Duration::from_secs(60));
    let (hubs, _) = hubs(1, Arc::new(Memory::new()), limit).await;
    hubs[0].call("read", json!({})).thread("t").await.assert_success();
    for _ in 0..5 {
        let call = async { hubs[0].call("read", json!({})).thread("t").await };
        assert!(tokio::time::timeout(Duration::from_millis(10), call).await.is_err(), "it waits");
    }
    let began = tokio::time::Instant::now();
    hubs[0].call("read", json!({})).thread("t").await.assert_success();
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_usage_of_a_wider_limit_blocks_no_longer_than_the_narrower_one_allows() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let limit = RateLimit::per_hour(3_600);
    let (wide, clock) = hubs(1, store.clone(), limit.clone().burst(200)).await;
    for _ in 0..200 {
        wide[0].call("read", json!({})).thread("t").await.assert_success();
    }
    let tool = scripted("read", []).0.read_only().rate_limit(limit.burst(1));
    let narrow = ToolHub::builder().shared_store(store).clock(clock).tool(tool).build().await.unwrap();
    assert!(!passes(&narrow).await);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(passes(&narrow).await);
}
