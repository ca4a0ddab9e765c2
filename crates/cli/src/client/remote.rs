//! The network transport.
//!
//! In: requests. Out: the server's response, or why there is none. The API key is sent only in the `Authorization` header.

use std::time::Duration;

use toolhub_net::{
    Bytes, Client, DialError, Request as HttpRequest, Response, Secret, SendError, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue},
    request_target,
};

use super::{
    events::{ByteSource, EventStream, StreamResponse},
    request::{ApiResponse, Request, parse_retry_after},
};
use crate::failure::Failure;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server reached over HTTP.
pub(crate) struct Remote {
    http: Client,
    /// Without a trailing slash.
    url: String,
    token: Option<Secret>,
    explicit: bool,
}

impl Remote {
    /// A client of the server at this URL. `explicit`: the user named it, so failures say how to do without it.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub(crate) fn new(url: &str, token: Option<String>, explicit: bool) -> Result<Self, Failure> {
        let invalid = |why: &str| {
            Failure::usage(format!("`{url}` is not the URL of a server: {why}"))
                .help("write it like --server http://127.0.0.1:8665")
        };
        let parsed = Url::parse(url).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
            return Err(invalid("it must start with http:// or https://"));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(invalid("pass a key with --token or TOOLHUB_TOKEN, not in the URL"));
        }
        let http = Client::new(&parsed, CONNECT_TIMEOUT).ok_or_else(|| invalid("it has no host"))?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token: token.map(Secret::literal), explicit })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn send(&self, request: Request) -> Result<ApiResponse, Failure> {
        self.read_body(self.dispatch(request).await?).await
    }

    pub(super) async fn stream(&self, request: Request) -> Result<StreamResponse, Failure> {
        let response = self.dispatch(request).await?;
        let media = response.headers.get("content-type").and_then(|media| media.to_str().ok()).unwrap_or_default();
        if media.starts_with("text/event-stream") {
            return Ok(StreamResponse::Events(EventStream::new(ByteSource::Remote(Box::new(response)))));
        }
        self.read_body(response).await.map(StreamResponse::Response)
    }

    async fn dispatch(&self, request: Request) -> Result<Response, Failure> {
        let invalid = |error: &dyn std::fmt::Display| Failure::unexpected(format!("invalid request: {error}"));
        let url = Url::parse(&format!("{}{}", self.url, request.target)).map_err(|error| invalid(&error))?;
        let mut http_request = HttpRequest::new(Bytes::new());
        *http_request.method_mut() = request.method;
        *http_request.uri_mut() = request_target(&url).parse().map_err(|error| invalid(&error))?;
        let headers = http_request.headers_mut();
        if let Some(token) = &self.token {
            headers.insert(AUTHORIZATION, token.header("Bearer ").map_err(|error| invalid(&error))?);
        }
        for (name, value) in request.headers {
            let value = HeaderValue::try_from(value).map_err(|error| invalid(&error))?;
            headers.append(HeaderName::from_static(name), value);
        }
        if let Some(body) = request.body {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *http_request.body_mut() = Bytes::from(body.to_string());
        }
        match self.http.send(http_request).await {
            Err(SendError::Dial(DialError::Tls { .. })) if self.speaks_plain_http().await => {
                let plain = self.url.replacen("https://", "http://", 1);
                Err(Failure::new("unreachable", format!("the server at {} speaks http, not https", self.url))
                    .help(format!("--server {plain}")))
            }
            sent => {
                sent.map_err(|error| self.unreachable_failure(&error)).and_then(|response| self.check_origin(response))
            }
        }
    }

    /// Refuses a successful response that is not from a Toolhub server: each of its responses has this header.
    fn check_origin(&self, response: Response) -> Result<Response, Failure> {
        if !response.status.is_success() || response.headers.contains_key("x-request-id") {
            return Ok(response);
        }
        let message = format!("what answers at {} is not a Toolhub server", self.url);
        Err(Failure::new("unreachable", message).help("check the URL of --server and TOOLHUB_URL"))
    }

    /// Whether a server without TLS responds at this https address.
    async fn speaks_plain_http(&self) -> bool {
        let plain = Url::parse(&self.url.replacen("https://", "http://", 1)).ok();
        let Some(client) = plain.and_then(|url| Client::new(&url, CONNECT_TIMEOUT)) else { return false };
        let mut request = HttpRequest::new(Bytes::new());
        *request.uri_mut() = axum::http::Uri::from_static("/livez");
        tokio::time::timeout(CONNECT_TIMEOUT, client.send(request)).await.is_ok_and(|sent| sent.is_ok())
    }

    async fn read_body(&self, mut response: Response) -> Result<ApiResponse, Failure> {
        let (status, mut body) = (response.status.as_u16(), Vec::new());
        let retry_after = parse_retry_after(response.headers.get("retry-after").map(HeaderValue::as_bytes));
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable_failure(&error))? {
            body.extend_from_slice(&chunk);
        }
        Ok(ApiResponse { status, body, retry_after })
    }

    fn unreachable_failure(&self, error: &SendError) -> Failure {
        let message = match error {
            // These texts name the host themselves.
            SendError::Dial(DialError::Unreachable { .. } | DialError::Tls { .. }) => {
                format!("cannot connect to the server: {error}")
            }
            other => format!("cannot reach the server at {}: {other}", self.url),
        };
        let failure = Failure::new("unreachable", message);
        if matches!(error, SendError::Dial(DialError::Tls { .. })) {
            failure.help("check `http://` or `https://` in --server")
        } else if self.explicit {
            failure.help(
                "start one with `toolhub serve`, or omit --server and TOOLHUB_URL to use the store of this folder",
            )
        } else {
            failure
        }
    }
}
