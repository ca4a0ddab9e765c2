//! Order, fairness, bounds, and that no slot and nobody who waits is ever lost.

use std::{
    future::poll_fn,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    task::Poll,
};

use futures_util::FutureExt;
use proptest::prelude::*;

use super::*;

const MANY: Bounds = Bounds { per_tool: 100_000, in_all: 100_000 };

fn party(name: &str) -> Party {
    Party { tenant: Tenant::default(), thread: Some(ThreadId::new(name).unwrap()) }
}

#[track_caller]
fn slot(place: Result<Place, Full>) -> Slot {
    match place.unwrap() {
        Place::Slot(slot) => slot,
        Place::Waiting(_) => panic!("no slot was free"),
    }
}

#[track_caller]
fn waiting(place: Result<Place, Full>) -> Waiting {
    match place.unwrap() {
        Place::Slot(_) => panic!("a slot was free"),
        Place::Waiting(waiting) => waiting,
    }
}

#[track_caller]
fn check_empty(queue: &Queue, lanes: &[Lane]) {
    assert_eq!((queue.queued(), queue.0.running.load(SeqCst), queue.0.ready.load(SeqCst)), (0, 0, 0));
    for lane in lanes {
        assert_eq!((lane.queued(), lane.running()), (0, 0));
    }
    assert!(queue.0.line.lock().unwrap().is_empty(), "somebody is still in the line");
}

/// Places these calls behind one that holds the only slot, and gives the names in the order they are served.
fn order(queue: &Queue, limit: Option<usize>, calls: &[(&Lane, &str)]) -> Vec<String> {
    let first = slot(calls[0].0.place(limit, &party("first")));
    let mut waiters: Vec<_> =
        calls.iter().map(|(lane, name)| (*name, waiting(lane.place(limit, &party(name))))).collect();
    assert_eq!(queue.queued(), calls.len());
    drop(first);
    let mut served = Vec::new();
    while let Some((at, slot)) =
        waiters.iter_mut().enumerate().find_map(|(at, (_, waiting))| Some((at, waiting.now_or_never()?)))
    {
        served.push(waiters.remove(at).0.to_owned());
        drop(slot);
    }
    assert!(waiters.is_empty());
    served
}

#[test]
fn parties_take_turns_and_each_keeps_its_own_order() {
    let queue = Queue::new(None, MANY);
    let lane = queue.lane();
    let calls: Vec<_> = ["a", "a", "a", "b", "c", "b"].map(|name| (&lane, name)).into();
    assert_eq!(order(&queue, Some(1), &calls), ["a", "b", "c", "a", "b", "a"]);

    let held = slot(lane.place(Some(1), &party("x")));
    let mut early = waiting(lane.place(Some(1), &party("a")));
    let mut late = waiting(lane.place(Some(1), &party("a")));
    drop(held);
    assert!((&mut late).now_or_never().is_none());
    drop((&mut early).now_or_never().unwrap());
    drop((&mut late).now_or_never().unwrap());
    check_empty(&queue, &[lane]);
}

#[test]
fn calls_without_a_thread_are_one_party_of_their_tenant() {
    let queue = Queue::new(None, MANY);
    let lane = queue.lane();
    let held = slot(lane.place(Some(1), &party("x")));
    let alone = Party { tenant: Tenant::default(), thread: None };
    let other = Party { tenant: Tenant::new("other").unwrap(), thread: None };
    let mut first = waiting(lane.place(Some(1), &alone));
    let mut second = waiting(lane.place(Some(1), &alone));
    let mut third = waiting(lane.place(Some(1), &other));
    drop(held);
    drop((&mut first).now_or_never().unwrap());
    assert!((&mut second).now_or_never().is_none());
    drop((&mut third).now_or_never().unwrap());
    drop((&mut second).now_or_never().unwrap());
    check_empty(&queue, &[lane]);
}

