//! Opens a connection to a service: DNS, address guard, TCP, proxy, TLS, HTTP/1.1.
//!
//! In: an origin and the options of its pool. Out: a connection that speaks HTTP/1.1, or why there is none. The address the guard has
//! checked is the address that is connected to: a name is resolved once, here.

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

/// How much of a response's head is read.
const MAX_HEAD: usize = 64 * 1024;
/// How long an address is tried alone before the next one is tried beside it (RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The end of a connection that requests go into.
pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// Any byte stream. One type for TCP, TLS and tunnels, so that hyper is compiled for one.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Connects.
pub(crate) async fn dial(
    origin: &Origin,
    options: &PoolOptions,
    lookups: &Arc<Lookups>,
    tls: Option<Arc<ClientConfig>>,
) -> Result<(Sender, Arc<IoWatch>), DialError> {
    let time = options.connect_timeout;
    let dialled = tokio::time::timeout(time, connect(origin, options, lookups, tls)).await;
    dialled.unwrap_or(Err(DialError::Timeout(time)))
}

async fn connect(
    origin: &Origin,
    options: &PoolOptions,
    lookups: &Arc<Lookups>,
    tls: Option<Arc<ClientConfig>>,
) -> Result<(Sender, Arc<IoWatch>), DialError> {
    let first = options.proxy.as_ref().map_or(origin, |proxy| &proxy.origin);
    let addresses = allowed_addresses(first, options, lookups).await?;
    let tcp = connect_any(first, &addresses, options).await?;
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
    let sender =
        sender.map_err(|error| DialError::unreachable(format!("{origin} does not speak HTTP"), error.to_string()))?;
    Ok((sender, watch))
}

/// Speaks TLS.
async fn tls_handshake(
    origin: &Origin,
    config: Arc<ClientConfig>,
    stream: Box<dyn ByteStream>,
) -> Result<Box<dyn ByteStream>, DialError> {
    let failed = |why: String| DialError::unreachable(format!("{origin} cannot be believed"), why);
    let name = ServerName::try_from(origin.host.clone()).map_err(|error| failed(error.to_string()))?;
    let secured = TlsConnector::from(config).connect(name, stream).await;
    Ok(Box::new(secured.map_err(|error| failed(error.to_string()))?))
}

/// The addresses that may be connected to.
async fn allowed_addresses(
    origin: &Origin,
    options: &PoolOptions,
    lookups: &Arc<Lookups>,
) -> Result<Vec<IpAddr>, DialError> {
    let host = &origin.host;
    let found = match origin.ip() {
        Some(ip) => vec![ip],
        None => {
            let unknown = |why: &str| DialError::unreachable(format!("the host `{host}` cannot be found"), why);
            let found = lookups.addresses(host).await.map_err(|why| unknown(&why))?;
            if found.is_empty() {
                return Err(unknown("it has no address"));
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
            "`{host}` is {address}, {range}, which requests may not reach; if this one should, name `{host}` in `allow_hosts`"
        ))),
        _ => Ok(public),
    }
}

/// A connection to the first address that accepts one. An address that hangs does not keep the next one waiting: a host may have IPv6
/// addresses on a network that has no route to them.
async fn connect_any(origin: &Origin, addresses: &[IpAddr], options: &PoolOptions) -> Result<TcpStream, DialError> {
    let (mut rest, mut last) = (addresses.iter(), None);
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
            Some(Err(error)) => last = Some(error),
            None => {
                let why = last.map_or_else(|| "it has no address".into(), |error: io::Error| error.to_string());
                return Err(DialError::unreachable(format!("{origin} cannot be reached"), why));
            }
        }
    }
}

/// A socket works without these options too, so a failure to set them is ignored.
fn set_options(stream: &TcpStream, options: &PoolOptions) {
    let _ = stream.set_nodelay(true);
    if options.idle_timeout.is_some() && !options.tcp_keepalive.is_zero() {
        let interval = options.tcp_keepalive.max(Duration::from_secs(1));
        let keepalive = TcpKeepalive::new().with_time(interval).with_interval(interval).with_retries(3);
        let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
    }
}

/// Speaks HTTP/1.1. The task that moves the bytes ends when the sender is dropped.
async fn http1_handshake(stream: Box<dyn ByteStream>) -> Result<Sender, hyper::Error> {
    let (sender, connection) = http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        // Whoever waits for a response is told how the connection ended.
        let _ = connection.await;
    });
    Ok(sender)
}
