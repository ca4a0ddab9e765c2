//! Sends notifications of the client, and its answers to requests of the server.

use std::sync::{Arc, atomic::Ordering};

use tokio::sync::mpsc;

use super::{
    bridge::{Bridge, MAX_ATTEMPTS},
    exchange::read_text,
    message::Message,
};

impl Bridge {
    /// Sends notifications and answers, one after the other.
    pub(super) async fn send_notices(self: Arc<Self>, mut queue: mpsc::Receiver<Option<Message>>) {
        while let Some(Some(message)) = queue.recv().await {
            for _ in 0..MAX_ATTEMPTS {
                let (epoch, generation) = (self.hub.epoch(), self.session.generation());
                let sent = tokio::select! {
                    sent = self.post(&message) => sent,
                    // It must not block those behind it.
                    _ = self.hub.unresponsive() => break,
                };
                let is_sent = match sent {
                    Err(_) => self.hub.reconnect(epoch).await.is_err(),
                    Ok(response) if response.status == 404 && self.session.is_open() => {
                        self.recover_from_not_found(response, generation).await.is_err()
                    }
                    Ok(response) => {
                        drop(read_text(response).await);
                        true
                    }
                };
                if is_sent {
                    break;
                }
            }
            let is_initialized = message.method() == "notifications/initialized";
            if is_initialized && self.session.is_open() && !self.has_stream.swap(true, Ordering::AcqRel) {
                let stream = self.clone().hold_stream();
                // Not one of `tasks`: it ends only with the bridge.
                tokio::spawn(self.stopping.clone().run_until_cancelled_owned(stream));
            }
        }
    }
}