#[test]
fn one_call_is_not_kept_waiting_by_ten_thousand_of_another_party() {
    let queue = Queue::new(Some(1), MANY);
    let lane = queue.lane();
    let held = slot(lane.place(Some(1), &party("x")));
    let mut crowd: Vec<_> = (0..10_000).map(|_| waiting(lane.place(Some(1), &party("a")))).collect();
    let mut single = waiting(lane.place(Some(1), &party("b")));
    drop(held);
    drop((&mut crowd[0]).now_or_never().unwrap());
    drop((&mut single).now_or_never().expect("the other party is second"));
    drop((crowd, single));
    check_empty(&queue, &[lane]);
}

#[test]
fn lanes_take_turns_for_a_shared_slot() {
    let queue = Queue::new(Some(1), MANY);
    let (busy, quiet) = (queue.lane(), queue.lane());
    let calls = [(&busy, "a"), (&busy, "b"), (&busy, "c"), (&quiet, "z")];
    assert_eq!(order(&queue, None, &calls), ["a", "z", "b", "c"]);
    check_empty(&queue, &[busy, quiet]);
}

#[test]
fn a_lane_at_its_own_limit_keeps_no_other_lane_waiting_and_holds_no_shared_slot() {
    let queue = Queue::new(Some(2), MANY);
    let (busy, quiet) = (queue.lane(), queue.lane());
    let held = slot(busy.place(Some(1), &party("a")));
    let waiter = waiting(busy.place(Some(1), &party("a")));
    let other = slot(quiet.place(Some(5), &party("b")));
    let behind = waiting(quiet.place(None, &party("b")));
    drop(other);
    let other = behind.now_or_never().expect("the shared slot is free again");
    drop(other);
    drop(held);
    drop(waiter.now_or_never().expect("the lane's own slot is free again"));
    check_empty(&queue, &[busy, quiet]);
}

#[test]
fn nobody_overtakes_those_who_wait() {
    let queue = Queue::new(Some(1), MANY);
    let (one, two) = (queue.lane(), queue.lane());
    let held = slot(one.place(None, &party("a")));
    let first = waiting(one.place(None, &party("a")));
    drop(held);
    // The slot belongs to the first one now, although it has not looked yet.
    let second = waiting(two.place(None, &party("b")));
    let third = waiting(one.place(None, &party("c")));
    drop(first.now_or_never().unwrap());
    drop(second.now_or_never().unwrap());
    drop(third.now_or_never().unwrap());
    check_empty(&queue, &[one, two]);
}

#[test]
fn whoever_would_have_to_wait_in_a_full_queue_is_refused_at_once() {
    let queue = Queue::new(None, Bounds { per_tool: 2, in_all: 3 });
    let (one, two) = (queue.lane(), queue.lane());
    let held = (slot(one.place(Some(1), &party("a"))), slot(two.place(Some(1), &party("a"))));
    let waiters = [waiting(one.place(Some(1), &party("a"))), waiting(one.place(Some(1), &party("b")))];
    assert_eq!(one.place(Some(1), &party("c")).unwrap_err(), Full { bound: Bound::Tool, retry: RETRY });
    let last = waiting(two.place(Some(1), &party("a")));
    assert_eq!(two.place(Some(1), &party("c")).unwrap_err().bound, Bound::All);
    assert_eq!((one.queued(), two.queued(), queue.queued()), (2, 1, 3));
    drop(last);
    let again = waiting(two.place(Some(1), &party("c")));
    drop((waiters, again, held));
    check_empty(&queue, &[one, two]);

    let queue = Queue::new(None, Bounds { per_tool: 0, in_all: 0 });
    let lane = queue.lane();
    let held = slot(lane.place(Some(1), &party("a")));
    assert!(lane.place(Some(1), &party("a")).is_err());
    drop(held);
    drop(slot(lane.place(Some(1), &party("a"))));
    check_empty(&queue, &[lane]);
}

#[test]
fn whoever_stops_waiting_leaves_nothing_behind() {
    let queue = Queue::new(Some(1), MANY);
    let (one, two) = (queue.lane(), queue.lane());
    let held = slot(one.place(Some(1), &party("x")));
    let waiters: Vec<_> =
        (0..100).map(|at| waiting([&one, &two][at % 2].place(Some(1), &party(&format!("t{}", at % 7))))).collect();
    drop(waiters);
    assert!(queue.0.line.lock().unwrap().is_empty());
    drop(held);
    check_empty(&queue, &[one, two]);
}

