//! Unit and property tests of the result cache: expiry, eviction and bounds.

use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use toolhub_storage::backend::RowVersion;
use toolhub_types::ids::{Tenant, ThreadId};

const SECOND: Duration = Duration::from_secs(1);

fn name(text: &str) -> ToolName {
    ToolName::new(text).unwrap()
}

fn key(tool: &str, arguments: &Value) -> Fingerprint {
    Fingerprint::of(&Tenant::default(), ToolIdentity { name: &name(tool), definition: "" }, arguments)
}

fn result(output: impl Into<Value>) -> Arc<CachedResult> {
    Arc::new(CachedResult { output: output.into(), content: Vec::new() })
}

#[track_caller]
fn check(cache: &ResultCache, key: &Fingerprint, now: Instant, expected: Option<i32>) {
    assert_eq!(cache.get(key, now).map(|result| result.output.clone()), expected.map(Value::from));
}

#[tokio::test(start_paused = true)]
async fn an_answer_holds_until_its_time_is_over_and_not_a_moment_longer() {
    let (cache, key, now) = (ResultCache::new(10, 1 << 20), key("a", &json!({})), Instant::now());
    check(&cache, &key, now, None);
    cache.put(key.clone(), result(1), SECOND, now);
    check(&cache, &key, now + SECOND - Duration::from_nanos(1), Some(1));
    check(&cache, &key, now + SECOND, None);
    cache.put(key.clone(), result(2), Duration::MAX, now);
    check(&cache, &key, now + SECOND * 3600, Some(2));
    cache.put(key.clone(), result(3), Duration::ZERO, now);
    check(&cache, &key, now, None);
}

