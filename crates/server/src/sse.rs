//! Streams of events to browsers and programs, as server-sent events.
//!
//! In: events, one after another. Out: an answer that goes on until they end, the listener leaves, the server goes away, or there
//! is an event for a listener whose key does not hold any more. A comment every quarter of a minute shows that it lives; a listener that was cut off comes back after two seconds.

use std::{convert::Infallible, future::ready, time::Duration};

use axum::{
    http::HeaderValue,
    response::{
        IntoResponse, Response, Sse,
        sse::{Event, KeepAlive},
    },
};
use futures_util::{Stream, StreamExt};
use serde::Serialize;

use crate::{app::App, scope::Principal, settings::Auth};

/// How soon a listener that was cut off may come back.
const RECONNECT_DELAY: Duration = Duration::from_secs(2);
/// How often a silent stream shows that it lives.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// An event as it is sent.
pub(crate) fn event(id: Option<u64>, name: &str, data: &impl Serialize) -> Event {
    // JSON has no line breaks outside of its escapes, so the data is one line.
    let event = Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default());
    match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    }
}

/// The answer that sends these to somebody.
pub(crate) fn stream(app: &App, who: Principal, events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let hello = futures_util::stream::iter([Event::default().retry(RECONNECT_DELAY)]);
    let here = app.clone();
    let events = events.take_while(move |_| ready(is_still_authorized(&here, &who)));
    let events = hello.chain(events).take_until(app.stopping().clone().cancelled_owned()).map(Ok::<_, Infallible>);
    let alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL).text("ka");
    let mut response = Sse::new(events).keep_alive(alive).into_response();
    // A proxy that collects answers would keep all of it to itself.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Whether somebody who was let in would be let in now.
fn is_still_authorized(app: &App, who: &Principal) -> bool {
    matches!(app.settings().auth, Auth::Local) || app.keys().is_still_valid(who, app.now())
}
