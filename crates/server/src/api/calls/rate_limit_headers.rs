//! The headers `RateLimit-Policy` and `RateLimit`.
//!
//! In: the rate quotas of a tool. Out: `"weather";q=60;w=60` for the policy, and `"weather";r=12;t=48` for the
//! remaining requests and the seconds until the full quota is available again. No headers for a tool without limits.

use axum::http::{HeaderMap, HeaderValue};
use toolhub_core::RateQuota;

/// Inserts the headers.
pub(super) fn insert_headers(rates: &[RateQuota], headers: &mut HeaderMap) {
    if rates.is_empty() {
        return;
    }
    let policy = |rate: &RateQuota| {
        let (RateQuota { name, limit, .. }, window) = (rate, rate.limit.per.as_secs_f64().ceil());
        format!("\"{name}\";q={};w={window}", limit.requests)
    };
    let quota =
        |rate: &RateQuota| format!("\"{}\";r={};t={}", rate.name, rate.remaining, rate.resets_in.as_secs_f64().ceil());
    for (header, value) in [("ratelimit-policy", join_items(rates, policy)), ("ratelimit", join_items(rates, quota))] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(header, value);
        }
    }
}

fn join_items(rates: &[RateQuota], format_item: impl Fn(&RateQuota) -> String) -> String {
    rates.iter().map(format_item).collect::<Vec<_>>().join(", ")
}
