//! Opens a connection to a service: DNS, address guard, TCP, proxy, TLS, HTTP/1.1.
//!
//! In: an origin and the options of its pool. Out: an HTTP/1.1 connection or a `DialError`. A name is resolved once, here, so
//! the connection goes to exactly the address that the guard has checked (no DNS rebinding).

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use http_body_util::Full;
use hyper::{
    body::Bytes,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{
    dns::Lookups,
    error::DialError,
    guard,
    io_watch::{IoWatch, WatchedStream},
    options::{AddressPolicy, PoolOptions},
    origin::Origin,
};

/// Maximum size of a response head.
const MAX_HEAD: usize = 64 * 1024;
/// How long to wait for one address before the next is tried concurrently (Happy Eyeballs, RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The request side of a connection.
pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// Any byte stream. One type for TCP, TLS and tunnels, so that hyper is instantiated only once.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Opens a connection within `connect_timeout`.
pub(crate) async fn dial(
    origin: &Origin,
    options: &PoolOptions,
    lookups: &Arc<Lookups>,
    tls: Option<Arc<ClientConfig>>,
) -> Result<(Sender, Arc<IoWatch>), DialError> {
    let timeout = options.connect_timeout;
    let connected = tokio::time::timeout(timeout, connect(origin, options, lookups, tls)).await;
    connected.unwrap_or(Err(DialError::Timeout(timeout)))
}

async fn connect(
    origin: &Origin,
    options: &PoolOptions,
    lookups: &Arc<Lookups>,
    tls: Option<Arc<ClientConfig>>,
) -> Result<(Sender, Arc<IoWatch>), DialError> {
    let first_hop = options.proxy.as_ref().map_or(origin, |proxy| &proxy.origin);
    let addresses = allowed_addresses(first_hop, options, lookups).await?;
    let tcp = connect_any(first_hop, &addresses, options).await?;
    let watch = IoWatch::new();
    let mut stream: Box<dyn ByteStream> = Box::new(WatchedStream::new(tcp, watch.clone(), options.write_timeout));
    if let Some(proxy) = &options.proxy {
        if let Some(config) = tls.clone().filter(|_| proxy.origin.https) {
            stream = tls_handshake(&proxy.origin, config, stream).await?;
        }
        if origin.https {
            proxy.tunnel(&mut stream, origin).await?;
        }
    }
    if let Some(config) = tls.filter(|_| origin.https) {
        stream = tls_handshake(origin, config, stream).await?;
    }
    let sender = http1_handshake(stream).await;
    let sender = sender
        .map_err(|error| DialError::unreachable(format!("HTTP handshake failed with {origin}"), error.to_string()))?;
    Ok((sender, watch))
}

/// Performs the TLS handshake.
async fn tls_handshake(
    origin: &Origin,
    config: Arc<ClientConfig>,
    stream: Box<dyn ByteStream>,
) -> Result<Box<dyn ByteStream>, DialError> {
    let name = ServerName::try_from(origin.host.clone()).map_err(|error| DialError::Tls {
        failure: format!("TLS handshake failed with {origin}"),
        reason: error.to_string(),
    })?;
    let tls_stream = TlsConnector::from(config).connect(name, stream).await;
    Ok(Box::new(tls_stream.map_err(|error| tls_error(origin, &error))?))
}

fn tls_error(origin: &Origin, error: &io::Error) -> DialError {
    use rustls::{Error, InvalidMessage};
    let (failure, hint) = match error.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented) => ("TLS verification failed for", ""),
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            ("TLS handshake failed with", " (is this a plain HTTP port?)")
        }
        _ => ("TLS handshake failed with", ""),
    };
    DialError::Tls { failure: format!("{failure} {origin}"), reason: format!("{error}{hint}") }
}

/// The host's addresses that the address policy allows.
async fn allowed_addresses(
    origin: &Origin,
    options: &PoolOptions,
    lookups: &Arc<Lookups>,
) -> Result<Vec<IpAddr>, DialError> {
    let host = &origin.host;
    let found = match origin.ip() {
        Some(ip) => vec![ip],
        None => {
            let failed = |reason: &str| DialError::unreachable(format!("DNS lookup failed for `{host}`"), reason);
            let found = lookups.addresses(host).await.map_err(|reason| failed(&reason))?;
            if found.is_empty() {
                return Err(failed("the host has no addresses"));
            }
            found.to_vec()
        }
    };
    match &options.address_policy {
        AddressPolicy::Any => return Ok(found),
        AddressPolicy::PublicOrHosts(hosts) if origin.matches_any(hosts) => return Ok(found),
        AddressPolicy::PublicOrHosts(_) => {}
    }
    let mut refused = None;
    let mut public = Vec::with_capacity(found.len());
    for address in found {
        match guard::special_range(address) {
            None => public.push(address),
            Some(range) => refused = Some((address, range)),
        }
    }
    match (public.is_empty(), refused) {
        (true, Some((address, range))) => Err(DialError::Forbidden(format!(
            "`{host}` resolves to {address}, {range}, which requests may not reach; to allow it, add `{host}` to `allow_hosts`"
        ))),
        _ => Ok(public),
    }
}

/// Connects to the first address that accepts. An address that hangs does not delay the next one: a host may have IPv6 addresses
/// while the local network has no IPv6 route.
async fn connect_any(origin: &Origin, addresses: &[IpAddr], options: &PoolOptions) -> Result<TcpStream, DialError> {
    let (mut rest, mut last_error) = (addresses.iter(), None);
    let mut attempts = FuturesUnordered::new();
    loop {
        if let Some(address) = rest.next() {
            attempts.push(TcpStream::connect((*address, origin.port)));
        }
        let attempt = tokio::select! {
            attempt = attempts.next() => attempt,
            () = tokio::time::sleep(ATTEMPT_DELAY), if !rest.as_slice().is_empty() => continue,
        };
        match attempt {
            Some(Ok(stream)) => {
                set_options(&stream, options);
                return Ok(stream);
            }
            Some(Err(error)) => last_error = Some(error),
            None => {
                let reason =
                    last_error.map_or_else(|| "the host has no addresses".into(), |error: io::Error| error.to_string());
                return Err(DialError::unreachable(format!("{origin} cannot be reached"), reason));
            }
        }
    }
}

/// Failures are ignored: a socket works without these options too.
fn set_options(stream: &TcpStream, options: &PoolOptions) {
    let _ = stream.set_nodelay(true);
    if options.idle_timeout.is_some() && !options.tcp_keepalive.is_zero() {
        let interval = options.tcp_keepalive.max(Duration::from_secs(1));
        let keepalive = TcpKeepalive::new().with_time(interval).with_interval(interval).with_retries(3);
        let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
}

/// Performs the HTTP/1.1 handshake. The connection task ends when the sender is dropped.
async fn http1_handshake(stream: Box<dyn ByteStream>) -> Result<Sender, hyper::Error> {
    let (sender, connection) = http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // The error is not lost: hyper also reports it to the pending request.
        let _ = connection.await;
    });
    Ok(sender)
}
