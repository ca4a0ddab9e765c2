//! A document from an address, as text.
//!
//! In: an address that somebody typed. Out: what is there, up to a size. Redirects are followed, as everywhere where people paste addresses.

use std::time::Duration;

use toolhub_net::{Bytes, Client, Request, Response, Url, header::LOCATION, request_target};

use crate::failure::Failure;

/// How long it may take in all.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a document may be.
const MAX_DOCUMENT_BYTES: usize = 64 << 20;
/// How many redirects are followed.
const MAX_REDIRECTS: usize = 10;

/// Fetches it.
///
/// # Errors
/// When it is not there, or is no text, or too long.
pub(crate) async fn fetch(url: &str) -> Result<String, Failure> {
    let shown = redact_url(url);
    let failed = |why: String| Failure::usage(format!("{shown} cannot be fetched: {why}")).help("check the address");
    let fetched = tokio::time::timeout(FETCH_TIMEOUT, fetch_text(url)).await;
    fetched.unwrap_or_else(|_| Err(format!("it took longer than {FETCH_TIMEOUT:?}"))).map_err(failed)
}

async fn fetch_text(url: &str) -> Result<String, String> {
    let mut answer = follow_redirects(Url::parse(url).map_err(|error| error.to_string())?).await?;
    if !answer.status.is_success() {
        return Err(format!("the server answered {}", answer.status));
    }
    let mut bytes = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(|error| error.to_string())? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MAX_DOCUMENT_BYTES {
            return Err("it is longer than 64 MiB".into());
        }
    }
    String::from_utf8(bytes).map_err(|_| "it is no UTF-8 text".into())
}

/// The answer at the end of all redirects. User and password of an address are sent to its own origin alone.
async fn follow_redirects(mut url: Url) -> Result<Response, String> {
    for _ in 0..=MAX_REDIRECTS {
        let client = Client::new(&url, FETCH_TIMEOUT).ok_or("only http and https are spoken here")?;
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = request_target(&url).parse().map_err(|error| format!("{error}"))?;
        let answer = client.send(request).await.map_err(|error| error.to_string())?;
        let Some(place) = redirect_location(&answer) else { return Ok(answer) };
        let mut next = url.join(place).map_err(|error| format!("it points to no address: {error}"))?;
        if next.origin() == url.origin() && next.username().is_empty() {
            // Both addresses have a host, so neither is refused.
            let _ = (next.set_username(url.username()), next.set_password(url.password()));
        }
        url = next;
    }
    Err(format!("more than {MAX_REDIRECTS} redirects"))
}

/// Where an answer points to, if it is a redirect.
fn redirect_location(answer: &Response) -> Option<&str> {
    if !matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    answer.headers.get(LOCATION)?.to_str().ok()
}

/// An address without what may be a secret in it: user, password, query.
pub(crate) fn redact_url(url: &str) -> String {
    let Ok(mut address) = Url::parse(url) else { return "the address".into() };
    // Only an address without a host can refuse, and that has neither.
    let _ = (address.set_username(""), address.set_password(None));
    address.set_query(None);
    address.set_fragment(None);
    address.into()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// A server that answers requests with a function of their first line; its address, and the heads it has read.
    async fn server(answer: impl Fn(&str) -> String + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, heads) = (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Vec<String>>>::default());
        let seen = heads.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; 4096];
                let length = stream.read(&mut bytes).await.unwrap();
                let head = String::from_utf8_lossy(&bytes[..length]).into_owned();
                let answer = answer(head.lines().next().unwrap_or_default());
                seen.lock().unwrap().push(head);
                stream.write_all(answer.as_bytes()).await.unwrap();
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
        let (there, after) = server(move |_| document.into()).await;
        let (here, before) = server(move |line| match line {
            "GET /a HTTP/1.1" => redirect("/b?c"),
            _ => redirect(&format!("http://{there}/document")),
        })
        .await;
        assert_eq!(fetch(&format!("http://me:pass@{here}/a")).await.unwrap(), "{}");
        let (before, after) = (before.lock().unwrap().clone(), after.lock().unwrap().clone());
        assert!(before[1].starts_with("GET /b?c HTTP/1.1"), "{before:?}");
        assert!(before.iter().all(|head| head.contains("authorization: Basic bWU6cGFzcw==")), "{before:?}");
        assert!(after[0].starts_with("GET /document ") && !after[0].contains("authorization"), "{after:?}");
    }

    #[tokio::test]
    async fn an_address_that_leads_in_a_circle_or_nowhere_is_told_without_its_secrets() {
        let (here, _) = server(|_| redirect("/again")).await;
        let failure = fetch(&format!("http://me:pass@{here}/?key=hunter2")).await.unwrap_err();
        assert_eq!(failure.message, format!("http://{here}/ cannot be fetched: more than 10 redirects"));
        let failure = fetch("ftp://me:pass@example.com/x").await.unwrap_err();
        assert_eq!(failure.message, "ftp://example.com/x cannot be fetched: only http and https are spoken here");
    }
}
