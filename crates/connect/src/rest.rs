//! Tools that are HTTP requests.
//!
//! In: what an owner says about a request ([`Rest`]). Out: a tool. All logic of HTTP is here: where each argument goes, who the
//! caller claims to be, which addresses may be reached, how many requests a service bears, how long each step may take, what an
//! answer means. Whether and when a call may run is decided before it comes here.

mod auth;
mod cookie;
mod credentials;
mod decompress;
mod encode;
mod error;
mod executor;
mod fixed_url;
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
mod status_error;
mod style;
mod template;
mod upstream;

use hyper::header::HeaderName;

pub use auth::{Auth, KeyLocation};
pub use error::RestError;
pub use parameter::{Body, FormField, Parameter, ParameterLocation, Style};
pub use settings::{Redirects, ResponseFormat, Rest};
pub use toolhub_net::{Resolve, Secret, SecretError};
pub use upstream::Upstreams;

/// A name of a header, if it is one.
fn parse_header_name(name: &str) -> Result<HeaderName, ()> {
    name.parse().map_err(|_| ())
}
