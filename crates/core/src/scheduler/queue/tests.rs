//! Order, fairness, limits, and that neither a slot nor a waiter is ever lost.

use std::{
    future::poll_fn,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    task::Poll,
};

use futures_util::FutureExt;
use proptest::prelude::*;

use super::*;

const LARGE_LIMITS: QueueLimits = QueueLimits { per_tool: 100_000, total: 100_000 };

mod pressure;

fn fairness_key(name: &str) -> FairnessKey {
    FairnessKey { tenant: Tenant::default(), thread: Some(ThreadId::new(name).unwrap()) }
}

#[track_caller]
fn expect_slot(acquired: Result<SlotOrWaiter, QueueFull>) -> Slot {
    match acquired.unwrap() {
        SlotOrWaiter::Slot(slot) => slot,
        SlotOrWaiter::Waiter(_) => panic!("no slot was free"),
    }
}

#[track_caller]
fn expect_waiter(acquired: Result<SlotOrWaiter, QueueFull>) -> SlotWaiter {
    match acquired.unwrap() {
        SlotOrWaiter::Slot(_) => panic!("a slot was free"),
        SlotOrWaiter::Waiter(waiter) => waiter,
    }
}

#[track_caller]
fn check_empty(queue: &Queue, tool_queues: &[ToolQueue]) {
    assert_eq!((queue.queued(), queue.0.running.load(SeqCst), queue.0.ready_queues.load(SeqCst)), (0, 0, 0));
    for tool_queue in tool_queues {
        assert_eq!((tool_queue.queued(), tool_queue.running()), (0, 0));
    }
    assert!(queue.0.wait_queue.lock().unwrap().is_empty(), "the wait queue still has waiters");
}

/// Enqueues these calls behind one that holds the only slot, and returns the names in the order they are served.
fn order(queue: &Queue, limit: Option<usize>, calls: &[(&ToolQueue, &str)]) -> Vec<String> {
    let first = expect_slot(calls[0].0.acquire(limit, &fairness_key("first")));
    let mut waiters: Vec<_> = calls
        .iter()
        .map(|(tool_queue, name)| (*name, expect_waiter(tool_queue.acquire(limit, &fairness_key(name)))))
        .collect();
    assert_eq!(queue.queued(), calls.len());
    drop(first);
    let mut served = Vec::new();
    while let Some((index, slot)) =
        waiters.iter_mut().enumerate().find_map(|(index, (_, waiter))| Some((index, waiter.now_or_never()?)))
    {
        served.push(waiters.remove(index).0.to_owned());
        drop(slot);
    }
    assert!(waiters.is_empty());
    served
}

#[test]
fn fairness_keys_take_turns_and_each_keeps_its_own_order() {
    let queue = Queue::new(None, LARGE_LIMITS);
    let tool_queue = queue.tool_queue();
    let calls: Vec<_> = ["a", "a", "a", "b", "c", "b"].map(|name| (&tool_queue, name)).into();
    assert_eq!(order(&queue, Some(1), &calls), ["a", "b", "c", "a", "b", "a"]);

    let held = expect_slot(tool_queue.acquire(Some(1), &fairness_key("x")));
    let mut early = expect_waiter(tool_queue.acquire(Some(1), &fairness_key("a")));
    let mut late = expect_waiter(tool_queue.acquire(Some(1), &fairness_key("a")));
    drop(held);
    assert!((&mut late).now_or_never().is_none());
    drop((&mut early).now_or_never().unwrap());
    drop((&mut late).now_or_never().unwrap());
    check_empty(&queue, &[tool_queue]);
}

#[test]
fn calls_without_a_thread_share_one_fairness_key_per_tenant() {
    let queue = Queue::new(None, LARGE_LIMITS);
    let tool_queue = queue.tool_queue();
    let held = expect_slot(tool_queue.acquire(Some(1), &fairness_key("x")));
    let without_thread = FairnessKey { tenant: Tenant::default(), thread: None };
    let other = FairnessKey { tenant: Tenant::new("other").unwrap(), thread: None };
    let mut first = expect_waiter(tool_queue.acquire(Some(1), &without_thread));
    let mut second = expect_waiter(tool_queue.acquire(Some(1), &without_thread));
    let mut third = expect_waiter(tool_queue.acquire(Some(1), &other));
    drop(held);
    drop((&mut first).now_or_never().unwrap());
    assert!((&mut second).now_or_never().is_none());
    drop((&mut third).now_or_never().unwrap());
    drop((&mut second).now_or_never().unwrap());
    check_empty(&queue, &[tool_queue]);
}

