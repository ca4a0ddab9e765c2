//! Bursts, exact waits, atomic charging, refunds, pruning.

use proptest::prelude::*;

use super::*;

const NANO: Duration = Duration::from_nanos(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn subject(thread: &str, caller: &str) -> Subject<'static> {
    let thread = (!thread.is_empty()).then(|| &*Box::leak(Box::new(ThreadId::new(thread).unwrap())));
    let (tenant, caller) = (Tenant::default(), Caller::new(caller).unwrap());
    Subject { tenant: Box::leak(Box::new(tenant)), thread, caller: Box::leak(Box::new(caller)) }
}

fn any_subject() -> Subject<'static> {
    subject("t", "c")
}

/// How many calls pass at this instant.
fn count_passed(limiter: &Limiter, limits: &[RateLimit], subject: Subject<'_>, now: Instant) -> usize {
    (0..1_000)
        .take_while(|_| limiter.reserve(limits, subject, now).is_ok_and(|reservation| reservation.wait.is_zero()))
        .count()
}

#[test]
fn a_burst_passes_at_once_and_then_calls_pass_at_the_rate() {
    let cases = [
        (RateLimit::per_second(10), 10, ms(100)),
        (RateLimit::per_second(10).burst(3), 3, ms(100)),
        (RateLimit::per_minute(6).burst(1), 1, ms(10_000)),
        (RateLimit::per_second(1).burst(5), 5, ms(1_000)),
        (RateLimit::per_second(3), 3, Duration::from_nanos(333_333_334)),
    ];
    for (limit, burst, interval) in cases {
        let (limiter, limits, start) = (Limiter::default(), [limit], Instant::now());
        assert_eq!(count_passed(&limiter, &limits, any_subject(), start), burst, "{limits:?}");
        assert_eq!(count_passed(&limiter, &limits, any_subject(), start + interval - NANO), 0, "{limits:?}");
        assert_eq!(count_passed(&limiter, &limits, any_subject(), start + interval), 1, "{limits:?}");
        assert_eq!(count_passed(&limiter, &limits, any_subject(), start + interval * 3), 2.min(burst), "{limits:?}");
        // However long the limit was idle, no more than a burst has accumulated.
        assert_eq!(count_passed(&limiter, &limits, any_subject(), start + interval * 1_000), burst, "{limits:?}");
    }
}

#[test]
fn a_refusal_gives_the_retry_time_to_the_nanosecond() {
    let waiting = RateLimit::per_second(7).burst(2).wait(ms(200));
    for limits in [
        vec![RateLimit::per_second(7)],
        vec![RateLimit::per_second(7).burst(1), RateLimit::per_minute(5)],
        vec![waiting.clone()],
        vec![waiting, RateLimit::per_hour(11).burst(2)],
    ] {
        let (limiter, mut now) = (Limiter::default(), Instant::now());
        for _ in 0..20 {
            let Err(exceeded) = limiter.reserve(&limits, any_subject(), now) else { continue };
            let early = limiter.reserve(&limits, any_subject(), now + exceeded.retry_after - NANO);
            assert_eq!(early.unwrap_err(), RateExceeded { retry_after: NANO, ..exceeded }, "{limits:?}");
            now += exceeded.retry_after;
            let reservation = limiter.reserve(&limits, any_subject(), now).unwrap();
            assert!(reservation.wait <= limits.iter().map(RateLimit::max_wait).max().unwrap());
        }
    }
}

#[test]
fn a_refusal_by_one_limit_takes_nothing_from_the_others() {
    let (limiter, now) = (Limiter::default(), Instant::now());
    let limits = [RateLimit::per_second(10), RateLimit::per_minute(2).each_thread()];
    assert_eq!(count_passed(&limiter, &limits, subject("a", "c"), now), 2);
    for _ in 0..50 {
        assert_eq!(limiter.reserve(&limits, subject("a", "c"), now).unwrap_err().limit_index, 1);
    }
    assert_eq!(limiter.quotas(&limits, subject("b", "c"), now)[0].remaining, 8);
    assert_eq!(count_passed(&limiter, &limits, subject("b", "c"), now), 2);
    assert_eq!(count_passed(&limiter, &limits, subject("c", "c"), now), 2);
}

#[test]
fn each_scope_limits_its_own_subjects() {
    let now = Instant::now();
    let other = Subject { tenant: &Tenant::new("other").unwrap(), ..subject("a", "k") };
    // The subjects in order, and which of them pass if each key has one call.
    let subjects = [subject("a", "k"), subject("a", "l"), subject("b", "k"), subject("", "k"), subject("", "l"), other];
    let cases = [
        (RateLimit::per_hour(1), [true, false, false, false, false, false]),
        (RateLimit::per_hour(1).each_thread(), [true, false, true, true, false, true]),
        (RateLimit::per_hour(1).each_caller(), [true, true, false, false, false, true]),
    ];
    for (limit, expected) in cases {
        let (limiter, limits) = (Limiter::default(), [limit]);
        let passed = subjects.map(|subject| limiter.reserve(&limits, subject, now).is_ok());
        assert_eq!(passed, expected, "{limits:?}");
    }
}

