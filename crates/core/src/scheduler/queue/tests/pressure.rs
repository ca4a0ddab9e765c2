//! The queue under pressure: many at once, people who leave, and random programs.

use super::*;

/// Waits for a number of polls at most. This stands for a deadline without reading a clock.
async fn give_up_after(polls: u32, mut waiting: SlotWaiter) -> Option<Slot> {
    let mut left = polls;
    poll_fn(|cx| match waiting.poll_unpin(cx) {
        Poll::Ready(slot) => Poll::Ready(Some(slot)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
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

/// Tasks on four threads take slots, give up waiting and drop slots in a random order; limits must hold at any time.
async fn stress(stress: Stress) {
    const TASKS: u64 = 64;
    let queue = Queue::new(stress.slots, QueueLimits { per_tool: 20, total: 40 });
    let lanes: Arc<[ToolQueue]> = stress.limits.iter().map(|_| queue.tool_queue()).collect();
    let seen: Arc<[AtomicUsize]> = lanes.iter().map(|_| AtomicUsize::new(0)).collect();
    let seen_in_all = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|seed| {
            let (lanes, seen, seen_in_all) = (lanes.clone(), seen.clone(), seen_in_all.clone());
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(seed);
                let who = fairness_key(&format!("t{}", seed % 5));
                for _ in 0..300 {
                    let at = random.usize(..lanes.len());
                    let limit = stress.limits[at];
                    let slot = match lanes[at].acquire(limit, &who) {
                        Ok(SlotOrWaiter::Slot(slot)) => slot,
                        Ok(SlotOrWaiter::Waiter(waiting)) if random.u8(..4) == 0 => {
                            match give_up_after(random.u32(..=stress.max_polls), waiting).await {
                                Some(slot) => slot,
                                None => continue,
                            }
                        }
                        Ok(SlotOrWaiter::Waiter(waiting)) => waiting.await,
                        Err(_) => {
                            tokio::task::yield_now().await;
                            continue;
                        }
                    };
                    let (own, all) = (seen[at].fetch_add(1, SeqCst) + 1, seen_in_all.fetch_add(1, SeqCst) + 1);
                    assert!(limit.is_none_or(|limit| own <= limit), "{own} in a lane of {limit:?}");
                    assert!(stress.slots.is_none_or(|slots| all <= slots), "{all} of {:?}", stress.slots);
                    if random.bool() {
                        tokio::task::yield_now().await;
                    }
                    seen[at].fetch_sub(1, SeqCst);
                    seen_in_all.fetch_sub(1, SeqCst);
                    drop(slot);
                }
            })
        })
        .collect();
    for task in tasks {
        let ended = tokio::time::timeout(Duration::from_secs(60), task).await;
        ended.expect("somebody was forgotten in the queue").unwrap();
    }
    check_empty(&queue, &lanes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_slot_and_nobody_is_lost_under_stress() {
    for patience in [0, 3, 50] {
        stress(Stress { slots: Some(1), limits: &[None, None], max_polls: patience }).await;
        stress(Stress { slots: None, limits: &[Some(1), Some(2)], max_polls: patience }).await;
        stress(Stress { slots: Some(3), limits: &[Some(1), Some(2), Some(3), None], max_polls: patience }).await;
        stress(Stress { slots: Some(6), limits: &[Some(1), Some(5)], max_polls: patience }).await;
    }
}

/// One gives the only slot back while another asks for it, and then nobody else comes who could put things right.
fn race(slots: Option<usize>, limit: Option<usize>, lanes: usize) {
    const ROUNDS: usize = 10_000;
    let queue = Queue::new(slots, LARGE_LIMITS);
    let lanes: Vec<_> = (0..lanes).map(|_| queue.tool_queue()).collect();
    let (giver, asker) = (&lanes[0], &lanes[lanes.len() - 1]);
    let handed: Mutex<Option<Slot>> = Mutex::new(None);
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // Both spin, because a woken thread comes too late for the race.
    let reach = |counter: &AtomicUsize, round| {
        for spins in 0.. {
            if counter.load(SeqCst) >= round {
                return;
            }
            if spins > 1_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    };
    // One begins a little later each time, so that the two meet at every point of their ways.
    let dawdle = |steps| (0..steps).for_each(|_| std::hint::spin_loop());
    let lost = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                reach(&begun, round);
                let slot = handed.lock().unwrap().take();
                dawdle(round % 499);
                drop(slot);
                ended.store(round, SeqCst);
            }
        });
        for round in 1..=ROUNDS {
            *handed.lock().unwrap() = Some(expect_slot(giver.acquire(limit, &fairness_key("a"))));
            begun.store(round, SeqCst);
            dawdle(round % 31);
            let place = asker.acquire(limit, &fairness_key("b")).unwrap();
            reach(&ended, round);
            if let SlotOrWaiter::Waiter(waiting) = place {
                lost.fetch_add(usize::from(waiting.now_or_never().is_none()), SeqCst);
            }
        }
    });
    assert_eq!(lost.load(SeqCst), 0, "the slot was free and nobody was told");
    check_empty(&queue, &lanes);
}

