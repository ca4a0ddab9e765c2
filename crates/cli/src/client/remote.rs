//! The transport over the network.
//!
//! In: requests. Out: what the server answered, or why nobody did. A key goes along in its header and nowhere else.

use std::time::Duration;

use toolhub_net::{
    Bytes, Client, DialError, Request as HttpRequest, Response, Secret, SendError, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue},
    request_target,
};

use super::{
    events::{ByteSource, EventStream, StreamResponse},
    request::{ApiResponse, Request},
};
use crate::failure::Failure;

/// How long a server may take to take the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server somewhere.
pub(crate) struct Remote {
    http: Client,
    /// Without a slash at its end.
    url: String,
    token: Option<Secret>,
    explicit: bool,
}

impl Remote {
    /// The server at this address.
    ///
    /// # Errors
    /// When that is no address.
    pub(crate) fn new(url: &str, token: Option<String>, named: bool) -> Result<Self, Failure> {
        let wrong = |why: &str| {
            Failure::usage(format!("`{url}` is no address of a server: {why}"))
                .help("write it like --server http://127.0.0.1:8665")
        };
        let read = Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(read.scheme(), "http" | "https") || !read.has_host() {
            return Err(wrong("it begins with http:// or https://"));
        }
        if !read.username().is_empty() || read.password().is_some() {
            return Err(wrong("a key belongs into --token or TOOLHUB_TOKEN, not into the address"));
        }
        let http = Client::new(&read, CONNECT_TIMEOUT).ok_or_else(|| wrong("it names no host"))?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token: token.map(Secret::literal), explicit: named })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) async fn send(&self, request: Request) -> Result<ApiResponse, Failure> {
        self.read_body(self.dispatch(request).await?).await
    }

    pub(super) async fn stream(&self, request: Request) -> Result<StreamResponse, Failure> {
        let answer = self.dispatch(request).await?;
        let media = answer.headers.get("content-type").and_then(|media| media.to_str().ok()).unwrap_or_default();
        if media.starts_with("text/event-stream") {
            return Ok(StreamResponse::Events(EventStream::new(ByteSource::Remote(Box::new(answer)))));
        }
        self.read_body(answer).await.map(StreamResponse::Response)
    }

    async fn dispatch(&self, request: Request) -> Result<Response, Failure> {
        let unsendable =
            |error: &dyn std::fmt::Display| Failure::unexpected(format!("the request is not valid: {error}"));
        let url = Url::parse(&format!("{}{}", self.url, request.target)).map_err(|error| unsendable(&error))?;
        let mut sent = HttpRequest::new(Bytes::new());
        *sent.method_mut() = request.method;
        *sent.uri_mut() = request_target(&url).parse().map_err(|error| unsendable(&error))?;
        let headers = sent.headers_mut();
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.header("Bearer ").map_err(|error| unsendable(&error))?);
        }
        for (name, value) in request.headers {
            let value = HeaderValue::try_from(value).map_err(|error| unsendable(&error))?;
            headers.append(HeaderName::from_static(name), value);
        }
        if let Some(body) = request.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *sent.body_mut() = Bytes::from(body.to_string());
        }
        self.http.send(sent).await.map_err(|error| self.unreachable_failure(&error))
    }

    async fn read_body(&self, mut answer: Response) -> Result<ApiResponse, Failure> {
        let (status, mut body) = (answer.status.as_u16(), Vec::new());
        while let Some(piece) = answer.chunk().await.map_err(|error| self.unreachable_failure(&error))? {
            body.extend_from_slice(&piece);
        }
        Ok(ApiResponse { status, body })
    }

    fn unreachable_failure(&self, error: &SendError) -> Failure {
        let cause = match error {
            SendError::Dial(DialError::Unreachable { reason, .. }) | SendError::Broken { reason, .. } => reason.clone(),
            other => other.to_string(),
        };
        let failure = Failure::new("unreachable", format!("the server at {} does not answer: {cause}", self.url));
        if self.explicit {
            failure.help("start one with `toolhub serve`, or leave --server and TOOLHUB_URL out to use the store here")
        } else {
            failure
        }
    }
}
