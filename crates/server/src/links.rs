//! Absolute links to pages of this server, for people: in responses, events and the log. Never in a text for a model.
//!
//! In: a request and the settings, or the bound address. Out: a URL. `origin_check` has validated the host of the request
//! before.

use std::net::SocketAddr;

use axum::http::{HeaderValue, header, request::Parts, uri::Authority};
use toolhub_core::ids::{ApprovalId, CallId, RunId};

use crate::{app::App, extract::FromParts, problem::Problem, settings::Settings};

/// The path of the dashboard's pages of approvals.
const DASHBOARD_APPROVALS: &str = "/ui/approvals";
/// The path of the pages that only show an approval, for a server without a dashboard.
const READ_ONLY_APPROVALS: &str = "/pages/approvals";

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
    /// The URL of the page of an approval. Opening it answers nothing.
    pub(crate) fn approval(&self, id: ApprovalId) -> String {
        format!("{}/{id}", self.approvals())
    }

    /// The URL of the pages of approvals.
    pub(crate) fn approvals(&self) -> String {
        format!("{}{}", self.base_url(), approvals_path(self.app.settings()))
    }

    /// The URL of this server, as the client reaches it; empty if the request names no host.
    pub(crate) fn base_url(&self) -> String {
        if let Some(url) = public_url(self.app.settings()) {
            return url.into();
        }
        let host = self.host.as_ref().and_then(|host| host.to_str().ok());
        let host = host.or_else(|| self.authority.as_ref().map(Authority::as_str));
        host.map_or_else(String::new, |host| format!("http://{host}"))
    }
}

/// The URL of the pages of approvals, for the log; only the path if the address is not one that a client can use.
pub(crate) fn approval_pages(settings: &Settings, address: SocketAddr) -> String {
    let base = match public_url(settings) {
        Some(url) => url.to_owned(),
        None if address.ip().is_unspecified() => String::new(),
        None => format!("http://{address}"),
    };
    base + approvals_path(settings)
}

fn approvals_path(settings: &Settings) -> &'static str {
    if settings.ui { DASHBOARD_APPROVALS } else { READ_ONLY_APPROVALS }
}

fn public_url(settings: &Settings) -> Option<&str> {
    settings.public_url.as_deref().map(|url| url.trim_end_matches('/'))
}

/// The path of a call on this server.
pub(crate) fn call_path(id: CallId) -> String {
    format!("/api/v1/calls/{id}")
}

/// The path of a run on this server.
pub(crate) fn run_path(id: RunId) -> String {
    format!("/api/v1/runs/{id}")
}
