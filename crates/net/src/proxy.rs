//! HTTP proxies from the environment.
//!
//! In: an origin. Out: its proxy, if there is one; a `CONNECT` tunnel for TLS, or an absolute-form request for plain HTTP.
//! hyper-util interprets the variables, including `NO_PROXY`. REST tools use no proxy: the address guard could not check where
//! a proxy connects to.

use hyper::{
    Request, Uri,
    body::Bytes,
    header::{HeaderValue, PROXY_AUTHORIZATION},
};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{error::DialError, origin::Origin};

/// Maximum size of a proxy's response to `CONNECT`.
const MAX_HEAD: usize = 8 * 1024;

/// A proxy for HTTP and HTTPS.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Proxy {
    pub(crate) origin: Origin,
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// The proxy for an origin according to `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`. Loopback origins bypass it.
    #[must_use]
    pub fn from_env(origin: &Origin) -> Option<Self> {
        if origin.is_loopback() {
            return None;
        }
        let intercept = Matcher::from_env().intercept(&origin.to_string().parse::<Uri>().ok()?)?;
        let proxy = Origin::from_url(&intercept.uri().to_string().parse().ok()?)?;
        Some(Self { origin: proxy, authorization: intercept.basic_auth().cloned() })
    }

    /// Opens a `CONNECT` tunnel to an origin.
    pub(crate) async fn tunnel<S>(&self, stream: &mut S, origin: &Origin) -> Result<(), DialError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let failed = |reason: &dyn ToString| {
            DialError::unreachable(
                format!("{origin} cannot be reached through the proxy {}", self.origin),
                reason.to_string(),
            )
        };
        let target = origin.host_and_port();
        let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
        if let Some(value) = &self.authorization {
            head.extend_from_slice(b"Proxy-Authorization: ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        stream.write_all(&head).await.map_err(|error| failed(&error))?;
        stream.flush().await.map_err(|error| failed(&error))?;
        let mut response = Vec::new();
        // The origin sends nothing before the client does, so this loop cannot read bytes of the tunnel.
        while !response.ends_with(b"\r\n\r\n") {
            let read = stream.read_buf(&mut response).await.map_err(|error| failed(&error))?;
            if read == 0 || response.len() > MAX_HEAD {
                return Err(failed(&"invalid HTTP response to CONNECT"));
            }
        }
        let status_line =
            String::from_utf8_lossy(response.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
        match status_line.split(' ').nth(1) {
            Some(status) if status_line.starts_with("HTTP/1.") && status.starts_with('2') => Ok(()),
            _ => Err(failed(&format!("the proxy responded `{status_line}` to CONNECT"))),
        }
    }

    /// Turns a plain HTTP request into the absolute form for the proxy.
    pub(crate) fn forward(&self, request: &mut Request<Bytes>, origin: &Origin) -> Result<(), String> {
        let absolute = format!("{origin}{}", request.uri());
        *request.uri_mut() = absolute.parse().map_err(|error| format!("{error}"))?;
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
        }
        Ok(())
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({})", self.origin)
    }
}
