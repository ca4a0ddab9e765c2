//! A channel that keeps what it is sent, and answers as a test says.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use toolhub::{
    BoxFuture,
    alerts::{AlertChannel, AlertMessage, AlertResponse, AlertSendError},
    clock::Timestamp,
};

/// The messages that a target took, and all attempts.
#[derive(Clone, Default)]
pub(super) struct Receiver(Arc<Inner>);

#[derive(Default)]
struct Inner {
    answer: Mutex<Answer>,
    attempts: Mutex<Vec<(AlertMessage, Timestamp)>>,
    taken: Mutex<Vec<AlertMessage>>,
}

/// What a target answers.
#[derive(Clone, Copy, Default)]
pub(super) enum Answer {
    #[default]
    Ok,
    Status(u16),
    /// 400 for messages about this thing.
    RefuseAbout(&'static str),
    Later(Duration),
    NoConnection,
    Hang,
}

impl Receiver {
    pub(super) fn answer(&self, answer: Answer) {
        *self.0.answer.lock().unwrap() = answer;
    }

    /// The messages it took, in order.
    pub(super) fn messages(&self) -> Vec<AlertMessage> {
        self.0.taken.lock().unwrap().clone()
    }

    pub(super) fn attempts(&self) -> Vec<(AlertMessage, Timestamp)> {
        self.0.attempts.lock().unwrap().clone()
    }
}

impl AlertChannel for Receiver {
    fn format(&self) -> &'static str {
        "test"
    }

    fn host(&self) -> String {
        "test.example".into()
    }

    fn fingerprint(&self) -> String {
        "test".into()
    }

    fn send<'a>(
        &'a self,
        message: &'a AlertMessage,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<AlertResponse, AlertSendError>> {
        Box::pin(async move {
            let answer = *self.0.answer.lock().unwrap();
            self.0.attempts.lock().unwrap().push((message.clone(), at));
            let response =
                |status, retry_after| Ok(AlertResponse { status, first_line: "thank you".into(), retry_after });
            match answer {
                Answer::RefuseAbout(thing) if message.alerts.iter().any(|alert| alert.thing == thing) => {
                    response(400, None)
                }
                Answer::Ok | Answer::RefuseAbout(_) => {
                    self.0.taken.lock().unwrap().push(message.clone());
                    response(200, None)
                }
                Answer::Status(status) => response(status, None),
                Answer::Later(delay) => response(503, Some(delay)),
                Answer::NoConnection => Err(AlertSendError("no connection".into())),
                Answer::Hang => std::future::pending().await,
            }
        })
    }
}
