//! HTTP requests to the MCP endpoint.
//!
//! In: a message with its headers. Out: the response, or why there is none, and whether anything was sent: only then may a message be
//! sent again that must not be handled twice.

use std::{sync::Arc, time::Duration};

use toolhub_net::{
    Bytes, DialError, HeaderMap, Method, Origin, Pool, PoolOptions, Pools, Proxy, Request as HttpRequest, Response,
    Secret, USER_AGENT, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT as USER_AGENT_NAME},
    request_target,
};

use crate::{client::Request, failure::Failure};

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept. Shorter than at the server: a request on a connection that the server closes at the same time
/// may have been handled or not.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The MCP endpoint of a server.
pub(super) struct Endpoint {
    pool: Arc<Pool>,
    target: String,
    authorization: Option<HeaderValue>,
}

/// No response arrived.
#[derive(Debug)]
pub(super) struct Unanswered {
    /// Nothing was sent.
    pub(super) is_unsent: bool,
    pub(super) reason: String,
}

impl Endpoint {
    /// The endpoint of the server at this URL, for a thread if there is one.
    ///
    /// # Errors
    /// When the URL or the key is invalid.
    pub(super) fn new(url: &str, thread: Option<&str>, token: Option<&str>) -> Result<Self, Failure> {
        let path = match thread {
            Some(thread) => Request::at_root(Method::POST, ["mcp", "t", thread]).target,
            None => "/mcp".into(),
        };
        let invalid = |reason: &dyn std::fmt::Display| Failure::usage(format!("`{url}` is not a URL: {reason}"));
        let url = Url::parse(&format!("{url}{path}")).map_err(|error| invalid(&error))?;
        let origin = Origin::from_url(&url).ok_or_else(|| invalid(&"it has no host"))?;
        let token = token.map(|token| Secret::literal(token).header("Bearer ")).transpose();
        let authorization = token.map_err(|error| Failure::usage(format!("the API key is invalid: {error}")))?;
        let proxy = Proxy::from_env(&origin);
        let options = PoolOptions {
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: Some(IDLE_TIMEOUT),
            proxy,
            ..PoolOptions::default()
        };
        Ok(Self { pool: Pools::default().pool(&origin, &options), target: request_target(&url), authorization })
    }

    /// Closes connections that are not in use: if one was lost, the others may lead to the same process.
    pub(super) fn close_idle(&self) {
        self.pool.close_idle();
    }

    /// Sends a request and waits for the head of the response.
    ///
    /// # Errors
    /// When no response arrived.
    pub(super) async fn send(&self, method: Method, body: Bytes, headers: HeaderMap) -> Result<Response, Unanswered> {
        let unsent = |reason: String| Unanswered { is_unsent: true, reason };
        let mut request = HttpRequest::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.target.parse().map_err(|error| unsent(format!("invalid URL: {error}")))?;
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT_NAME, USER_AGENT);
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json, text/event-stream"));
        if !request.body().is_empty() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(AUTHORIZATION, value.clone());
        }
        let refused = |error: DialError| unsent(error.to_string());
        let mut lease = self.pool.lease().await.map_err(refused)?;
        loop {
            match lease.send(request.clone(), Duration::MAX).await {
                Ok(response) => return Ok(response),
                Err(failed) if failed.may_resend(request.method()) => {
                    lease = self.pool.dial().await.map_err(refused)?;
                }
                Err(failed) => return Err(Unanswered { is_unsent: failed.unsent, reason: failed.error.to_string() }),
            }
        }
    }
}
