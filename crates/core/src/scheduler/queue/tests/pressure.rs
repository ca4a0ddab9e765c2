//! The queue under stress: many concurrent calls, dropped waiters, and random operations.

use super::*;

/// Waits for a maximum number of polls, which stands for a deadline without reading a clock.
async fn give_up_after(polls: u32, mut waiter: SlotWaiter) -> Option<Slot> {
    let mut remaining = polls;
    poll_fn(|cx| match waiter.poll_unpin(cx) {
        Poll::Ready(slot) => Poll::Ready(Some(slot)),
        Poll::Pending if remaining == 0 => Poll::Ready(None),
        Poll::Pending => {
            remaining -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

struct Stress {
    slots: Option<usize>,
    limits: &'static [Option<usize>],
    max_polls: u32,
}

/// Tasks on four threads take slots, give up waiting and drop slots in random order; the limits must hold at all times.
async fn stress(stress: Stress) {
    const TASKS: u64 = 64;
    let queue = Queue::new(stress.slots, QueueLimits { per_tool: 20, total: 40 });
    let tool_queues: Arc<[ToolQueue]> = stress.limits.iter().map(|_| queue.tool_queue()).collect();
    let running: Arc<[AtomicUsize]> = tool_queues.iter().map(|_| AtomicUsize::new(0)).collect();
    let running_total = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|seed| {
            let (tool_queues, running, running_total) = (tool_queues.clone(), running.clone(), running_total.clone());
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(seed);
                let key = fairness_key(&format!("t{}", seed % 5));
                for _ in 0..300 {
                    let index = random.usize(..tool_queues.len());
                    let limit = stress.limits[index];
                    let slot = match tool_queues[index].acquire(limit, &key) {
                        Ok(SlotOrWaiter::Slot(slot)) => slot,
                        Ok(SlotOrWaiter::Waiter(waiter)) if random.u8(..4) == 0 => {
                            match give_up_after(random.u32(..=stress.max_polls), waiter).await {
                                Some(slot) => slot,
                                None => continue,
                            }
                        }
                        Ok(SlotOrWaiter::Waiter(waiter)) => waiter.await,
                        Err(_) => {
                            tokio::task::yield_now().await;
                            continue;
                        }
                    };
                    let (running_here, running_now) =
                        (running[index].fetch_add(1, SeqCst) + 1, running_total.fetch_add(1, SeqCst) + 1);
                    assert!(
                        limit.is_none_or(|limit| running_here <= limit),
                        "{running_here} running with a limit of {limit:?}"
                    );
                    assert!(
                        stress.slots.is_none_or(|slots| running_now <= slots),
                        "{running_now} of {:?}",
                        stress.slots
                    );
                    if random.bool() {
                        tokio::task::yield_now().await;
                    }
                    running[index].fetch_sub(1, SeqCst);
                    running_total.fetch_sub(1, SeqCst);
                    drop(slot);
                }
            })
        })
        .collect();
    for task in tasks {
        let ended = tokio::time::timeout(Duration::from_secs(60), task).await;
        ended.expect("a waiter was lost in the queue").unwrap();
    }
    check_empty(&queue, &tool_queues);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_slot_and_nobody_is_lost_under_stress() {
    for max_polls in [0, 3, 50] {
        stress(Stress { slots: Some(1), limits: &[None, None], max_polls }).await;
        stress(Stress { slots: None, limits: &[Some(1), Some(2)], max_polls }).await;
        stress(Stress { slots: Some(3), limits: &[Some(1), Some(2), Some(3), None], max_polls }).await;
        stress(Stress { slots: Some(6), limits: &[Some(1), Some(5)], max_polls }).await;
    }
}

/// One thread releases the only slot while another acquires it; no later call hides a lost wake-up.
fn race(slots: Option<usize>, limit: Option<usize>, tool_queues: usize) {
    const ROUNDS: usize = 10_000;
    let queue = Queue::new(slots, LARGE_LIMITS);
    let tool_queues: Vec<_> = (0..tool_queues).map(|_| queue.tool_queue()).collect();
    let (releaser, acquirer) = (&tool_queues[0], &tool_queues[tool_queues.len() - 1]);
    let handed_over: Mutex<Option<Slot>> = Mutex::new(None);
    let (started, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Both spin, because a woken thread comes too late for the race.
    let wait_until = |counter: &AtomicUsize, round| {
        for spins in 0.. {
            if counter.load(SeqCst) >= round {
                return;
            }
            if spins > 1_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    };
    // One thread starts a little later each time, so that the two interleave at every point.
    let spin = |steps| (0..steps).for_each(|_| std::hint::spin_loop());
    let lost = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                wait_until(&started, round);
                let slot = handed_over.lock().unwrap().take();
                spin(round % 499);
                drop(slot);
                ended.store(round, SeqCst);
            }
        });
        for round in 1..=ROUNDS {
            *handed_over.lock().unwrap() = Some(expect_slot(releaser.acquire(limit, &fairness_key("a"))));
            started.store(round, SeqCst);
            spin(round % 31);
            let acquired = acquirer.acquire(limit, &fairness_key("b")).unwrap();
            wait_until(&ended, round);
            if let SlotOrWaiter::Waiter(waiter) = acquired {
                lost.fetch_add(usize::from(waiter.now_or_never().is_none()), SeqCst);
            }
        }
    });
    assert_eq!(lost.load(SeqCst), 0, "the slot was free but the waiter was not woken");
    check_empty(&queue, &tool_queues);
}

