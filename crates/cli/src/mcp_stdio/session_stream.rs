//! The event stream of a session, with notifications that belong to no request.

use std::{sync::Arc, time::Duration};

use toolhub_net::{
    Bytes, HeaderMap, Method,
    header::{ACCEPT, HeaderValue},
};

use super::{
    bridge::Bridge,
    exchange::{EventMessages, is_event_stream},
};

/// The delay before a stream that has ended is opened again, at first and at most.
const REOPEN_DELAY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// Say that a list may have changed.
const LISTS_CHANGED: [&str; 3] = [
    r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#,
];

impl Bridge {
    /// Holds the stream of the session, and opens it again when it ends.
    pub(super) async fn hold_stream(self: Arc<Self>) {
        let (mut delay, mut is_first) = (REOPEN_DELAY.0, true);
        loop {
            let (epoch, generation) = (self.hub.epoch(), self.session.generation());
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            self.session.add_headers(&mut headers);
            match self.endpoint.send(Method::GET, Bytes::new(), headers).await {
                Ok(response) if is_event_stream(&response) => {
                    if !is_first {
                        // A change may have been missed.
                        for notification in LISTS_CHANGED {
                            self.output.send(notification).await;
                        }
                    }
                    (delay, is_first) = (REOPEN_DELAY.0, false);
                    let mut messages = EventMessages::new(response);
                    while let Ok(Some(message)) = messages.next().await {
                        self.output.send(message).await;
                    }
                }
                Ok(response) if response.status == 404 => {
                    if self.recover_from_not_found(response, generation).await.is_err() {
                        delay = (delay * 2).min(REOPEN_DELAY.1);
                    }
                }
                Ok(_) => delay = (delay * 2).min(REOPEN_DELAY.1),
                Err(_) => drop(self.hub.reconnect(epoch).await),
            }
            tokio::time::sleep(delay).await;
        }
    }
}
