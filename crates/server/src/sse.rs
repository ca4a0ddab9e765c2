//! Server-sent event streams.
//!
//! In: a stream of events. Out: a response that lasts until the events end, the client disconnects, the server shuts
//! down, or the client's key or login ends. A comment every 15 seconds keeps the connection
//! alive; a disconnected client reconnects after two seconds.

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

use crate::{
    app::App,
    connections::{KEEP_ALIVE_INTERVAL, StreamHolder},
    links::Links,
    scope::Principal,
    settings::Auth,
};

/// When a disconnected client should reconnect.
const RECONNECT_DELAY: Duration = Duration::from_secs(2);

/// How often a stream without events asks whether the client's key is still valid.
const KEY_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// An event in the SSE format.
pub(crate) fn event(id: Option<u64>, name: &str, data: &impl Serialize) -> Event {
    // JSON has no line breaks outside of its escapes, so the data is one line.
    let event = Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default());
    match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    }
}

/// An event of the hub. The request for an approval gets the link to its page.
pub(crate) fn hub_event(id: Option<u64>, name: &str, data: &impl Serialize, links: &Links) -> Event {
    if name != "approval.requested" {
        return event(id, name, data);
    }
    let mut data = serde_json::to_value(data).unwrap_or_default();
    if let Some(approval) = data["approvalId"].as_str().and_then(|approval| approval.parse().ok()) {
        data["url"] = links.approval(approval).into();
    }
    event(id, name, &data)
}

/// The response that streams these events to a client.
pub(crate) fn stream(app: &App, principal: Principal, events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let retry = futures_util::stream::iter([Event::default().retry(RECONNECT_DELAY)]);
    let holder = StreamHolder::of_key(&principal);
    let events = end_with_key(app, principal, events);
    let events = retry.chain(events).take_until(app.stopping().clone().cancelled_owned()).map(Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL).text("ka");
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // A buffering proxy would hold the events back.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response.extensions_mut().insert(holder);
    response
}

/// Ends a stream with the client's key or login: before the next item, and if there is none, within a second.
pub(crate) fn end_with_key<T: Send + Sync + 'static>(
    app: &App,
    principal: Principal,
    items: impl Stream<Item = T> + Send + 'static,
) -> impl Stream<Item = T> + Send + 'static {
    let (app, waiting_app, waiting_principal) = (app.clone(), app.clone(), principal.clone());
    let ended = async move {
        if waiting_app.settings().auth == Auth::Local {
            return std::future::pending().await;
        }
        while is_still_authorized(&waiting_app, &waiting_principal) {
            tokio::time::sleep(KEY_CHECK_INTERVAL).await;
        }
    };
    items.take_while(move |_| ready(is_still_authorized(&app, &principal))).take_until(ended)
}

/// Whether the client's key is still valid.
fn is_still_authorized(app: &App, principal: &Principal) -> bool {
    matches!(app.settings().auth, Auth::Local) || app.keys().is_still_valid(principal, app.now())
}
