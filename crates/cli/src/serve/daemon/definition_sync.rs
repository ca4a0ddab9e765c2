//! Applies the tools and MCP servers that other nodes create, replace and remove over the API.
//!
//! In: changes of their rows in the store. Out: the same definitions in this hub. `created_tools` and `added_servers` make the changes
//! that this node is asked for.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;
use toolhub::{
    HubChange,
    backend::{RowVersion, StoreError, Table, Watcher, rewatch},
    server::ToolChangeError,
    tasks,
};

use super::{Daemon, mcp_servers::ServerChange};
use crate::serve::{
    api_definitions::{self as definitions, Definition, Definitions, Section, Stored, StoredRow},
    api_servers, api_tools,
};

/// Wait before a failed read is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(500);

impl Daemon {
    /// Watches the stored definitions from now on, until the daemon is dropped.
    pub(super) fn watch_definitions(self: &Arc<Self>) {
        let stop = CancellationToken::new();
        if self.definition_watch.set(stop.clone().drop_guard()).is_err() {
            return;
        }
        let daemon = Arc::downgrade(self);
        tasks::spawn("definitions of the API", stop, move |stop| {
            // The first event makes it read them all: they may have changed since they were loaded.
            let changes = daemon.upgrade().map(|daemon| rewatch(&*daemon.backend(), Table::Tools));
            let daemon = daemon.clone();
            changes.map_or_else(|| async {}.boxed(), |changes| follow(daemon, changes, stop).boxed())
        });
    }

    /// The definitions that are in the hub.
    pub(super) fn definitions(&self) -> Stored {
        self.definitions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers a definition that this node has put into the hub and stored, or removed from both.
    pub(super) fn set_definition(&self, section: Section, name: &str, definition: Option<Definition>) {
        let mut known = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        match definition {
            Some(definition) => drop(known.section_mut(section).insert(name.to_owned(), definition)),
            None => drop(known.section_mut(section).remove(name)),
        }
    }

    /// The row of a definition that is to be created.
    ///
    /// # Errors
    /// [`ToolChangeError::NameTaken`] if another node has stored one that is not in this hub yet; it is then put there.
    pub(super) async fn row_to_create(
        &self,
        section: Section,
        name: &str,
    ) -> Result<Option<RowVersion>, ToolChangeError> {
        let row = self.stored_row(section, name).await?;
        let known = self.definitions().section(section).get(name).map(|definition| definition.version);
        match row {
            Some(StoredRow { version, request: Some(_) }) if known != Some(version) => {
                Err(self.resync(ToolChangeError::NameTaken).await)
            }
            row => Ok(row.map(|row| row.version)),
        }
    }

    /// The row of a definition.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn stored_row(&self, section: Section, name: &str) -> Result<Option<StoredRow>, ToolChangeError> {
        let row = definitions::load_one(&self.backend(), section, name, self.hub.now()).await;
        row.map_err(|error| ToolChangeError::Store(error.to_string()))
    }

    /// Applies what another node has stored instead of a change of this one, which failed with `error`.
    pub(super) async fn resync(&self, error: ToolChangeError) -> ToolChangeError {
        if let Err(error) = self.apply_stored().await {
            tracing::debug!(%error, "the definitions of the API cannot be read; the watch repeats it");
        }
        error
    }

    /// Makes the definitions in the hub those of the store. The caller holds `reload_lock`.
    ///
    /// # Errors
    /// When the store fails; nothing has changed then.
    pub(super) async fn apply_stored(&self) -> Result<(), StoreError> {
        let stored = definitions::load_all(&self.backend(), self.hub.now()).await?;
        let known = self.definitions();
        self.apply_servers(&known.servers, &stored.servers).await;
        self.apply_tools(&known.tools, &stored.tools).await;
        *self.definitions.lock().unwrap_or_else(PoisonError::into_inner) = stored;
        Ok(())
    }

    async fn apply_servers(&self, known: &Definitions, stored: &Definitions) {
        if versions(known).eq(versions(stored)) {
            return;
        }
        let loaded = self.loaded();
        let [old, new] = [known, stored].map(|servers| api_servers::merge(&loaded.config, servers));
        if let Err(error) = (ServerChange { old, new }).apply(&self.hub).await {
            tracing::warn!(%error, "MCP servers that were changed over the API of another node are not changed here");
        }
    }

    async fn apply_tools(&self, known: &Definitions, stored: &Definitions) {
        let loaded = self.loaded();
        let is_free = |name: &String| !loaded.config.tools.contains_key(name);
        let is_in_hub = |name: &str| self.hub.get(name).is_some() || self.hub.source(name).is_some();
        let others =
            |base: &str| stored.contains_key(base) || loaded.config.may_have_tool(base) || self.hub.get(base).is_some();
        let removed: BTreeSet<&String> =
            known.keys().filter(|name| is_free(name) && !stored.contains_key(*name)).collect();
        let is_current =
            |name: &String, version| known.get(name).is_some_and(|known| known.version == version) && is_in_hub(name);
        let changed = stored.iter().filter(|(name, definition)| is_free(name) && !is_current(name, definition.version));
        let build = |(name, definition): (&String, &Definition)| {
            let tool = api_tools::build(name, &definition.request, &loaded.config.server.tool_hosts, others);
            let tool =
                tool.inspect_err(|error| tracing::warn!(tool = name, %error, "skipped a tool registered over the API"));
            tool.ok()
        };
        let changed: Vec<_> = changed.collect();
        if removed.is_empty() && changed.is_empty() {
            return;
        }
        let removal = || removed.iter().fold(HubChange::tools_only(), |change, name| change.remove(name.as_str()));
        let tools = || changed.iter().copied().filter_map(build);
        if self.hub.apply(tools().fold(removal(), HubChange::put)).await.is_ok() {
            return;
        }
        // One that cannot be registered does not keep the others away.
        let each = tools().map(|tool| HubChange::tools_only().put(tool));
        for change in [removal()].into_iter().chain(each) {
            if let Err(error) = self.hub.apply(change).await {
                tracing::warn!(%error, "a tool that was changed over the API of another node is not changed here");
            }
        }
    }
}

/// Applies changes until the daemon is dropped.
async fn follow(daemon: Weak<Daemon>, mut changes: Watcher, stop: CancellationToken) {
    while let Some(Some(_)) = stop.run_until_cancelled(changes.next()).await {
        // One read is enough for all changes so far.
        while let Some(Some(_)) = changes.next().now_or_never() {}
        loop {
            let Some(daemon) = daemon.upgrade() else { return };
            let applied = {
                let _guard = daemon.reload_lock.lock().await;
                daemon.apply_stored().await
            };
            drop(daemon);
            let Err(error) = applied else { break };
            tracing::debug!(%error, "the definitions of the API cannot be read; retrying");
            if stop.run_until_cancelled(tokio::time::sleep(RETRY_DELAY)).await.is_none() {
                return;
            }
        }
    }
}

fn versions(definitions: &Definitions) -> impl Iterator<Item = (&String, RowVersion)> {
    definitions.iter().map(|(name, definition)| (name, definition.version))
}

#[cfg(test)]
mod tests;
