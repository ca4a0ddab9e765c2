//! Fetches a text document over HTTP.
//!
//! In: a URL typed by the user. Out: the text, up to a maximum size. Follows redirects, because pasted URLs often redirect.

use std::time::Duration;

use toolhub_net::{Bytes, Client, Request, Response, Url, header::LOCATION, request_target};

use crate::failure::Failure;

/// Timeout of the whole fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum size of a document.
const MAX_DOCUMENT_BYTES: usize = 64 << 20;
/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 10;

/// Fetches the document.
///
/// # Errors
/// When it cannot be fetched, is not UTF-8, or is too large.
pub(crate) async fn fetch(url: &str) -> Result<String, Failure> {
    let shown = redact_url(url);
    let failure = |why: String| Failure::usage(format!("cannot fetch {shown}: {why}")).help("check the URL");
    let result = tokio::time::timeout(FETCH_TIMEOUT, fetch_text(url)).await;
    result.unwrap_or_else(|_| Err(format!("timed out after {FETCH_TIMEOUT:?}"))).map_err(failure)
}

async fn fetch_text(url: &str) -> Result<String, String> {
    let mut response = follow_redirects(Url::parse(url).map_err(|error| error.to_string())?).await?;
    if !response.status.is_success() {
        return Err(format!("the server returned {}", response.status));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_DOCUMENT_BYTES {
            return Err("the document is larger than 64 MiB".into());
        }
    }
    String::from_utf8(bytes).map_err(|_| "the document is not UTF-8".into())
}

/// The response after all redirects. User and password of a URL are sent only to its own origin.
async fn follow_redirects(mut url: Url) -> Result<Response, String> {
    for _ in 0..=MAX_REDIRECTS {
        let client = Client::new(&url, FETCH_TIMEOUT).ok_or("only http and https are supported")?;
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = request_target(&url).parse().map_err(|error| format!("{error}"))?;
        let response = client.send(request).await.map_err(|error| error.to_string())?;
        let Some(location) = redirect_location(&response) else { return Ok(response) };
        let mut next = url.join(location).map_err(|error| format!("it redirects to an invalid URL: {error}"))?;
        if next.origin() == url.origin() && next.username().is_empty() {
            // Both URLs have a host, so the setters cannot fail.
            let _ = (next.set_username(url.username()), next.set_password(url.password()));
        }
        url = next;
    }
    Err(format!("more than {MAX_REDIRECTS} redirects"))
}

/// The target of a redirect, if the response is one.
fn redirect_location(response: &Response) -> Option<&str> {
    if !matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    response.headers.get(LOCATION)?.to_str().ok()
}

/// The URL without user, password, query and fragment, which may hold secrets.
pub(crate) fn redact_url(url: &str) -> String {
    let Ok(mut parsed) = Url::parse(url) else { return "the URL".into() };
    // The setters fail only for a URL without a host, which has neither user nor password.
    let _ = (parsed.set_username(""), parsed.set_password(None));
    parsed.set_query(None);
    parsed.set_fragment(None);
    parsed.into()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// A server whose responses are a function of the request line; returns its address and the request heads it has read.
    async fn server(respond: impl Fn(&str) -> String + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, heads) = (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Vec<String>>>::default());
        let recorded = heads.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; 4096];
                let length = stream.read(&mut bytes).await.unwrap();
                let head = String::from_utf8_lossy(&bytes[..length]).into_owned();
                let response = respond(head.lines().next().unwrap_or_default());
                recorded.lock().unwrap().push(head);
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        (address, heads)
    }

    fn redirect(to: &str) -> String {
        format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    }

    #[tokio::test]
    async fn redirects_are_followed_and_a_password_stays_with_its_origin() {
        let document = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
        let (target, after) = server(move |_| document.into()).await;
        let (origin, before) = server(move |line| match line {
            "GET /a HTTP/1.1" => redirect("/b?c"),
            _ => redirect(&format!("http://{target}/document")),
        })
        .await;
        assert_eq!(fetch(&format!("http://me:pass@{origin}/a")).await.unwrap(), "{}");
        let (before, after) = (before.lock().unwrap().clone(), after.lock().unwrap().clone());
        assert!(before[1].starts_with("GET /b?c HTTP/1.1"), "{before:?}");
        assert!(before.iter().all(|head| head.contains("authorization: Basic bWU6cGFzcw==")), "{before:?}");
        assert!(after[0].starts_with("GET /document ") && !after[0].contains("authorization"), "{after:?}");
    }

    #[tokio::test]
    async fn an_address_that_leads_in_a_circle_or_nowhere_is_told_without_its_secrets() {
        let (origin, _) = server(|_| redirect("/again")).await;
        let failure = fetch(&format!("http://me:pass@{origin}/?key=hunter2")).await.unwrap_err();
        assert_eq!(failure.message, format!("cannot fetch http://{origin}/: more than 10 redirects"));
        let failure = fetch("ftp://me:pass@example.com/x").await.unwrap_err();
        assert_eq!(failure.message, "cannot fetch ftp://example.com/x: only http and https are supported");
    }
}
