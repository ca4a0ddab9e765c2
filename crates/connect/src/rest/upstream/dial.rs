//! Makes a connection to a service.
//!
//! In: an origin and how its owner wants to be connected. Out: a connection that speaks HTTP/1.1, or why there is none. The
//! address that was looked at is the address that is connected to: a name is resolved once, here, and nobody resolves it again.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use http_body_util::Full;
use hyper::{
    body::Bytes,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use socket2::{SockRef, TcpKeepalive};
use tokio::{io::AsyncRead, io::AsyncWrite, net::TcpStream};
use tokio_rustls::TlsConnector;

use super::{
    Names, Wiring,
    line::{Line, Watched},
};
use crate::rest::{guard, origin::Origin};

/// How much of an answer's head is read.
const LONGEST_HEAD: usize = 64 * 1024;

/// The end of a connection that requests go into.
pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// Why there is no connection. Nothing was sent.
#[derive(Debug)]
pub(crate) enum DialError {
    /// The address may not be reached.
    Forbidden(String),
    /// Nobody answered in time.
    Late(Duration),
    /// It cannot be reached, or not be believed.
    Unreachable(String),
}

/// Connects.
pub(super) async fn dial(
    origin: &Origin,
    wiring: &Wiring,
    names: &Arc<Names>,
    tls: Option<Arc<ClientConfig>>,
) -> Result<(Sender, Arc<Line>), DialError> {
    let time = wiring.connect_timeout;
    let dialled = tokio::time::timeout(time, connect(origin, wiring, names, tls)).await;
    dialled.unwrap_or(Err(DialError::Late(time)))
}

async fn connect(
    origin: &Origin,
    wiring: &Wiring,
    names: &Arc<Names>,
    tls: Option<Arc<ClientConfig>>,
) -> Result<(Sender, Arc<Line>), DialError> {
    let addresses = addresses(origin, wiring, names).await?;
    let stream = reach(origin, &addresses, wiring).await?;
    let line = Line::new();
    let watched = Watched::new(stream, line.clone(), wiring.write_timeout);
    let sender = match tls {
        None => speak(watched).await,
        Some(config) => {
            let unbelieved = |why: String| DialError::Unreachable(format!("{origin} cannot be believed: {why}"));
            let name = ServerName::try_from(origin.host.clone()).map_err(|error| unbelieved(error.to_string()))?;
            let secured = TlsConnector::from(config).connect(name, watched).await;
            speak(secured.map_err(|error| unbelieved(error.to_string()))?).await
        }
    };
    let sender = sender.map_err(|error| DialError::Unreachable(format!("{origin} does not speak HTTP: {error}")))?;
    Ok((sender, line))
}

/// The addresses that may be connected to.
async fn addresses(origin: &Origin, wiring: &Wiring, names: &Arc<Names>) -> Result<Vec<IpAddr>, DialError> {
    let host = &origin.host;
    let found = match origin.ip() {
        Some(ip) => vec![ip],
        None => {
            let unknown = |why: String| DialError::Unreachable(format!("the host `{host}` cannot be found: {why}"));
            let found = names.addresses(host).await.map_err(|why| unknown(why.to_string()))?;
            if found.is_empty() {
                return Err(unknown("it has no address".into()));
            }
            found.to_vec()
        }
    };
    if origin.is_named_by(&wiring.allow_hosts) {
        return Ok(found);
    }
    let mut refused = None;
    let mut open = Vec::with_capacity(found.len());
    for address in found {
        match guard::special(address) {
            None => open.push(address),
            Some(what) => refused = Some((address, what)),
        }
    }
    match (open.is_empty(), refused) {
        (true, Some((address, what))) => Err(DialError::Forbidden(format!(
            "`{host}` is {address}, {what}, which requests may not reach; if this one should, name `{host}` in `allow_hosts`"
        ))),
        _ => Ok(open),
    }
}

/// A connection to the first address that takes one. Each has its share of the time.
async fn reach(origin: &Origin, addresses: &[IpAddr], wiring: &Wiring) -> Result<TcpStream, DialError> {
    let share = wiring.connect_timeout / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = None;
    for address in addresses {
        match tokio::time::timeout(share, TcpStream::connect((*address, origin.port))).await {
            Ok(Ok(stream)) => {
                prepare(&stream, wiring);
                return Ok(stream);
            }
            Ok(Err(error)) => last = Some(error),
            Err(_) => {}
        }
    }
    Err(match last {
        Some(error) => DialError::Unreachable(format!("{origin} cannot be reached: {error}")),
        None => DialError::Late(wiring.connect_timeout),
    })
}

/// What can be set on a socket makes it better, and is no reason to go without it.
fn prepare(stream: &TcpStream, wiring: &Wiring) {
    let _ = stream.set_nodelay(true);
    if wiring.keep.is_some() && !wiring.probe.is_zero() {
        let probe = wiring.probe.max(Duration::from_secs(1));
        let asks = TcpKeepalive::new().with_time(probe).with_interval(probe).with_retries(3);
        let _ = SockRef::from(stream).set_tcp_keepalive(&asks);
    }
}

/// Speaks HTTP/1.1. The task that moves its bytes ends when nobody holds the sender any more.
async fn speak<S>(stream: S) -> Result<Sender, io::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = http1::Builder::new().max_buf_size(LONGEST_HEAD).handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(io::Error::other)?;
    tokio::spawn(async move {
        // How it ended is told to whoever waits for an answer.
        let _ = connection.await;
    });
    Ok(sender)
}