#[test]
fn a_slot_given_back_while_somebody_asks_for_it_reaches_them() {
    race(None, Some(1), 1);
    race(Some(1), None, 2);
}

/// One step of somebody.
#[derive(Debug, Clone)]
enum Op {
    Acquire { lane: usize, party: u8, limit: Option<usize> },
    Drop(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let limit = prop_oneof![Just(None), (1..4usize).prop_map(Some)];
    let place = (0..3usize, 0..4u8, limit).prop_map(|(lane, party, limit)| Op::Acquire { lane, party, limit });
    proptest::collection::vec(prop_oneof![place, (0..64usize).prop_map(Op::Drop)], 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn whatever_happens_nobody_waits_while_a_slot_is_free_for_it(
        all in prop_oneof![Just(None), (1..5usize).prop_map(Some)],
        steps in ops(),
    ) {
        let queue = Queue::new(all, QueueLimits { per_tool: 5, total: 10 });
        let lanes = [queue.tool_queue(), queue.tool_queue(), queue.tool_queue()];
        let mut limits = [usize::MAX; 3];
        let mut held: Vec<(usize, Slot)> = Vec::new();
        let mut waiters: Vec<(usize, SlotWaiter)> = Vec::new();
        for step in steps {
            match step {
                Op::Acquire { lane, party: who, limit } => {
                    limits[lane] = limit.unwrap_or(usize::MAX);
                    match lanes[lane].acquire(limit, &fairness_key(&who.to_string())) {
                        Ok(SlotOrWaiter::Slot(slot)) => held.push((lane, slot)),
                        Ok(SlotOrWaiter::Waiter(waiting)) => waiters.push((lane, waiting)),
                        Err(_) => prop_assert!(lanes[lane].queued() == 5 || queue.queued() == 10),
                    }
                }
                Op::Drop(at) if at < held.len() => drop(held.remove(at)),
                Op::Drop(at) => {
                    if !waiters.is_empty() {
                        let at = at % waiters.len();
                        drop(waiters.remove(at));
                    }
                }
            }
            let mut still = Vec::new();
            for (lane, mut waiting) in waiters {
                match (&mut waiting).now_or_never() {
                    Some(slot) => held.push((lane, slot)),
                    None => still.push((lane, waiting)),
                }
            }
            waiters = still;
            let counted = held.iter().filter(|(_, slot)| slot.0.is_some()).count();
            prop_assert!(all.is_none_or(|all| counted <= all));
            prop_assert_eq!(queue.queued(), waiters.len());
            for (lane, _) in &waiters {
                let full = lanes[*lane].running() >= limits[*lane] || all.is_some_and(|all| counted >= all);
                prop_assert!(full, "somebody waits in lane {} for nothing", lane);
            }
        }
        drop((held, waiters));
        check_empty(&queue, &lanes);
    }
}
