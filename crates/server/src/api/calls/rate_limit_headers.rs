//! What is left of a tool's rates, as headers (`RateLimit-Policy`, `RateLimit`).
//!
//! In: rates. Out: `"weather";q=60;w=60` for what holds and `"weather";r=12;t=48` for what is left and in how many seconds all of
//! it is there again. Nothing for a tool that is not limited.

use axum::http::{HeaderMap, HeaderValue};
use toolhub_core::RateLeft;

/// Says what is left.
pub(super) fn insert_headers(rates: &[RateLeft], headers: &mut HeaderMap) {
    if rates.is_empty() {
        return;
    }
    let policy = |rate: &RateLeft| {
        let (RateLeft { name, limit, .. }, window) = (rate, rate.limit.per.as_secs_f64().ceil());
        format!("\"{name}\";q={};w={window}", limit.requests)
    };
    let left =
        |rate: &RateLeft| format!("\"{}\";r={};t={}", rate.name, rate.remaining, rate.resets_in.as_secs_f64().ceil());
    for (header, lines) in [("ratelimit-policy", join_items(rates, policy)), ("ratelimit", join_items(rates, left))] {
        if let Ok(value) = HeaderValue::try_from(lines) {
            headers.insert(header, value);
        }
    }
}

fn join_items(rates: &[RateLeft], line: impl Fn(&RateLeft) -> String) -> String {
    rates.iter().map(line).collect::<Vec<_>>().join(", ")
}
