//! The handshake of a connection, in one of the two eras.
//!
//! In: a transport and an era. Out: a running `rmcp` client and what the server said about itself, or a [`ConnectError`] that says
//! whether the other era may help. Texts of `rmcp` contain whole messages and are never passed on.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ClientHandler, ClientLifecycleMode,
    model::{
        ClientCapabilities, ClientConfig, ElicitationCapability, ErrorCode, FormElicitationCapability, Implementation,
        ProtocolVersion, UrlElicitationCapability,
    },
    serve_client_with_lifecycle,
    service::{ClientInitializeError, RoleClient, RunningService},
    transport::Transport,
};

use toolhub_core::ToolError;

use super::{AcceptedInput, ConnectionOptions, PeerFacts};
use crate::{
    command::{CommandError, printable},
    mcp::{
        era::Era,
        wire::{End, EndCause, HttpHandle, HttpStartError, JsonRpcFailure, Lifecycle},
    },
    rest::HttpError,
    secret_mask::SecretMask,
};

/// How much of a name or version of a server is shown.
const MAX_NAME_CHARS: usize = 100;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// The program could not be started.
    #[error("{}", start_text(.0))]
    Start(CommandError),
    /// The settings of the address are invalid.
    #[error("{0}")]
    Settings(String),
    /// A request of the handshake failed. `reached`: the server responded.
    #[error("{error}")]
    Http { error: Box<ToolError>, reached: bool },
    /// The server speaks only HTTP+SSE.
    #[error(
        "the server speaks only HTTP+SSE, which is not supported; use its streamable HTTP address: try `url = \"{instead}\"`"
    )]
    HttpSse { instead: String },
    /// The server answered the handshake with an error.
    #[error("the server refused the handshake: {} (code {})", .0.message, .0.code)]
    Refused(JsonRpcFailure),
    /// The server speaks no protocol version that this client knows.
    #[error("the server speaks no MCP version that toolhub knows; it offers: {}", .offered.join(", "))]
    Version { offered: Vec<String> },
    /// The answer to the handshake is not as the protocol says.
    #[error("the server answered the handshake with something else than the MCP protocol says")]
    InvalidAnswer,
    /// The server did not complete the handshake in time.
    #[error(
        "the server did not complete the handshake within {0:?}; if it needs longer to start, raise `startup_timeout`"
    )]
    Silent(Duration),
    /// The connection ended before the handshake was complete.
    #[error("{0}")]
    Ended(Arc<End>),
}

impl ConnectError {
    /// Whether a server that was asked in the modern era may be one of the legacy era: it refused without a modern error code,
    /// exited, did not answer, or answered something else.
    pub(crate) fn suggests_legacy(&self) -> bool {
        let modern = [ErrorCode::HEADER_MISMATCH, ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY];
        match self {
            Self::Start(_) | Self::Settings(_) | Self::HttpSse { .. } => false,
            Self::Http { reached, .. } => *reached,
            Self::Refused(failure) => !modern.contains(&ErrorCode(failure.code)),
            Self::Version { offered } => offered.iter().any(|version| is_legacy(version)),
            Self::InvalidAnswer | Self::Silent(_) => true,
            Self::Ended(end) => !self.needs_credentials() && !matches!(end.cause, EndCause::Unreachable(_)),
        }
    }

    /// Whether the server refused the credentials, or their absence.
    pub(crate) fn needs_credentials(&self) -> bool {
        matches!(self, Self::Ended(end) if matches!(end.cause, EndCause::Unauthorized(_)))
    }

    /// Whether a server that was asked in the legacy era may be one of the modern era: it refused, or speaks another version.
    pub(crate) fn suggests_modern(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Version { .. } | Self::InvalidAnswer | Self::Http { reached: true, .. })
    }
}

/// The search path is not for everybody who may see the reason of a tool's status.
fn start_text(error: &CommandError) -> String {
    match error {
        CommandError::NotInPath { program, .. } => {
            format!("program `{program}` not found in PATH; install it, or use its absolute path as `command`")
        }
        other => other.to_string(),
    }
}

fn is_legacy(version: &str) -> bool {
    ProtocolVersion::KNOWN_VERSIONS.iter().any(|known| known.has_initialize() && known.as_str() == version)
}

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
    let client = Implementation::new("toolhub", env!("CARGO_PKG_VERSION"));
    let config = ClientConfig::new(capabilities(options.input), client);
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
            ConnectError::Http { error: Box::new(error.into_tool_error(false)), reached: false }
        }
    }
}

/// Why the handshake with an address failed.
pub(super) async fn http_error(error: ConnectError, era: Era, handle: &HttpHandle) -> ConnectError {
    let Some((failure, sent)) = handle.take_failure() else { return error };
    let reached = matches!(failure, HttpError::Tool(_));
    // Such a server accepts no POST.
    if reached
        && era == Era::Legacy
        && let Some(instead) = handle.find_http_sse().await
    {
        return ConnectError::HttpSse { instead };
    }
    ConnectError::Http { error: Box::new(failure.into_tool_error(sent)), reached }
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
    let tools = info.capabilities.tools.as_ref();
    Ok(PeerFacts {
        era,
        protocol_version: version.to_owned(),
        server: info.server_info.as_ref().map(|server| (clip(&server.name, secrets), clip(&server.version, secrets))),
        has_tools: tools.is_some(),
        reports_list_changes: tools.is_some_and(|tools| tools.list_changed == Some(true)),
        sends_logs: info.capabilities.logging.is_some(),
    })
}

/// A text of a server, without secrets and in bounds.
fn clip(text: &str, secrets: &SecretMask) -> String {
    printable(secrets.text(text).as_bytes()).chars().take(MAX_NAME_CHARS).collect()
}
