//! Reads the lists of a connected server and passes them on to the hub.

use std::time::Duration;

use tokio::time::Instant;
use toolhub_core::SourceHandle;

use super::DEFAULT_RELIST;
use crate::mcp::{
    catalog::{self, CatalogOptions, ListReader, RawList, Step},
    connection::Connection,
    era::Era,
    error,
    list_kind::ListKind,
    registration,
    source::McpSource,
};

/// Bounds of what a server says about when to read its list again.
pub(super) const MIN_RELIST: Duration = Duration::from_secs(30);
const MAX_RELIST: Duration = Duration::from_secs(3600);
/// How long all lists besides that of the tools may take.
const OTHER_LISTS_TIMEOUT: Duration = Duration::from_secs(20);
/// When a busy server is asked again that does not say when.
const BUSY_DELAY: Duration = Duration::from_secs(5);

/// Why a list cannot be read.
pub(super) struct ListFailure {
    pub(super) cause: String,
    /// When to ask again, if the server has too much to do.
    pub(super) busy_for: Option<Duration>,
}

impl From<String> for ListFailure {
    fn from(cause: String) -> Self {
        Self { cause, busy_for: None }
    }
}

/// Reads the whole list and registers its tools. Returns when to read it again.
pub(super) async fn list(
    source: &McpSource,
    handle: &SourceHandle,
    connection: &Connection,
) -> Result<Duration, ListFailure> {
    let (facts, deadline) = (connection.facts(), Instant::now() + source.server.startup_timeout);
    let raw = if facts.tools.is_there {
        read_list(source, connection, ListKind::Tools, deadline).await?
    } else {
        RawList::default()
    };
    let ttl = raw.ttl;
    let secrets = connection.secrets().named.clone();
    let param_headers = facts.era == Era::Modern && source.connections.is_http();
    let named = source.single_tools().names.clone();
    let options = CatalogOptions { named, secrets, param_headers, ..source.catalog_options.clone() };
    let catalog = catalog::read(raw, options).await;
    registration::register(source, handle, catalog).await.map_err(|error| error.to_string())?;
    Ok(relist_after(ttl, reports_all_lists(source, connection)))
}

/// When a list is read again that is valid for `ttl`, by what its server says.
fn relist_after(ttl: Option<Duration>, reports_changes: bool) -> Duration {
    let ttl = ttl.map_or(MAX_RELIST, |ttl| ttl.clamp(MIN_RELIST, MAX_RELIST));
    if reports_changes { ttl } else { ttl.min(DEFAULT_RELIST) }
}

/// Reads all pages of a list.
async fn read_list(
    source: &McpSource,
    connection: &Connection,
    kind: ListKind,
    deadline: Instant,
) -> Result<RawList, ListFailure> {
    let mut reader = ListReader::new(kind, source.server.max_tools);
    let mut cursor = None;
    loop {
        let started = Instant::now();
        let page = tokio::time::timeout_at(deadline, connection.list_page(kind, cursor)).await;
        if kind == ListKind::Tools {
            source.connections.meters.record_list(started.elapsed());
        }
        let page = page.map_err(|_| format!("the server does not answer `{}` in time", kind.method()))?;
        let secrets = &connection.secrets().all;
        let page = page.map_err(|error| {
            let is_busy = error.is_busy();
            let error = secrets.error(error::request_error(error, true));
            let busy_for = is_busy.then(|| error.retry_after.unwrap_or(BUSY_DELAY));
            ListFailure { cause: error.to_string(), busy_for }
        })?;
        match reader.add(page).await.map_err(|error| error.to_string())? {
            Step::Next(next, after) => (reader, cursor) = (next, Some(after)),
            Step::Done(list) => return Ok(list),
        }
    }
}

/// Which lists besides that of the tools are read.
#[derive(Clone, Copy)]
pub(super) struct OtherLists {
    pub(super) prompts: bool,
    pub(super) resources: bool,
}

impl OtherLists {
    /// Those that the owner asked for and the server has.
    pub(super) fn all(source: &McpSource, connection: &Connection) -> Self {
        let facts = connection.facts();
        Self {
            prompts: source.server.prompts && facts.prompts.is_there,
            resources: source.server.resources && facts.resources.is_there,
        }
    }
}

/// Reads lists besides that of the tools. One that cannot be read stays as it was: the tools are more important.
pub(super) async fn list_others(
    source: &McpSource,
    handle: &SourceHandle,
    connection: &Connection,
    wanted: OtherLists,
) {
    let secrets = &connection.secrets().named;
    let mut lists = source.status().lists.clone();
    // Meanwhile the list of the tools is not read.
    let deadline = Instant::now() + source.server.startup_timeout.min(OTHER_LISTS_TIMEOUT);
    if wanted.prompts {
        match read_list(source, connection, ListKind::Prompts, deadline).await {
            Ok(list) => lists.set_prompts(list, source.server.tool_prefix(), secrets).await,
            Err(failure) => log_unlisted(source, &failure),
        }
    }
    if wanted.resources {
        match read_list(source, connection, ListKind::Resources, deadline).await {
            Ok(resources) => {
                // Many servers with resources do not know the method.
                let templates = read_list(source, connection, ListKind::Templates, deadline).await.unwrap_or_default();
                lists.set_resources(resources, templates, secrets).await;
            }
            Err(failure) => log_unlisted(source, &failure),
        }
    }
    let mut status = source.status();
    status.lists = lists;
    if wanted.prompts || wanted.resources {
        status.publish_lists(handle);
    }
}

fn log_unlisted(source: &McpSource, ListFailure { cause, .. }: &ListFailure) {
    tracing::warn!(server = source.server.name, cause, "prompts or resources of an MCP server cannot be listed");
}

/// Whether the server reports changes of each list that is read.
fn reports_all_lists(source: &McpSource, connection: &Connection) -> bool {
    let (facts, others) = (connection.facts(), OtherLists::all(source, connection));
    facts.tools.reports_changes
        && (!others.prompts || facts.prompts.reports_changes)
        && (!others.resources || facts.resources.reports_changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_again_as_its_server_says_within_bounds() {
        let after = |ttl: Option<u64>, reports| relist_after(ttl.map(Duration::from_secs), reports).as_secs();
        assert_eq!([after(Some(0), true), after(Some(45), true), after(Some(90_000), true)], [30, 45, 3_600]);
        assert_eq!([after(None, true), after(None, false)], [3_600, 600]);
        assert_eq!([after(Some(45), false), after(Some(90_000), false)], [45, 600]);
    }
}
