//! REST tools: tools backed by HTTP requests.
//!
//! In: the settings of a request ([`Rest`]). Out: a tool. All HTTP logic is here: parameter encoding, authentication, the address
//! guard (SSRF), connection pools, timeouts, redirects, sessions and the mapping of responses. The hub has already decided whether and
//! when a call runs when it calls the executor.

mod auth;
mod cookie;
mod credentials;
mod decompress;
mod encode;
mod error;
mod executor;
pub(crate) mod fixed_url;
mod json_template;
mod parameter;
mod plan;
mod redirect;
mod request;
mod request_error;
mod response;
mod send;
mod session;
mod settings;
pub(crate) mod status_error;
mod style;
mod template;
mod upstream;

use hyper::header::HeaderName;

pub use auth::{Auth, KeyLocation};
pub use error::RestError;
pub use parameter::{Body, FormField, Parameter, ParameterLocation, Style};
pub use plan::is_set_by_client;
pub use settings::{Redirects, ResponseFormat, Rest};
pub use toolhub_net::{Resolve, Secret, SecretError};
pub use upstream::Upstreams;
#[cfg(feature = "mcp")]
pub(crate) use {
    executor::add_secret_headers,
    plan::Plan,
    request::OutgoingRequest,
    request_error::RequestError as HttpError,
    send::{OpenResponse, ReadLimit, SendOptions, send_request},
};

/// Parses a header name.
fn parse_header_name(name: &str) -> Result<HeaderName, ()> {
    name.parse().map_err(|_| ())
}
