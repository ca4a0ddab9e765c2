//! Streams the export of a thread as one JSON object, the form of `ThreadExport`.
//!
//! In: a thread. Out: a response whose body is written part by part, so that a long thread takes no more memory than a
//! short one. An error after the first part cuts the body off, because its status was sent before.

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use toolhub_agent::{AgentService, ExportPart};
use toolhub_core::{
    backend::StoreError,
    ids::{Tenant, ThreadId},
};

pub(super) fn response(agents: &AgentService, tenant: &Tenant, thread: &ThreadId) -> Response {
    let mut writer = Writer::default();
    let parts = agents.export_parts(tenant, thread).map_ok(Some).chain(stream::iter([Ok(None)]));
    let chunks = parts.map(move |part| match part {
        Ok(part) => writer.write(part).map_err(|error| StoreError::Unavailable(error.to_string())),
        Err(error) => {
            tracing::warn!(%error, "could not finish the export of a thread");
            Err(error)
        }
    });
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], Body::from_stream(chunks)).into_response()
}

/// Writes the parts of an export as the members of an object.
#[derive(Default)]
struct Writer {
    /// The list that is being written.
    list: Option<&'static str>,
    /// Whether the list has an item.
    has_item: bool,
    /// Whether the object has a member.
    has_member: bool,
}

impl Writer {
    /// The text of a part; `None` is the end.
    fn write(&mut self, part: Option<ExportPart>) -> serde_json::Result<Vec<u8>> {
        let mut text = Vec::new();
        match part {
            None => {
                self.end_list(&mut text);
                text.push(b'}');
            }
            Some(ExportPart::Thread(thread)) => self.write_member(&mut text, "thread", &thread)?,
            Some(ExportPart::Messages(items)) => self.write_items(&mut text, "messages", &items)?,
            Some(ExportPart::Runs(items)) => self.write_items(&mut text, "runs", &items)?,
            Some(ExportPart::Calls(items)) => self.write_items(&mut text, "calls", &items)?,
            Some(ExportPart::ToolStates(states)) => self.write_member(&mut text, "toolStates", &states)?,
            Some(ExportPart::States(items)) => self.write_items(&mut text, "states", &items)?,
            // No other part exists.
            Some(_) => {}
        }
        Ok(text)
    }

    fn write_member(&mut self, text: &mut Vec<u8>, name: &str, value: &impl Serialize) -> serde_json::Result<()> {
        self.begin_member(text, name);
        text.extend(serde_json::to_vec(value)?);
        Ok(())
    }

    fn write_items<T: Serialize>(
        &mut self,
        text: &mut Vec<u8>,
        name: &'static str,
        items: &[T],
    ) -> serde_json::Result<()> {
        if self.list != Some(name) {
            self.begin_member(text, name);
            text.push(b'[');
            (self.list, self.has_item) = (Some(name), false);
        }
        for item in items {
            if std::mem::replace(&mut self.has_item, true) {
                text.push(b',');
            }
            text.extend(serde_json::to_vec(item)?);
        }
        Ok(())
    }

    fn begin_member(&mut self, text: &mut Vec<u8>, name: &str) {
        self.end_list(text);
        text.push(if std::mem::replace(&mut self.has_member, true) { b',' } else { b'{' });
        text.extend(format!("\"{name}\":").bytes());
    }

    fn end_list(&mut self, text: &mut Vec<u8>) {
        if self.list.take().is_some() {
            text.push(b']');
        }
    }
}
