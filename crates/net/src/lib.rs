//! Outgoing HTTP/1.1 connections of tools, models and the command line: no other crate opens them.
//!
//! Internal crate of `toolhub`; depend on that one. [`Pools`] returns a [`Pool`] of connections per service; a [`Lease`] on a
//! connection sends one request and becomes a [`Response`]. [`Client`] is the short form for one service without limits of its own.
//! [`SseDecoder`], [`parse_retry_after`] and [`Secret`] serve all callers. The callers decide what a request means, which status is a
//! failure and how it is reported: this crate depends on no other Toolhub crate.
#![forbid(unsafe_code)]

mod client;
mod dial;
mod dns;
mod error;
mod guard;
mod io_watch;
mod options;
mod origin;
mod pool;
mod pools;
mod proxy;
mod retry_after;
mod secret;
mod secret_text;
mod send;
mod sse;
mod tls;
mod weak_map;

pub use hyper::{HeaderMap, Method, Request, StatusCode, body::Bytes, header};
pub use url::Url;

pub use client::{Client, USER_AGENT};
pub use dns::{BoxFuture, Resolve};
pub use error::{DialError, SendError};
pub use options::{AddressPolicy, PoolOptions};
pub use origin::{Origin, request_target};
pub use pool::{Lease, Permit, PermitTimeout, Pool};
pub use pools::Pools;
pub use proxy::Proxy;
pub use retry_after::{parse_http_date, parse_retry_after};
pub use secret::{Secret, SecretError};
pub use secret_text::SecretText;
pub use send::{Response, SendFailure};
pub use sse::{EventTooLong, SseDecoder, SseEvent};
pub use weak_map::WeakMap;
