//! HTTP client for one operator-configured service: a model provider, a Toolhub server, a document.
//!
//! In: a URL, and requests for its origin. Out: responses. Uses the proxy of the environment and follows no redirects. It restricts
//! no addresses and has no timeout beyond connecting: both are left to the callers.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::{
    Request,
    body::Bytes,
    header::{ACCEPT, AUTHORIZATION, HeaderValue, USER_AGENT as USER_AGENT_NAME},
};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::{
    error::SendError, options::PoolOptions, origin::Origin, pool::Pool, pools::Pools, proxy::Proxy, send::Response,
};

/// The `User-Agent` header of all requests.
pub const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("toolhub/", env!("CARGO_PKG_VERSION")));

/// Sends requests to one origin. Cheap to clone; only clones share connections, because a program may have several runtimes and a
/// connection works only while its own runtime runs.
#[derive(Debug, Clone)]
pub struct Client {
    pool: Arc<Pool>,
    /// From user and password of the URL.
    authorization: Option<HeaderValue>,
}

impl Client {
    /// A client for the origin of this URL; `None` if the scheme is not http or https, or the host is missing. Does not connect yet.
    #[must_use]
    pub fn new(url: &Url, connect_timeout: Duration) -> Option<Self> {
        let origin = Origin::from_url(url)?;
        let options = PoolOptions { connect_timeout, proxy: Proxy::from_env(&origin), ..PoolOptions::default() };
        Some(Self { pool: Pools::default().pool(&origin, &options), authorization: basic_auth(url) })
    }

    /// The origin.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.pool.origin
    }

    /// Sends a request whose URI is path and query. If an idle connection turns out to be closed, the request is sent again on a new one,
    /// provided that cannot repeat an effect (see [`SendFailure::may_resend`](crate::SendFailure::may_resend)).
    ///
    /// # Errors
    /// When no response arrived.
    pub async fn send(&self, mut request: Request<Bytes>) -> Result<Response, SendError> {
        let headers = request.headers_mut();
        headers.entry(USER_AGENT_NAME).or_insert(USER_AGENT);
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        if let Some(value) = &self.authorization {
            headers.entry(AUTHORIZATION).or_insert_with(|| value.clone());
        }
        let mut lease = self.pool.lease().await?;
        loop {
            match lease.send(request.clone(), Duration::MAX).await {
                Ok(response) => return Ok(response),
                Err(failed) if failed.may_resend(request.method()) => lease = self.pool.dial().await?,
                Err(failed) => return Err(failed.error),
            }
        }
    }
}

/// The `Authorization` header for the user and password of a URL.
fn basic_auth(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decoded = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let pair = [decoded(url.username()), decoded(url.password().unwrap_or_default())].join(&b':');
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}
