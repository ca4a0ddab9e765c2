//! Recognises a server that speaks only HTTP+SSE, the transport before streamable HTTP.
//!
//! In: an address that refused the handshake. Out: the address to try instead. Such a server answers a GET with an event stream
//! whose first event names the address for messages.

use std::{sync::atomic::AtomicBool, time::Duration};

use hyper::{
    HeaderMap, Method,
    body::Bytes,
    header::{ACCEPT, HeaderValue},
};
use toolhub_net::SseDecoder;

use super::{client::HttpClient, response::content_type};

/// How long to wait for the first event.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The first event is short.
const MAX_EVENT: usize = 16 * 1024;

pub(super) async fn detect(client: &HttpClient) -> Option<String> {
    let is_http_sse = tokio::time::timeout(TIMEOUT, begins_with_endpoint(client)).await.ok()??;
    is_http_sse.then(|| suggestion(&client.address().origin(), &client.address().target().unwrap_or_default()))
}

async fn begins_with_endpoint(client: &HttpClient) -> Option<bool> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    let sent = AtomicBool::new(false);
    let mut response = client.address().send(Method::GET, Bytes::new(), headers, &sent).await.ok()?;
    if !response.status.is_success() || !content_type(&response.headers).eq_ignore_ascii_case("text/event-stream") {
        return None;
    }
    let mut decoder = SseDecoder::new(MAX_EVENT);
    while let Some(bytes) = response.chunk().await.ok()? {
        if let Some(first) = decoder.feed(&bytes).ok()?.first() {
            return Some(first.name == "endpoint");
        }
    }
    None
}

/// Servers offer streamable HTTP at `/mcp` where they offered HTTP+SSE at `/sse`. The query may contain secrets.
fn suggestion(origin: &str, target: &str) -> String {
    let path = target.split('?').next().unwrap_or_default().trim_end_matches('/');
    let base = path.strip_suffix("/sse").unwrap_or(path);
    format!("{origin}{base}/mcp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_to_try_is_mcp_beside_sse() {
        assert_eq!(suggestion("https://a.example", "/sse"), "https://a.example/mcp");
        assert_eq!(suggestion("https://a.example", "/v1/sse/?key=s3cr3t"), "https://a.example/v1/mcp");
        assert_eq!(suggestion("https://a.example", "/"), "https://a.example/mcp");
    }
}
