//! The headers of answers that say what the body does not.
//!
//! In: a route, one of its statuses, and which parameters it takes. Out: their description. Most of them follow from what a
//! route takes; the others it names itself, with `Route::gives`. What every answer has, and what only browsers read, is left out.

use serde_json::{Map, Value, json};

use crate::route::Route;

/// The headers an answer of this status may have.
pub(super) fn response_headers(route: &Route, status: &str, takes: impl Fn(&str) -> bool) -> Map<String, Value> {
    let good = status.starts_with('2');
    let usual = [
        (good && takes("cursor"), "Link", "The address of the next page, as `rel=\"next\"`; none on the last."),
        (good && takes("Idempotency-Key"), "Idempotency-Replayed", "`true`: this is the answer to an earlier request."),
        (good && takes("Prefer"), "Preference-Applied", "Which of the preferences were heeded."),
        (status == "202" && takes("Prefer"), "Location", "Where to look for the end."),
        (status == "401", "WWW-Authenticate", "How to say who you are."),
        (matches!(status, "429" | "503"), "Retry-After", "In how many seconds to try again, where that is known."),
    ];
    let usual = usual.into_iter().filter(|(has, ..)| *has).map(|(_, name, what)| (name, what));
    let own =
        route.response_headers.iter().filter(|(statuses, ..)| statuses.iter().any(|one| one.to_string() == status));
    let own = own.map(|(_, name, what)| (*name, *what));
    let described = |(name, what): (&str, &str)| {
        let (name, schema) = (name.to_owned(), json!({"type": "string"}));
        (name, json!({ "description": what, "schema": schema }))
    };
    usual.chain(own).map(described).collect()
}