#[test]
fn a_slot_given_back_while_somebody_asks_for_it_reaches_them() {
    race(None, Some(1), 1);
    race(Some(1), None, 2);
}

/// One random operation.
#[derive(Debug, Clone)]
enum Op {
    Acquire { queue: usize, key: u8, limit: Option<usize> },
    Drop(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let limit = prop_oneof![Just(None), (1..4usize).prop_map(Some)];
    let acquire = (0..3usize, 0..4u8, limit).prop_map(|(queue, key, limit)| Op::Acquire { queue, key, limit });
    proptest::collection::vec(prop_oneof![acquire, (0..64usize).prop_map(Op::Drop)], 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn whatever_happens_nobody_waits_while_a_slot_is_free_for_it(
        slots in prop_oneof![Just(None), (1..5usize).prop_map(Some)],
        ops in ops(),
    ) {
        let queue = Queue::new(slots, QueueLimits { per_tool: 5, total: 10 });
        let tool_queues = [queue.tool_queue(), queue.tool_queue(), queue.tool_queue()];
        let mut limits = [usize::MAX; 3];
        let mut held: Vec<(usize, Slot)> = Vec::new();
        let mut waiters: Vec<(usize, SlotWaiter)> = Vec::new();
        for op in ops {
            match op {
                Op::Acquire { queue: index, key, limit } => {
                    limits[index] = limit.unwrap_or(usize::MAX);
                    match tool_queues[index].acquire(limit, &fairness_key(&key.to_string())) {
                        Ok(SlotOrWaiter::Slot(slot)) => held.push((index, slot)),
                        Ok(SlotOrWaiter::Waiter(waiter)) => waiters.push((index, waiter)),
                        Err(_) => prop_assert!(tool_queues[index].queued() == 5 || queue.queued() == 10),
                    }
                }
                Op::Drop(index) if index < held.len() => drop(held.remove(index)),
                Op::Drop(index) => {
                    if !waiters.is_empty() {
                        let index = index % waiters.len();
                        drop(waiters.remove(index));
                    }
                }
            }
            let mut still_waiting = Vec::new();
            for (index, mut waiter) in waiters {
                match (&mut waiter).now_or_never() {
                    Some(slot) => held.push((index, slot)),
                    None => still_waiting.push((index, waiter)),
                }
            }
            waiters = still_waiting;
            let counted = held.iter().filter(|(_, slot)| slot.0.is_some()).count();
            prop_assert!(slots.is_none_or(|slots| counted <= slots));
            prop_assert_eq!(queue.queued(), waiters.len());
            for (index, _) in &waiters {
                let full = tool_queues[*index].running() >= limits[*index] || slots.is_some_and(|slots| counted >= slots);
                prop_assert!(full, "a call waits in tool queue {} although a slot is free", index);
            }
        }
        drop((held, waiters));
        check_empty(&queue, &tool_queues);
    }
}
