//! The parameters of notifications that are understood.
//!
//! In: raw text. Out: the members that are used; texts are cut and printable. A notification has no answer, so one that is not as
//! the protocol says is ignored.

use rmcp::model::RequestId;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::command::printable;

/// How much of a text of a notification is kept.
const MAX_TEXT_CHARS: usize = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Progress {
    pub(super) progress_token: RequestId,
    pub(super) progress: f64,
    pub(super) total: Option<f64>,
    pub(super) message: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct LogMessage<'a> {
    pub(super) level: String,
    pub(super) logger: Option<String>,
    #[serde(borrow)]
    pub(super) data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct ResourceUpdated {
    pub(super) uri: String,
}

#[derive(Deserialize)]
pub(super) struct Acknowledged {
    #[serde(rename = "_meta")]
    pub(super) meta: AcknowledgedMeta,
}

#[derive(Deserialize)]
pub(super) struct AcknowledgedMeta {
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    pub(super) subscription_id: RequestId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cancelled {
    pub(super) request_id: RequestId,
}

/// The parameters of a notification; `None` if they are not as the protocol says, since a notification has no answer.
pub(super) fn read<'a, T: Deserialize<'a>>(params: Option<&'a str>) -> Option<T> {
    serde_json::from_str(params?).ok()
}

/// The beginning of a text, without control characters.
pub(super) fn clip(text: &str) -> String {
    let end = text.char_indices().nth(MAX_TEXT_CHARS).map_or(text.len(), |(end, _)| end);
    printable(&text.as_bytes()[..end])
}
