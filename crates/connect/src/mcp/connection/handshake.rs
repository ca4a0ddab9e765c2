//! The handshake of a connection, in one of the two eras.
//!
//! In: a transport and an era. Out: a running `rmcp` client and what the server said about itself, or a [`ConnectError`] that says
//! whether the other era may help. Texts of `rmcp` contain whole messages and are never passed on.

use std::sync::Arc;

use rmcp::{
    ClientHandler, ClientLifecycleMode,
    model::{
        ClientCapabilities, ClientConfig, ElicitationCapability, FormElicitationCapability, Implementation,
        ProtocolVersion, UrlElicitationCapability,
    },
    serve_client_with_lifecycle,
    service::{ClientInitializeError, RoleClient, RunningService},
    transport::Transport,
};

use super::{AcceptedInput, ConnectionOptions, ListSupport, PeerFacts};
use crate::{
    command::printable,
    mcp::{
        connect_error::ConnectError,
        era::Era,
        error,
        wire::{EndCause, HttpFailure, HttpHandle, HttpStartError, JsonRpcFailure, Lifecycle, is_busy},
    },
    secret_mask::SecretMask,
};

/// How much of a name or version of a server is shown.
const MAX_NAME_CHARS: usize = 100;

/// The client, as `rmcp` sees it. Messages of the server never get here.
pub(super) struct Handler(ClientConfig);

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        self.0.clone()
    }
}

/// What the client can do for a server.
#[allow(deprecated, reason = "sampling and roots are deprecated in the modern era, but the legacy era has them")]
pub(super) fn capabilities(input: AcceptedInput) -> ClientCapabilities {
    let mut elicitation = ElicitationCapability::new();
    elicitation.form = input.form.then(FormElicitationCapability::new);
    elicitation.url = input.url.then(UrlElicitationCapability::new);
    let mut all = ClientCapabilities::default();
    all.elicitation = (input.form || input.url).then_some(elicitation);
    all.sampling = input.sampling.then(Default::default);
    all.roots = input.roots.then(Default::default);
    all
}

pub(super) async fn run<T: Transport<RoleClient> + 'static>(
    transport: T,
    era: Era,
    options: &ConnectionOptions,
    (lifecycle, secrets): (&Lifecycle, &SecretMask),
) -> Result<RunningService<RoleClient, Handler>, ConnectError> {
    let config = ClientConfig::new(capabilities(options.input), implementation());
    let (config, mode) = match era {
        // The default is a version without `initialize`.
        Era::Legacy => {
            (config.with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE), ClientLifecycleMode::Initialize)
        }
        Era::Modern => {
            (config, ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] })
        }
    };
    let running = serve_client_with_lifecycle(Handler(config), transport, mode).await;
    running.map_err(|error| connect_error(error, lifecycle, secrets))
}

/// The name and version of this client.
pub(super) fn implementation() -> Implementation {
    Implementation::new("toolhub", env!("CARGO_PKG_VERSION"))
}

fn connect_error(error: ClientInitializeError, lifecycle: &Lifecycle, secrets: &SecretMask) -> ConnectError {
    // The transport is gone by now, so `Closed` is our own doing and not the reason.
    let end = lifecycle.reason().filter(|end| !matches!(end.cause, EndCause::Closed));
    match (error, end) {
        (ClientInitializeError::JsonRpcError(error), _) => ConnectError::Refused(JsonRpcFailure {
            code: error.code.0,
            message: secrets.text(error.message.into_owned()).into_owned(),
            data: None,
        }),
        (ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. }, _) => ConnectError::Version {
            offered: server_supported.iter().take(10).map(|version| clip(version.as_str(), secrets)).collect(),
        },
        (_, Some(end)) => ConnectError::Ended(end),
        (ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled, None) => {
            ConnectError::Ended(Arc::new(EndCause::Closed.into()))
        }
        (_, None) => ConnectError::InvalidAnswer,
    }
}

/// Why a connection to an address could not be prepared.
pub(super) fn start_error(error: HttpStartError) -> ConnectError {
    match error {
        HttpStartError::Settings(problems) => {
            ConnectError::Settings(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
        HttpStartError::Credentials(error) => {
            let failure = HttpFailure::Request { error: Box::new(error), sent: false };
            ConnectError::Http { error: Box::new(error::http_error(failure)), reached: false }
        }
    }
}

/// Why the handshake with an address failed.
pub(super) async fn http_error(error: ConnectError, era: Era, handle: &HttpHandle) -> ConnectError {
    let Some(failure) = handle.take_failure() else { return error };
    let reached = matches!(&failure, HttpFailure::Status(response) if !is_busy(response.status));
    // Such a server accepts no POST.
    if reached
        && era == Era::Legacy
        && let Some(instead) = handle.find_http_sse().await
    {
        return ConnectError::HttpSse { instead };
    }
    ConnectError::Http { error: Box::new(error::http_error(failure)), reached }
}

/// What the server said in the handshake.
pub(super) fn facts(
    running: &RunningService<RoleClient, Handler>,
    era: Era,
    secrets: &SecretMask,
) -> Result<PeerFacts, ConnectError> {
    let info = running.peer_info().ok_or(ConnectError::InvalidAnswer)?;
    let version = info.protocol_version.as_str();
    // `rmcp` accepts any version.
    let known = ProtocolVersion::KNOWN_VERSIONS
        .iter()
        .any(|known| known.as_str() == version && known.has_initialize() == (era == Era::Legacy));
    if !known {
        return Err(ConnectError::Version { offered: vec![clip(version, secrets)] });
    }
    let capabilities = &info.capabilities;
    let list = |is_there: bool, reports: Option<bool>| ListSupport { is_there, reports_changes: reports == Some(true) };
    let (tools, prompts) = (capabilities.tools.as_ref(), capabilities.prompts.as_ref());
    let resources = capabilities.resources.as_ref();
    Ok(PeerFacts {
        era,
        protocol_version: version.to_owned(),
        server: info.server_info.as_ref().map(|server| (clip(&server.name, secrets), clip(&server.version, secrets))),
        tools: list(tools.is_some(), tools.and_then(|tools| tools.list_changed)),
        prompts: list(prompts.is_some(), prompts.and_then(|prompts| prompts.list_changed)),
        resources: list(resources.is_some(), resources.and_then(|resources| resources.list_changed)),
        watches_resources: resources.is_some_and(|resources| resources.subscribe == Some(true)),
        completes: capabilities.completions.is_some(),
        sends_logs: capabilities.logging.is_some(),
    })
}

/// A text of a server, without secrets and in bounds.
fn clip(text: &str, secrets: &SecretMask) -> String {
    printable(secrets.text(text).as_bytes()).chars().take(MAX_NAME_CHARS).collect()
}