#[test]
fn one_call_does_not_wait_for_ten_thousand_of_another_fairness_key() {
    let queue = Queue::new(Some(1), LARGE_LIMITS);
    let tool_queue = queue.tool_queue();
    let held = expect_slot(tool_queue.acquire(Some(1), &fairness_key("x")));
    let mut crowd: Vec<_> =
        (0..10_000).map(|_| expect_waiter(tool_queue.acquire(Some(1), &fairness_key("a")))).collect();
    let mut single = expect_waiter(tool_queue.acquire(Some(1), &fairness_key("b")));
    drop(held);
    drop((&mut crowd[0]).now_or_never().unwrap());
    drop((&mut single).now_or_never().expect("the other fairness key is second"));
    drop((crowd, single));
    check_empty(&queue, &[tool_queue]);
}

#[test]
fn tool_queues_take_turns_for_a_shared_slot() {
    let queue = Queue::new(Some(1), LARGE_LIMITS);
    let (busy, quiet) = (queue.tool_queue(), queue.tool_queue());
    let calls = [(&busy, "a"), (&busy, "b"), (&busy, "c"), (&quiet, "z")];
    assert_eq!(order(&queue, None, &calls), ["a", "z", "b", "c"]);
    check_empty(&queue, &[busy, quiet]);
}

#[test]
fn a_tool_queue_at_its_own_limit_blocks_no_other_and_holds_no_shared_slot() {
    let queue = Queue::new(Some(2), LARGE_LIMITS);
    let (busy, quiet) = (queue.tool_queue(), queue.tool_queue());
    let held = expect_slot(busy.acquire(Some(1), &fairness_key("a")));
    let waiter = expect_waiter(busy.acquire(Some(1), &fairness_key("a")));
    let other = expect_slot(quiet.acquire(Some(5), &fairness_key("b")));
    let behind = expect_waiter(quiet.acquire(None, &fairness_key("b")));
    drop(other);
    let other = behind.now_or_never().expect("the shared slot is free again");
    drop(other);
    drop(held);
    drop(waiter.now_or_never().expect("the tool's own slot is free again"));
    check_empty(&queue, &[busy, quiet]);
}

#[test]
fn nobody_overtakes_those_who_wait() {
    let queue = Queue::new(Some(1), LARGE_LIMITS);
    let (one, two) = (queue.tool_queue(), queue.tool_queue());
    let held = expect_slot(one.acquire(None, &fairness_key("a")));
    let first = expect_waiter(one.acquire(None, &fairness_key("a")));
    drop(held);
    // The slot belongs to the first waiter now, although it has not been polled yet.
    let second = expect_waiter(two.acquire(None, &fairness_key("b")));
    let third = expect_waiter(one.acquire(None, &fairness_key("c")));
    drop(first.now_or_never().unwrap());
    drop(second.now_or_never().unwrap());
    drop(third.now_or_never().unwrap());
    check_empty(&queue, &[one, two]);
}

#[test]
fn whoever_would_have_to_wait_in_a_full_queue_is_refused_at_once() {
    let queue = Queue::new(None, QueueLimits { per_tool: 2, total: 3 });
    let (one, two) = (queue.tool_queue(), queue.tool_queue());
    let held =
        (expect_slot(one.acquire(Some(1), &fairness_key("a"))), expect_slot(two.acquire(Some(1), &fairness_key("a"))));
    let waiters = [
        expect_waiter(one.acquire(Some(1), &fairness_key("a"))),
        expect_waiter(one.acquire(Some(1), &fairness_key("b"))),
    ];
    assert_eq!(
        one.acquire(Some(1), &fairness_key("c")).unwrap_err(),
        QueueFull { limit: QueueLimit::Tool, retry_after: RETRY_AFTER }
    );
    let last = expect_waiter(two.acquire(Some(1), &fairness_key("a")));
    assert_eq!(two.acquire(Some(1), &fairness_key("c")).unwrap_err().limit, QueueLimit::Global);
    assert_eq!((one.queued(), two.queued(), queue.queued()), (2, 1, 3));
    drop(last);
    let retried = expect_waiter(two.acquire(Some(1), &fairness_key("c")));
    drop((waiters, retried, held));
    check_empty(&queue, &[one, two]);

    let queue = Queue::new(None, QueueLimits { per_tool: 0, total: 0 });
    let tool_queue = queue.tool_queue();
    let held = expect_slot(tool_queue.acquire(Some(1), &fairness_key("a")));
    assert!(tool_queue.acquire(Some(1), &fairness_key("a")).is_err());
    drop(held);
    drop(expect_slot(tool_queue.acquire(Some(1), &fairness_key("a"))));
    check_empty(&queue, &[tool_queue]);
}

