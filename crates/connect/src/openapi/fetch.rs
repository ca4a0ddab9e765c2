//! Fetches a document from where it lives.
//!
//! In: a request. Out: the text it brought. It is made like any other request of a tool, through a hub of its own: the same guard looks at
//! each address on the way, and the same bounds hold.

use std::time::Duration;

use serde_json::{Value, json};
use toolhub_core::ToolHub;

use super::{ImportError, ImportedDocument, Options, import, loader};
use crate::rest::{ResponseFormat, Rest};

/// Imports a document from an address. Relative addresses in it are joined to that one, unless [`Options::document_url`] says otherwise.
///
/// # Errors
/// As [`import`], and when the document cannot be fetched; a host that is not of the open internet is refused. [`fetch`] takes a
/// request that may say more.
pub async fn import_url(url: &str, options: &Options) -> Result<ImportedDocument, ImportError> {
    let text = fetch(Rest::get(url)).await?;
    let mut options = options.clone();
    options.document_url.get_or_insert_with(|| url.to_owned());
    import(&text, &options)
}

/// Fetches the text of a document with a request of your own: one that says who is asking, or that a host may be reached.
///
/// # Errors
/// When the request cannot be made, is refused, or brings no text.
pub async fn fetch(request: Rest) -> Result<String, ImportError> {
    let failed = |why: String| ImportError::Fetch { why };
    let request = request
        .response_format(ResponseFormat::Text)
        .max_response(loader::MAX_DOCUMENT_BYTES)
        .max_unpacked(loader::MAX_DOCUMENT_BYTES);
    let tool = request.tool_with("document", json!({"type": "object"})).output_limit(2 * loader::MAX_DOCUMENT_BYTES);
    let hub = ToolHub::builder().tool(tool).build().await.map_err(|error| failed(error.to_string()))?;
    let outcome = hub.call("document", json!({})).await;
    hub.shutdown(Duration::ZERO).await;
    match outcome.into_result() {
        Ok(Value::String(text)) => Ok(text),
        Ok(_) => Err(failed("it is no text".into())),
        Err(error) => Err(failed(error.to_string())),
    }
}
