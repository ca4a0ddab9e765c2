//! Absolute links to resources of this server, for responses that are read elsewhere: by a person, or by a model.
//!
//! In: a request and the settings. Out: a URL. `origin_check` has validated the host of the request before.

use axum::http::{HeaderValue, header, request::Parts, uri::Authority};
use toolhub_core::ids::{ApprovalId, CallId, RunId};

use crate::{app::App, extract::FromParts, problem::Problem};

/// The base URL of this server. Built only when needed: most responses contain no link.
#[derive(Clone)]
pub(crate) struct Links {
    app: App,
    host: Option<HeaderValue>,
    /// HTTP/2 sends the host in the URI instead.
    authority: Option<Authority>,
}

impl FromParts for Links {
    fn from_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let host = parts.headers.get(header::HOST).cloned();
        Ok(Self { app: app.clone(), host, authority: parts.uri.authority().cloned() })
    }
}

impl Links {
    /// The URL of an approval.
    pub(crate) fn approval(&self, id: ApprovalId) -> String {
        format!("{}/api/v1/approvals/{id}", self.base_url())
    }

    fn base_url(&self) -> String {
        if let Some(url) = &self.app.settings().public_url {
            return url.trim_end_matches('/').into();
        }
        let host = self.host.as_ref().and_then(|host| host.to_str().ok());
        let host = host.or_else(|| self.authority.as_ref().map(Authority::as_str));
        host.map_or_else(String::new, |host| format!("http://{host}"))
    }
}

/// The path of a call on this server.
pub(crate) fn call_path(id: CallId) -> String {
    format!("/api/v1/calls/{id}")
}

/// The path of a run on this server.
pub(crate) fn run_path(id: RunId) -> String {
    format!("/api/v1/runs/{id}")
}
