//! Fetches a document over HTTP.
//!
//! In: a request. Out: the text of the response. The request is sent as a REST tool of a temporary hub, so the same address guard and
//! limits apply.

use std::time::Duration;

use serde_json::{Value, json};
use toolhub_core::ToolHub;

use super::{ImportError, ImportedDocument, Options, import, loader};
use crate::rest::{ResponseFormat, Rest};

/// Imports a document from a URL. Relative URLs in it are resolved against that, unless [`Options::document_url`] is set.
///
/// # Errors
/// As [`import`], and when the document cannot be fetched; hosts with a private or local address are refused. Use [`fetch`] with your
/// own request to allow them.
pub async fn import_url(url: &str, options: &Options) -> Result<ImportedDocument, ImportError> {
    let text = fetch(Rest::get(url)).await?;
    let mut options = options.clone();
    options.document_url.get_or_insert_with(|| url.to_owned());
    import(&text, &options)
}

/// Fetches the text of a document with your own request, for example with credentials or an allowed host.
///
/// # Errors
/// When the request is invalid, fails, or its response is not text.
pub async fn fetch(request: Rest) -> Result<String, ImportError> {
    let failed = |reason: String| ImportError::Fetch { reason };
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
        Ok(_) => Err(failed("the response is not text".into())),
        Err(error) => Err(failed(error.to_string())),
    }
}