#[test]
fn whoever_stops_waiting_leaves_nothing_behind() {
    let queue = Queue::new(Some(1), LARGE_LIMITS);
    let (one, two) = (queue.tool_queue(), queue.tool_queue());
    let held = expect_slot(one.acquire(Some(1), &fairness_key("x")));
    let waiters: Vec<_> = (0..100)
        .map(|index| expect_waiter([&one, &two][index % 2].acquire(Some(1), &fairness_key(&format!("t{}", index % 7)))))
        .collect();
    drop(waiters);
    assert!(queue.0.wait_queue.lock().unwrap().is_empty());
    drop(held);
    check_empty(&queue, &[one, two]);
}

#[test]
fn a_slot_given_to_somebody_who_leaves_goes_to_the_next() {
    let queue = Queue::new(Some(1), LARGE_LIMITS);
    let tool_queue = queue.tool_queue();

    // Dropped after the slot arrived.
    let held = expect_slot(tool_queue.acquire(Some(1), &fairness_key("x")));
    let (first, second) = (
        expect_waiter(tool_queue.acquire(Some(1), &fairness_key("a"))),
        expect_waiter(tool_queue.acquire(Some(1), &fairness_key("b"))),
    );
    drop(held);
    drop(first);
    let held = second.now_or_never().expect("it was passed on");

    // Dropped between dispatch and delivery.
    let (first, second) = (
        expect_waiter(tool_queue.acquire(Some(1), &fairness_key("a"))),
        expect_waiter(tool_queue.acquire(Some(1), &fairness_key("b"))),
    );
    tool_queue.0.running.fetch_sub(1, SeqCst);
    queue.0.running.fetch_sub(1, SeqCst);
    let handoffs = tool_queue.wait_queue().dispatch(&tool_queue);
    assert_eq!(handoffs.len(), 1);
    drop(first);
    wait_queue::deliver(handoffs);
    drop(second.now_or_never().expect("it was passed on"));

    tool_queue.0.running.fetch_add(1, SeqCst);
    queue.0.running.fetch_add(1, SeqCst);
    drop(held);
    check_empty(&queue, &[tool_queue]);
}

#[test]
fn a_limit_may_change_from_call_to_call() {
    let queue = Queue::new(None, LARGE_LIMITS);
    let tool_queue = queue.tool_queue();
    let held = expect_slot(tool_queue.acquire(Some(1), &fairness_key("a")));
    let early = expect_waiter(tool_queue.acquire(Some(1), &fairness_key("a")));
    // Raised: calls that waited under the old limit go first.
    let late = expect_slot(tool_queue.acquire(Some(3), &fairness_key("b")));
    let early = early.now_or_never().expect("there are three slots now");
    // Lowered: no running call is stopped, but two must end before the next starts.
    let next = expect_waiter(tool_queue.acquire(Some(1), &fairness_key("a")));
    drop(held);
    drop(late);
    let mut next = Box::pin(next);
    assert!((&mut next).now_or_never().is_none());
    drop(early);
    let held = next.now_or_never().unwrap();
    // Removed: the first call without a limit also admits the waiters.
    let waiter = expect_waiter(tool_queue.acquire(Some(1), &fairness_key("a")));
    let free = expect_slot(tool_queue.acquire(None, &fairness_key("b")));
    drop((waiter.now_or_never().unwrap(), free, held));
    check_empty(&queue, &[tool_queue]);
    let free = [
        expect_slot(queue.tool_queue().acquire(None, &fairness_key("a"))),
        expect_slot(queue.tool_queue().acquire(None, &fairness_key("a"))),
    ];
    assert!(free.iter().all(|slot| slot.0.is_none()), "nothing is counted without a limit");
}

