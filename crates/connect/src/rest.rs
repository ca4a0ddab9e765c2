//! Tools that are HTTP requests.
//!
//! In: what an owner says about a request ([`Rest`]). Out: a tool. All logic of HTTP is here: where each argument goes, who the
//! caller claims to be, which addresses may be reached, how many requests a service bears, how long each step may take, what an
//! answer means. Whether and when a call may run is decided before it comes here.

mod address;
mod answer;
mod auth;
mod cookie;
mod credentials;
mod encode;
mod error;
mod executor;
mod leaf;
mod place;
mod plan;
mod redirect;
mod refusal;
mod request;
mod send;
mod session;
mod settings;
mod style;
mod template;
mod trouble;
mod unpack;
mod upstream;

use hyper::header::HeaderName;

pub use auth::{Auth, KeyPlace};
pub use error::RestError;
pub use place::{Body, FormField, Parameter, Place, Style};
pub use settings::{Answer, Redirects, Rest};
pub use toolhub_net::{Resolve, Secret, SecretError};
pub use upstream::Upstreams;

/// A name of a header, if it is one.
fn header_name(name: &str) -> Result<HeaderName, ()> {
    name.parse().map_err(|_| ())
}
