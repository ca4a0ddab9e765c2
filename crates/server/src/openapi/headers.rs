//! Response headers in the OpenAPI document.
//!
//! In: a route, one of its statuses, and the parameters it has. Out: the description of the headers. Most follow from
//! the parameters; a route adds others with `Route::response_header`. Headers that every response has, and those only
//! browsers use, are left out.

use serde_json::{Map, Value, json};

use crate::route::Route;

/// The headers that a response of this status may have.
pub(super) fn response_headers(
    route: &Route,
    status: &str,
    has_parameter: impl Fn(&str) -> bool,
) -> Map<String, Value> {
    let is_success = status.starts_with('2');
    let common = [
        (
            is_success && has_parameter("cursor"),
            "Link",
            "The URL of the next page, as `rel=\"next\"`; absent on the last page.",
        ),
        (
            is_success && has_parameter("Idempotency-Key"),
            "Idempotency-Replayed",
            "`true`: this is the stored response to an earlier request.",
        ),
        (is_success && has_parameter("Prefer"), "Preference-Applied", "The preferences that were applied."),
        (status == "202" && has_parameter("Prefer"), "Location", "The URL to poll for the result."),
        (status == "401", "WWW-Authenticate", "The authentication scheme."),
        (matches!(status, "429" | "503"), "Retry-After", "Seconds to wait before a retry, if known."),
    ];
    let common = common.into_iter().filter(|(applies, ..)| *applies).map(|(_, name, description)| (name, description));
    let own = route
        .response_headers
        .iter()
        .filter(|(statuses, ..)| statuses.iter().any(|listed| listed.to_string() == status));
    let own = own.map(|(_, name, description)| (*name, *description));
    let described = |(name, description): (&str, &str)| {
        let (name, schema) = (name.to_owned(), json!({"type": "string"}));
        (name, json!({ "description": description, "schema": schema }))
    };
    common.chain(own).map(described).collect()
}
