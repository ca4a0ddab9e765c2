//! Links to things of this server, for answers that are read elsewhere: by a person, or by a model.
//!
//! In: a request and what the owner says. Out: an address. The host of a request was checked by the guard before.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    http::{header, request::Parts},
};
use toolhub_core::ids::{ApprovalId, CallId, RunId};

use crate::{app::App, extract::Describe, openapi::Operation};

/// The address this server is reached by.
#[derive(Debug, Clone)]
pub(crate) struct Links(String);

impl Describe for Links {
    fn describe(_: &mut Operation<'_>) {}
}

impl FromRequestParts<App> for Links {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        if let Some(url) = &app.settings().public_url {
            return Ok(Self(url.trim_end_matches('/').into()));
        }
        // HTTP/2 has it in the address instead.
        let authority = parts.uri.authority().map(ToString::to_string);
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
        Ok(Self(host.or(authority).map_or_else(String::new, |host| format!("http://{host}"))))
    }
}

impl Links {
    /// Where a question can be looked at, and answered.
    pub(crate) fn approval(&self, id: ApprovalId) -> String {
        format!("{}/api/v1/approvals/{id}", self.0)
    }
}

/// Where a call can be looked at, on this server.
pub(crate) fn call(id: CallId) -> String {
    format!("/api/v1/calls/{id}")
}

/// Where a run can be looked at, on this server.
pub(crate) fn run(id: RunId) -> String {
    format!("/api/v1/runs/{id}")
}