#[test]
fn a_slot_given_to_somebody_who_leaves_goes_to_the_next() {
    let queue = Queue::new(Some(1), MANY);
    let lane = queue.lane();

    // Left after the slot arrived.
    let held = slot(lane.place(Some(1), &party("x")));
    let (first, second) = (waiting(lane.place(Some(1), &party("a"))), waiting(lane.place(Some(1), &party("b"))));
    drop(held);
    drop(first);
    let held = second.now_or_never().expect("it was passed on");

    // Left between being chosen and being handed the slot.
    let (first, second) = (waiting(lane.place(Some(1), &party("a"))), waiting(lane.place(Some(1), &party("b"))));
    lane.0.running.fetch_sub(1, SeqCst);
    queue.0.running.fetch_sub(1, SeqCst);
    let gifts = lane.line().serve(&lane);
    assert_eq!(gifts.len(), 1);
    drop(first);
    line::hand_out(gifts);
    drop(second.now_or_never().expect("it was passed on"));

    lane.0.running.fetch_add(1, SeqCst);
    queue.0.running.fetch_add(1, SeqCst);
    drop(held);
    check_empty(&queue, &[lane]);
}

#[test]
fn a_limit_may_change_from_call_to_call() {
    let queue = Queue::new(None, MANY);
    let lane = queue.lane();
    let held = slot(lane.place(Some(1), &party("a")));
    let early = waiting(lane.place(Some(1), &party("a")));
    // Raised: those who waited under the old limit go first.
    let late = slot(lane.place(Some(3), &party("b")));
    let early = early.now_or_never().expect("there are three slots now");
    // Lowered: nobody is stopped, but two must end before the next begins.
    let next = waiting(lane.place(Some(1), &party("a")));
    drop(held);
    drop(late);
    let mut next = Box::pin(next);
    assert!((&mut next).now_or_never().is_none());
    drop(early);
    let held = next.now_or_never().unwrap();
    // Lifted: whoever still waits is let in by the first call that says so.
    let waiter = waiting(lane.place(Some(1), &party("a")));
    let free = slot(lane.place(None, &party("b")));
    drop((waiter.now_or_never().unwrap(), free, held));
    check_empty(&queue, &[lane]);
    let free = [slot(queue.lane().place(None, &party("a"))), slot(queue.lane().place(None, &party("a")))];
    assert!(free.iter().all(|slot| slot.0.is_none()), "nothing is counted where nothing is limited");
}

