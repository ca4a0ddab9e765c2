//! A channel for tests that sends nothing.

use futures_core::future::BoxFuture;

use super::{AlertChannel, AlertMessage, AlertResponse, AlertSendError};
use toolhub_types::timestamp::Timestamp;

pub(crate) struct Silent;

impl AlertChannel for Silent {
    fn format(&self) -> &'static str {
        "none"
    }

    fn host(&self) -> String {
        String::new()
    }

    fn fingerprint(&self) -> String {
        String::new()
    }

    fn send<'a>(&'a self, _: &'a AlertMessage, _: Timestamp) -> BoxFuture<'a, Result<AlertResponse, AlertSendError>> {
        Box::pin(std::future::ready(Err(AlertSendError("silent".into()))))
    }
}
