//! The handle of a source: replaces its tools and sets the link of all of them.
//!
//! In: what the source knows. Out: changed tools, statuses and events. Losing the link makes all tools of the source `unavailable` at
//! once; regaining it brings them back, and closes breakers that no person opened.

use std::sync::{Arc, Weak};

use smol_str::SmolStr;
use tokio_util::sync::CancellationToken;

use super::super::ToolHub;
use crate::{
    engine::Engine,
    execution::Tool,
    link::Link,
    registry::{RegistryError, SourceReplacement, ToolBuilder},
    source_lists::{ResourceKey, SourceLists},
    statuses::StatusKey,
};
use toolhub_types::{
    event_kind::EventKind,
    status::{Breaker, BreakerCause, EffectiveStatus, StatusEvent},
    tool::ToolName,
};

/// What a source uses to change its tools. Holds no reference to the hub.
#[derive(Clone)]
pub struct SourceHandle {
    engine: Weak<Engine>,
    name: SmolStr,
    link: Link,
    stop: CancellationToken,
}

impl SourceHandle {
    pub(super) fn new(engine: &Arc<Engine>, name: SmolStr, link: Link, stop: CancellationToken) -> Self {
        Self { engine: Arc::downgrade(engine), name, link, stop }
    }

    /// The name of the source.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The hub; `None` if it was dropped.
    #[must_use]
    pub fn hub(&self) -> Option<ToolHub> {
        self.engine.upgrade().map(|engine| ToolHub { engine })
    }

    /// Cancelled when the source must stop.
    #[must_use]
    pub fn stop_signal(&self) -> &CancellationToken {
        &self.stop
    }

    /// Replaces all tools of the source. Tools whose definition is the same stay as they are, with their running calls; the others
    /// are replaced or removed. Returns why some cannot be registered; these are left out.
    pub async fn replace_tools(&self, tools: Vec<ToolBuilder>) -> Vec<RegistryError> {
        let Some(hub) = self.hub().filter(|_| !self.stop.is_cancelled()) else { return Vec::new() };
        // A source adds no sources.
        let (mut built, _) = hub.build_tools(tools);
        built.tools.iter_mut().for_each(|tool| tool.link = Some(self.link.clone()));
        let (registry, states) = (&hub.engine.registry, &hub.engine.services.state);
        let replaced = registry.replace_source_tools(&self.name, built, states, &self.stop);
        let Some(SourceReplacement { before, after, refused }) = replaced else { return Vec::new() };
        hub.finish_change(&before, &after).await;
        refused
    }

    /// Whether a name belongs to another source, which may add a tool of this name.
    #[must_use]
    pub fn is_reserved(&self, name: &ToolName) -> bool {
        self.hub().is_some_and(|hub| hub.engine.registry.other_owner(&self.name, name).is_some())
    }

    /// Replaces what the source brings besides tools. The tools that read it are registered with
    /// [`replace_tools`](Self::replace_tools). Returns what is left out, and why: what belongs to another source, or to the hub.
    pub fn replace_lists(&self, lists: SourceLists) -> Vec<String> {
        match self.hub().filter(|_| !self.stop.is_cancelled()) {
            Some(hub) => hub.engine.source_lists.replace(&self.name, lists, &hub.engine.registry),
            None => Vec::new(),
        }
    }

    /// A resource of the source has changed; who subscribed to it hears of it.
    pub fn resource_updated(&self, uri: &str) {
        if let Some(hub) = self.hub() {
            let key = ResourceKey { source: self.name.clone(), uri: uri.to_owned() };
            hub.engine.source_lists.watches.updated(&key);
        }
    }

    /// The service is connected: the tools of the source can be called.
    pub async fn connected(&self) {
        let Some(hub) = self.hub() else { return };
        let tools = self.tools_with_status(&hub);
        if !self.link.connect() {
            return;
        }
        tracing::info!(source = self.name.as_str(), tools = count_listed(&tools), "source of tools connected");
        self.emit_changes(&hub, &tools);
        let server_name = self.name.to_string();
        hub.emit(EventKind::ServerConnected { server_name, tools: count_listed(&tools) });
        let statuses = &hub.engine.statuses;
        for (tool, _) in tools {
            let key = StatusKey::shared(&tool.definition.name);
            let is_healthy = statuses.facts(&key).is_some_and(|facts| match &facts.breaker {
                // A breaker opened by an operator stays open.
                Breaker::Open { cause, .. } => !matches!(cause, BreakerCause::ByHand { .. }),
                Breaker::Closed => false,
            });
            // If the store does not accept it, the breaker stays open for its time.
            if is_healthy && let Err(error) = statuses.apply(&key, &StatusEvent::Healthy).await {
                tracing::debug!(%error, "the status of a tool was not updated");
            }
        }
    }

    /// The service is not connected, or an attempt to connect failed: the tools of the source are `unavailable` for this reason.
    pub fn disconnected(&self, cause: impl Into<String>) {
        let Some(hub) = self.hub() else { return };
        let (tools, cause) = (self.tools_with_status(&hub), cause.into());
        let was_connected = self.link.disconnect(cause.clone(), hub.engine.services.clock.instant());
        if was_connected {
            tracing::warn!(source = self.name.as_str(), tools = count_listed(&tools), %cause, "source of tools disconnected");
            self.emit_changes(&hub, &tools);
            hub.emit(EventKind::ServerDisconnected {
                server_name: self.name.to_string(),
                tools: count_listed(&tools),
                reason: cause,
            });
        }
    }

    /// Before each run: a run that panicked has left the link as it was.
    pub(super) fn reset_link(&self) {
        if self.link.is_connected() {
            self.disconnected("its supervisor was restarted");
        }
    }

    /// The tools of the source, with their shared statuses.
    fn tools_with_status(&self, hub: &ToolHub) -> Vec<(Arc<Tool>, EffectiveStatus)> {
        let tools = hub.tools();
        let own = tools.iter().filter(|tool| tool.source() == Some(self.name.as_str())).cloned();
        own.map(|tool| (tool.clone(), hub.shared_status(&tool))).collect()
    }

    /// Emits the statuses that have changed since then, and wakes calls and agents that wait for a change.
    fn emit_changes(&self, hub: &ToolHub, before: &[(Arc<Tool>, EffectiveStatus)]) {
        for (tool, before) in before.iter().filter(|(tool, _)| !tool.unlisted) {
            hub.emit_status_change(&tool.definition.name, before, &hub.shared_status(tool));
        }
        hub.engine.statuses.notify_changed();
    }
}

fn count_listed(tools: &[(Arc<Tool>, EffectiveStatus)]) -> usize {
    tools.iter().filter(|(tool, _)| !tool.unlisted).count()
}