#[test]
fn zero_slots_are_read_as_one() {
    let queue = Queue::new(Some(0), MANY);
    let lane = queue.lane();
    drop(slot(lane.place(Some(0), &party("a"))));
    check_empty(&queue, &[lane]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn equal_parties_get_equal_shares() {
    let queue = Queue::new(Some(2), MANY);
    let lane = queue.lane();
    let stop = Arc::new(AtomicBool::new(false));
    let held = [slot(lane.place(None, &party("x"))), slot(lane.place(None, &party("x")))];
    let counts: Vec<Arc<AtomicUsize>> = (0..4).map(|_| Arc::default()).collect();
    let mut tasks = Vec::new();
    // Each party always has calls waiting, but some have ten times as many.
    for (at, crowd) in [(0, 3), (1, 30), (2, 3), (3, 30)] {
        for _ in 0..crowd {
            let (lane, stop, count) = (lane.clone(), stop.clone(), counts[at].clone());
            tasks.push(tokio::spawn(async move {
                while !stop.load(Relaxed) {
                    let slot = match lane.place(Some(2), &party(&format!("p{at}"))).unwrap() {
                        Place::Slot(slot) => slot,
                        Place::Waiting(waiting) => waiting.await,
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
    while lane.queued() < 66 {
        tokio::task::yield_now().await;
    }
    drop(held);
    for task in tasks {
        task.await.unwrap();
    }
    let counts: Vec<_> = counts.iter().map(|count| count.load(Relaxed)).collect();
    // A party of three may miss a turn when all of its tasks are between two calls.
    assert!(counts.iter().all(|count| *count > 350), "{counts:?}");
    check_empty(&queue, &[lane]);
}

/// Waits for a number of polls at most. This stands for a deadline without reading a clock.
async fn give_up_after(polls: u32, mut waiting: Waiting) -> Option<Slot> {
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
    patience: u32,
}

/// Tasks on four threads take slots, give up waiting and drop slots in a random order; limits must hold at any time.
async fn stress(stress: Stress) {
    const TASKS: u64 = 64;
    let queue = Queue::new(stress.slots, Bounds { per_tool: 20, in_all: 40 });
    let lanes: Arc<[Lane]> = stress.limits.iter().map(|_| queue.lane()).collect();
    let seen: Arc<[AtomicUsize]> = lanes.iter().map(|_| AtomicUsize::new(0)).collect();
    let seen_in_all = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|seed| {
            let (lanes, seen, seen_in_all) = (lanes.clone(), seen.clone(), seen_in_all.clone());
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(seed);
                let who = party(&format!("t{}", seed % 5));
                for _ in 0..300 {
                    let at = random.usize(..lanes.len());
                    let limit = stress.limits[at];
                    let slot = match lanes[at].place(limit, &who) {
                        Ok(Place::Slot(slot)) => slot,
                        Ok(Place::Waiting(waiting)) if random.u8(..4) == 0 => {
                            match give_up_after(random.u32(..=stress.patience), waiting).await {
                                Some(slot) => slot,
                                None => continue,
                            }
                        }
                        Ok(Place::Waiting(waiting)) => waiting.await,
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
        stress(Stress { slots: Some(1), limits: &[None, None], patience }).await;
        stress(Stress { slots: None, limits: &[Some(1), Some(2)], patience }).await;
        stress(Stress { slots: Some(3), limits: &[Some(1), Some(2), Some(3), None], patience }).await;
        stress(Stress { slots: Some(6), limits: &[Some(1), Some(5)], patience }).await;
    }
}

/// One gives the only slot back while another asks for it, and then nobody else comes who could put things right.
fn race(slots: Option<usize>, limit: Option<usize>, lanes: usize) {
    const ROUNDS: usize = 10_000;
    let queue = Queue::new(slots, MANY);
    let lanes: Vec<_> = (0..lanes).map(|_| queue.lane()).collect();
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
            *handed.lock().unwrap() = Some(slot(giver.place(limit, &party("a"))));
            begun.store(round, SeqCst);
            dawdle(round % 31);
            let place = asker.place(limit, &party("b")).unwrap();
            reach(&ended, round);
            if let Place::Waiting(waiting) = place {
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
enum Step {
    Place { lane: usize, party: u8, limit: Option<usize> },
    Drop(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let limit = prop_oneof![Just(None), (1..4usize).prop_map(Some)];
    let place = (0..3usize, 0..4u8, limit).prop_map(|(lane, party, limit)| Step::Place { lane, party, limit });
    proptest::collection::vec(prop_oneof![place, (0..64usize).prop_map(Step::Drop)], 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn whatever_happens_nobody_waits_while_a_slot_is_free_for_it(
        all in prop_oneof![Just(None), (1..5usize).prop_map(Some)],
        steps in steps(),
    ) {
        let queue = Queue::new(all, Bounds { per_tool: 5, in_all: 10 });
        let lanes = [queue.lane(), queue.lane(), queue.lane()];
        let mut limits = [usize::MAX; 3];
        let mut held: Vec<(usize, Slot)> = Vec::new();
        let mut waiters: Vec<(usize, Waiting)> = Vec::new();
        for step in steps {
            match step {
                Step::Place { lane, party: who, limit } => {
                    limits[lane] = limit.unwrap_or(usize::MAX);
                    match lanes[lane].place(limit, &party(&who.to_string())) {
                        Ok(Place::Slot(slot)) => held.push((lane, slot)),
                        Ok(Place::Waiting(waiting)) => waiters.push((lane, waiting)),
                        Err(_) => prop_assert!(lanes[lane].queued() == 5 || queue.queued() == 10),
                    }
                }
                Step::Drop(at) if at < held.len() => drop(held.remove(at)),
                Step::Drop(at) => {
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