#[test]
fn zero_slots_are_read_as_one() {
    let queue = Queue::new(Some(0), LARGE_LIMITS);
    let tool_queue = queue.tool_queue();
    drop(expect_slot(tool_queue.acquire(Some(0), &fairness_key("a"))));
    check_empty(&queue, &[tool_queue]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fairness_keys_get_equal_shares() {
    let queue = Queue::new(Some(2), LARGE_LIMITS);
    let tool_queue = queue.tool_queue();
    let stop = Arc::new(AtomicBool::new(false));
    let held = [
        expect_slot(tool_queue.acquire(None, &fairness_key("x"))),
        expect_slot(tool_queue.acquire(None, &fairness_key("x"))),
    ];
    let counts: Vec<Arc<AtomicUsize>> = (0..4).map(|_| Arc::default()).collect();
    let mut tasks = Vec::new();
    // Each fairness key always has calls waiting, but some have ten times as many.
    for (index, crowd) in [(0, 3), (1, 30), (2, 3), (3, 30)] {
        for _ in 0..crowd {
            let (tool_queue, stop, count) = (tool_queue.clone(), stop.clone(), counts[index].clone());
            tasks.push(tokio::spawn(async move {
                while !stop.load(Relaxed) {
                    let slot = match tool_queue.acquire(Some(2), &fairness_key(&format!("p{index}"))).unwrap() {
                        SlotOrWaiter::Slot(slot) => slot,
                        SlotOrWaiter::Waiter(waiter) => waiter.await,
                    };
                    if count.fetch_add(1, Relaxed) >= 500 {
                        stop.store(true, Relaxed);
                    }
                    tokio::task::yield_now().await;
                    drop(slot);
                }
            }));
        }
    }
    while tool_queue.queued() < 66 {
        tokio::task::yield_now().await;
    }
    drop(held);
    for task in tasks {
        task.await.unwrap();
    }
    let counts: Vec<_> = counts.iter().map(|count| count.load(Relaxed)).collect();
    // A key with three tasks may miss a turn when all of them are between two calls.
    assert!(counts.iter().all(|count| *count > 350), "{counts:?}");
    check_empty(&queue, &[tool_queue]);
}

fn tenant_key(tenant: &str, thread: &str) -> FairnessKey {
    FairnessKey { tenant: Tenant::new(tenant).unwrap(), ..fairness_key(thread) }
}

#[test]
fn one_tenant_may_fill_a_queue_and_each_other_one_still_gets_its_share() {
    for (per_tool, total, limit) in
        [(100, 1_000, QueueLimit::Tool), (1_000, 100, QueueLimit::Global), (100, 100, QueueLimit::Tool)]
    {
        let queue = Queue::new(None, QueueLimits { per_tool, total });
        let tool_queue = queue.tool_queue();
        let running = expect_slot(tool_queue.acquire(Some(1), &tenant_key("a", "t")));
        let mut waiters = Vec::new();
        for (tenant, share) in [("a", 100), ("b", 5), ("c", 5)] {
            waiters.extend((0..share).map(|_| expect_waiter(tool_queue.acquire(Some(1), &tenant_key(tenant, "t")))));
            let refused = tool_queue.acquire(Some(1), &tenant_key(tenant, "t")).unwrap_err();
            assert_eq!(refused.limit, limit, "{tenant}");
        }
        drop((running, waiters));
        check_empty(&queue, &[tool_queue]);
    }
    let closed = Queue::new(None, QueueLimits { per_tool: 0, total: 0 }).tool_queue();
    let _running = expect_slot(closed.acquire(Some(1), &tenant_key("a", "t")));
    assert!(closed.acquire(Some(1), &tenant_key("b", "t")).is_err());
}

#[test]
fn tenants_take_turns_however_many_threads_one_of_them_has() {
    let queue = Queue::new(None, LARGE_LIMITS);
    let tool_queue = queue.tool_queue();
    let mut running = expect_slot(tool_queue.acquire(Some(1), &tenant_key("a", "t")));
    let calls = [("a", "1"), ("a", "2"), ("a", "3"), ("a", "1"), ("b", "1"), ("b", "1"), ("b", "2")];
    let mut waiters: Vec<_> = calls
        .map(|(tenant, thread)| {
            let waiter = expect_waiter(tool_queue.acquire(Some(1), &tenant_key(tenant, thread)));
            (format!("{tenant}{thread}"), waiter)
        })
        .into();
    let mut served = Vec::new();
    while !waiters.is_empty() {
        drop(running);
        let next = waiters.iter_mut().enumerate().find_map(|(at, (_, waiter))| Some((at, waiter.now_or_never()?)));
        let (at, slot) = next.unwrap();
        served.push(waiters.remove(at).0);
        running = slot;
    }
    assert_eq!(served, ["a1", "b1", "a2", "b2", "a3", "b1", "a1"]);
    drop(running);
    check_empty(&queue, &[tool_queue]);
}