#[test]
fn reservations_are_spaced_and_bounded() {
    let (limiter, now) = (Limiter::default(), Instant::now());
    let limits = [RateLimit::per_second(10).burst(2).wait(ms(300))];
    let waits: Vec<_> = std::iter::from_fn(|| limiter.reserve(&limits, any_subject(), now).ok())
        .map(|reservation| reservation.wait)
        .collect();
    assert_eq!(waits, [ms(0), ms(0), ms(100), ms(200), ms(300)]);
    assert_eq!(limiter.reserve(&limits, any_subject(), now).unwrap_err().retry_after, ms(100));
    assert_eq!(limiter.reserve(&limits, any_subject(), now + ms(150)).unwrap().wait, ms(250));
}

#[test]
fn a_returned_permit_can_be_taken_again() {
    let (limiter, now) = (Limiter::default(), Instant::now());
    let limits = [RateLimit::per_hour(2), RateLimit::per_hour(2).burst(1).each_thread()];
    for _ in 0..10 {
        let reservation = limiter.reserve(&limits, any_subject(), now).unwrap();
        limiter.refund(reservation.permit);
    }
    assert_eq!(
        limiter.quotas(&limits, any_subject(), now).iter().map(|quota| quota.remaining).collect::<Vec<_>>(),
        [2, 1]
    );

    let reservations = ["a", "b"].map(|thread| limiter.reserve(&limits, subject(thread, "c"), now).unwrap());
    assert!(limiter.reserve(&limits, subject("c", "c"), now).is_err());
    for reservation in reservations.into_iter().rev() {
        limiter.refund(reservation.permit);
    }
    assert_eq!(limiter.quotas(&limits, subject("a", "c"), now)[0].remaining, 2);
}

#[test]
fn permits_can_be_returned_in_any_order() {
    let (limiter, now) = (Limiter::default(), Instant::now());
    let limits = [RateLimit::per_minute(10), RateLimit::per_minute(20), RateLimit::per_minute(10)];
    let remaining =
        || limiter.quotas(&limits, any_subject(), now).iter().map(|quota| quota.remaining).collect::<Vec<_>>();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let mut reservations = [0; 4].map(|_| Some(limiter.reserve(&limits, any_subject(), now).unwrap()));
        assert_eq!(remaining(), [6, 16, 6]);
        for index in order {
            limiter.refund(reservations[index].take().unwrap().permit);
        }
        assert_eq!(remaining(), [10, 20, 10], "{order:?}");
    }
    // A charge that is not refunded keeps the ones before it charged.
    let [first, middle, last] = [0; 3].map(|_| limiter.reserve(&limits, any_subject(), now).unwrap());
    limiter.refund(first.permit);
    limiter.refund(last.permit);
    assert_eq!(remaining(), [8, 18, 8]);
    limiter.refund(middle.permit);
    assert_eq!(remaining(), [10, 20, 10]);
}

#[test]
fn a_returned_permit_with_later_reservations_is_not_issued_twice() {
    let (limiter, start) = (Limiter::default(), Instant::now());
    let limits = [RateLimit::per_second(10).burst(2)];
    let reservation = limiter.reserve(&limits, any_subject(), start).unwrap();
    // By now the first charge is paid back, so a refund would allow a third call at this instant.
    let now = start + ms(100);
    assert!(limiter.reserve(&limits, any_subject(), now).is_ok());
    limiter.refund(reservation.permit);
    assert_eq!(count_passed(&limiter, &limits, any_subject(), now), 1);
}

#[test]
fn usage_is_kept_when_the_limits_change() {
    let (limiter, now) = (Limiter::default(), Instant::now());
    assert_eq!(count_passed(&limiter, &[RateLimit::per_minute(10)], any_subject(), now), 10);
    // More requests in the same period: the additional quota is available, the used one stays used.
    assert_eq!(count_passed(&limiter, &[RateLimit::per_second(5), RateLimit::per_minute(20)], any_subject(), now), 0);
    assert_eq!(count_passed(&limiter, &[RateLimit::per_minute(20)], any_subject(), now + ms(3_000)), 1);

    // A limit that was narrowed blocks no key for longer than the narrow limit allows.
    let limiter = Limiter::default();
    assert_eq!(count_passed(&limiter, &[RateLimit::per_hour(3600).burst(1_000)], any_subject(), now), 1_000);
    let narrow = [RateLimit::per_hour(3600).burst(1)];
    assert_eq!(limiter.reserve(&narrow, any_subject(), now).unwrap_err().retry_after, ms(1_000));
    assert!(limiter.reserve(&narrow, any_subject(), now + ms(1_000)).is_ok());
}