#[tokio::test(start_paused = true)]
async fn when_full_those_over_go_first_and_then_the_oldest() {
    let (cache, now) = (ResultCache::new(3, 1 << 20), Instant::now());
    let keys: Vec<_> = (0..6).map(|n| key("a", &json!({"n": n}))).collect();
    let put = |n: usize, seconds: u32, now| cache.put(keys[n].clone(), result(n), SECOND * seconds, now);
    put(0, 100, now);
    put(1, 1, now);
    put(2, 100, now);
    put(3, 100, now + SECOND);
    check(&cache, &keys[0], now + SECOND, Some(0));
    check(&cache, &keys[1], now, None);
    put(4, 100, now + SECOND);
    check(&cache, &keys[0], now + SECOND, None);
    // Replacing an entry makes it the newest.
    put(2, 100, now + SECOND);
    put(5, 100, now + SECOND);
    check(&cache, &keys[2], now + SECOND, Some(2));
    check(&cache, &keys[3], now + SECOND, None);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_too_large_is_not_kept_nor_is_the_one_before_it() {
    let (cache, key, now) = (ResultCache::new(10, 16 * 4_096), key("a", &json!({})), Instant::now());
    cache.put(key.clone(), result(1), SECOND, now);
    check(&cache, &key, now, Some(1));
    cache.put(key.clone(), result("x".repeat(4_096)), SECOND, now);
    check(&cache, &key, now, None);
    cache.put(key.clone(), result("x".repeat(3_000)), SECOND, now);
    assert!(cache.get(&key, now).is_some());
    let disabled = ResultCache::new(0, 0);
    disabled.put(key.clone(), result(1), SECOND, now);
    check(&disabled, &key, now, None);
}

#[tokio::test(start_paused = true)]
async fn what_is_over_is_given_back_before_all_is_full() {
    let (cache, now) = (ResultCache::new(1_000, 1 << 20), Instant::now());
    (0..100).for_each(|n| cache.put(key("a", &json!(n)), result(n), SECOND, now));
    (0..30).for_each(|n| cache.put(key("b", &json!(n)), result(n), SECOND, now + SECOND));
    assert_eq!(cache.lock().entries.len(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_tool_can_be_forgotten() {
    let (cache, now) = (ResultCache::new(10, 1 << 20), Instant::now());
    let (one, two, other) = (key("a", &json!(1)), key("a", &json!(2)), key("b", &json!(1)));
    for key in [&one, &two, &other] {
        cache.put(key.clone(), result(1), SECOND, now);
    }
    cache.forget_tool(&ToolName::new("a").unwrap());
    check(&cache, &one, now, None);
    check(&cache, &two, now, None);
    check(&cache, &other, now, Some(1));
}

#[test]
fn a_fingerprint_changes_with_everything_the_answer_depends_on() {
    let (tenant, a) = (Tenant::default(), name("a"));
    let [plain, changed, other] = ["a", "a changed", "b"].map(|definition| ToolIdentity { name: &a, definition });
    let thread = |name: &str| ThreadId::new(name).unwrap();
    let version = |number, stamp| Some(RowVersion { number, stamp });
    let arguments = json!({"x": 1, "y": 2});
    let in_thread = |name: &str, states: &[(&str, Option<RowVersion>)]| {
        Fingerprint::in_thread(&tenant, plain, &arguments, &thread(name), states)
    };
    let all = [
        Fingerprint::of(&tenant, plain, &arguments),
        Fingerprint::of(&Tenant::new("other").unwrap(), plain, &arguments),
        Fingerprint::of(&tenant, changed, &arguments),
        Fingerprint::of(&tenant, other, &arguments),
        Fingerprint::of(&tenant, plain, &json!({"x": 1, "y": 3})),
        in_thread("t", &[]),
        in_thread("u", &[]),
        in_thread("t", &[("cart", None)]),
        in_thread("t", &[("cart", version(1, 7))]),
        in_thread("t", &[("cart", version(2, 7))]),
        in_thread("t", &[("cart", version(1, 8))]),
        in_thread("t", &[("cart", version(1, 7)), ("user", None)]),
    ];
    for (index, one) in all.iter().enumerate() {
        assert!(all[..index].iter().all(|other| other != one), "fingerprint {index} is a duplicate");
    }
    let reordered: Value = serde_json::from_str(r#"{"y":2,"x":1}"#).unwrap();
    assert_eq!(Fingerprint::of(&tenant, plain, &reordered), all[0]);
    assert_eq!(in_thread("t", &[("user", None), ("cart", version(1, 7))]), all[11]);
}

/// Checks that the indexes are consistent and the limits hold.
fn check_bounds(cache: &ResultCache) -> Result<(), TestCaseError> {
    let inner = cache.lock();
    prop_assert!(inner.entries.len() <= cache.max_entries);
    prop_assert!(inner.bytes <= cache.max_bytes);
    prop_assert_eq!(inner.bytes, inner.entries.values().map(|entry| entry.bytes).sum::<usize>());
    prop_assert_eq!(inner.entries.len(), inner.by_expiry.len());
    Ok(())
}

#[derive(Debug, Clone)]
enum Step {
    Put { key: usize, size: usize, seconds: u32 },
    Forget { tool: usize },
    Wait { seconds: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..24usize, 0..3_000usize, 0..20u32).prop_map(|(key, size, seconds)| Step::Put { key, size, seconds }),
        1 => (0..3usize).prop_map(|tool| Step::Forget { tool }),
        4 => (0..8u32).prop_map(|seconds| Step::Wait { seconds }),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_bounds_always_hold_and_no_answer_is_wrong_or_over(
        steps in steps(), entries in 0..20usize, bytes in 0..40_000usize,
    ) {
        let tools = ["a", "b", "c"];
        let keys: Vec<_> = (0..24).map(|n| key(tools[n % 3], &json!(n))).collect();
        let cache = ResultCache::new(entries, bytes);
        // The real clock is only the start; the steps advance the time.
        let mut now = Instant::now();
        let mut latest: HashMap<usize, (Arc<CachedResult>, Instant)> = HashMap::new();
        for step in steps {
            match step {
                Step::Put { key, size, seconds } => {
                    let result = result("x".repeat(size));
                    cache.put(keys[key].clone(), result.clone(), SECOND * seconds, now);
                    latest.insert(key, (result, now + SECOND * seconds));
                }
                Step::Forget { tool } => {
                    cache.forget_tool(&ToolName::new(tools[tool]).unwrap());
                    latest.retain(|key, _| key % 3 != tool);
                }
                Step::Wait { seconds } => now += SECOND * seconds,
            }
            check_bounds(&cache)?;
            for (at, key) in keys.iter().enumerate() {
                if let Some(found) = cache.get(key, now) {
                    let (expected, ends) = latest.get(&at).expect("only results that were put and not removed are found");
                    prop_assert!(Arc::ptr_eq(&found, expected), "an older result was found");
                    prop_assert!(*ends > now, "an expired result was found");
                }
            }
        }
    }

    #[test]
    fn with_room_for_all_nothing_is_lost_before_its_time(steps in steps()) {
        let cache = ResultCache::new(24, 16 * 8_192);
        let keys: Vec<_> = (0..24).map(|n| key("a", &json!(n))).collect();
        let mut now = Instant::now();
        let mut ends: HashMap<usize, Instant> = HashMap::new();
        for step in steps {
            match step {
                Step::Put { key, size, seconds } => {
                    cache.put(keys[key].clone(), result("x".repeat(size)), SECOND * seconds, now);
                    ends.insert(key, now + SECOND * seconds);
                }
                Step::Forget { .. } => {}
                Step::Wait { seconds } => now += SECOND * seconds,
            }
            for (at, key) in keys.iter().enumerate() {
                let expected = ends.get(&at).is_some_and(|ends| *ends > now);
                prop_assert_eq!(cache.get(key, now).is_some(), expected);
            }
        }
    }
}
