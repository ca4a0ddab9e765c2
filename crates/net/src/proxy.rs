//! HTTP proxies, as the environment names them.
//!
//! In: an origin. Out: the proxy on the way to it, if there is one; a tunnel through it for TLS, or a request addressed to it for plain HTTP.
//! Which variables count and how `NO_PROXY` is read is decided by hyper-util. REST tools use no proxy: the address guard could not see where
//! a proxy connects to.

use hyper::{
    Request, Uri,
    body::Bytes,
    header::{HeaderValue, PROXY_AUTHORIZATION},
};
use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{error::DialError, origin::Origin};

/// How much a proxy may answer to `CONNECT`.
const MAX_HEAD: usize = 8 * 1024;

/// A proxy for HTTP and HTTPS.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Proxy {
    pub(crate) origin: Origin,
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// The proxy that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` name for an origin. This machine is reached without one.
    #[must_use]
    pub fn from_env(origin: &Origin) -> Option<Self> {
        if origin.is_loopback() {
            return None;
        }
        let found = Matcher::from_env().intercept(&origin.to_string().parse::<Uri>().ok()?)?;
        let proxy = Origin::from_url(&found.uri().to_string().parse().ok()?)?;
        Some(Self { origin: proxy, authorization: found.basic_auth().cloned() })
    }

    /// Asks the proxy for a tunnel to an origin.
    pub(crate) async fn tunnel<S>(&self, stream: &mut S, origin: &Origin) -> Result<(), DialError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let failed = |why: &dyn ToString| {
            DialError::unreachable(
                format!("{origin} cannot be reached through the proxy {}", self.origin),
                why.to_string(),
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
        let mut answer = Vec::new();
        // The other side of the tunnel says nothing before it was spoken to, so nothing of it is read here.
        while !answer.ends_with(b"\r\n\r\n") {
            let read = stream.read_buf(&mut answer).await.map_err(|error| failed(&error))?;
            if read == 0 || answer.len() > MAX_HEAD {
                return Err(failed(&"it does not answer CONNECT in HTTP"));
            }
        }
        let line = String::from_utf8_lossy(answer.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
        match line.split(' ').nth(1) {
            Some(status) if line.starts_with("HTTP/1.") && status.starts_with('2') => Ok(()),
            _ => Err(failed(&format!("it answers `{line}`"))),
        }
    }

    /// Addresses a request of plain HTTP to the proxy.
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