#[test]
fn the_remaining_quota_is_reported() {
    let (limiter, now) = (Limiter::default(), Instant::now());
    let limits = [RateLimit::per_second(10).burst(3)];
    assert_eq!(
        limiter.quotas(&limits, any_subject(), now),
        [Quota { limit_index: 0, remaining: 3, resets_in: ms(0) }],
        "reading the quota charges nothing"
    );
    let _used =
        [limiter.reserve(&limits, any_subject(), now).unwrap(), limiter.reserve(&limits, any_subject(), now).unwrap()];
    assert_eq!(
        limiter.quotas(&limits, any_subject(), now),
        [Quota { limit_index: 0, remaining: 1, resets_in: ms(200) }]
    );
    assert_eq!(
        limiter.quotas(&limits, any_subject(), now + ms(150)),
        [Quota { limit_index: 0, remaining: 2, resets_in: ms(50) }]
    );
    assert!(limiter.quotas(&[], any_subject(), now).is_empty());
}

#[test]
fn idle_subjects_are_removed() {
    let (limiter, mut now) = (Limiter::default(), Instant::now());
    let limits = [RateLimit::per_second(1).each_thread(), RateLimit::per_second(1).each_caller()];
    let tracked =
        |limiter: &Limiter| limiter.0.lock().unwrap().iter().map(GcraState::tracked_keys).max().unwrap_or_default();
    let mut max_tracked = 0;
    for thread in 0..50_000 {
        now += ms(1);
        let subject = subject(&format!("t{thread}"), &format!("c{thread}"));
        assert!(limiter.reserve(&limits, subject, now).is_ok());
        max_tracked = max_tracked.max(tracked(&limiter));
    }
    // A thousand of them have a TAT in the future at any time.
    assert!(max_tracked <= 2_100, "{max_tracked}");
    assert!(limiter.reserve(&limits, any_subject(), now + ms(10_000)).is_ok());
    assert_eq!(tracked(&limiter), 1);
}

#[test]
fn extreme_settings_neither_panic_nor_block_forever() {
    let now = Instant::now();
    for limit in [
        RateLimit::new(0, Duration::ZERO).burst(0),
        RateLimit::new(u32::MAX, NANO),
        RateLimit::new(1, Duration::MAX).burst(u32::MAX).wait(Duration::MAX),
        RateLimit::new(u32::MAX, Duration::MAX),
    ] {
        let (limiter, limits) = (Limiter::default(), [limit]);
        for _ in 0..10 {
            let _either = limiter.reserve(&limits, any_subject(), now);
            let _quotas = limiter.quotas(&limits, any_subject(), now);
        }
        let later = now + Duration::from_secs(366 * 24 * 3600);
        assert!(limiter.reserve(&limits, any_subject(), later).is_ok(), "{limits:?}");
    }
}

/// Whether one more call may start at `start`, by checking every window that ends there.
fn may_pass(past: &[Instant], start: Instant, burst: u32, interval: Duration) -> bool {
    past.iter().enumerate().all(|(index, from)| {
        let in_window = (past.len() - index + 1) as u128;
        // in_window <= burst + window / interval, without rounding.
        let room = u128::from(burst) * interval.as_nanos() + start.duration_since(*from).as_nanos();
        in_window * interval.as_nanos() <= room
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn exactly_as_many_pass_as_a_list_of_all_past_calls_allows(
        requests in 1..20u32,
        burst in proptest::option::of(1..6u32),
        at_most in prop_oneof![Just(0u64), 1..500u64],
        arrivals in proptest::collection::vec((0..200u64, 0..10u8), 1..120),
    ) {
        let mut limit = RateLimit::per_second(requests).wait(ms(at_most));
        limit.burst = burst;
        let (burst, interval) = (limit.burst_size(), limit.interval());
        let (limiter, limits, mut now) = (Limiter::default(), [limit], Instant::now());
        let mut past: Vec<Instant> = Vec::new();
        for (pause, fate) in arrivals {
            // Half of the calls arrive at the same instant.
            now += ms(pause.saturating_sub(100));
            match limiter.reserve(&limits, any_subject(), now) {
                Ok(reservation) => {
                    let start = now + reservation.wait;
                    prop_assert!(may_pass(&past, start, burst, interval));
                    prop_assert!(
                        reservation.wait.is_zero() || !may_pass(&past, (start - NANO).max(*past.last().unwrap()), burst, interval)
                    );
                    if fate == 0 { limiter.refund(reservation.permit) } else { past.push(start) }
                }
                Err(exceeded) => {
                    let start = now + exceeded.retry_after + ms(at_most);
                    prop_assert!(may_pass(&past, start, burst, interval));
                    prop_assert!(!may_pass(&past, start - NANO, burst, interval));
                }
            }
        }
    }
}
