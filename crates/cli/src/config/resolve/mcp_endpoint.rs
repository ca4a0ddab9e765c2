//! Resolves `[mcp_endpoint]`.

use toolhub::server::McpSettings;

use super::{
    super::{
        raw::{self, RawConfig},
        suggest::closest,
        tree::Path,
    },
    Diagnostics,
};

pub(super) fn resolve(raw: &RawConfig, diagnostics: &mut Diagnostics<'_>) -> McpSettings {
    let raw::McpEndpoint {
        enabled,
        toolset,
        mode,
        approval,
        task_after,
        session_idle,
        max_sessions,
        max_sessions_per_caller,
    } = &raw.mcp_endpoint;
    let toolset = toolset.as_ref().filter(|name| !name.is_empty());
    if let Some(name) = toolset.filter(|name| !raw.toolsets.contains_key(*name)) {
        let help = match closest(name, raw.toolsets.keys().map(String::as_str)) {
            Some(known) => format!("did you mean {known:?}?"),
            None => format!("add [toolsets.{name}] with its `tools`, or omit `toolset` for every tool"),
        };
        diagnostics.report(&Path::of(["mcp_endpoint", "toolset"]), format!("there is no toolset `{name}`"), help);
    }
    let mut settings = McpSettings::default();
    settings.enabled = *enabled;
    settings.toolset = toolset.cloned();
    settings.mode = *mode;
    settings.approval = *approval;
    settings.task_after = task_after.0;
    settings.session_idle = session_idle.0;
    settings.max_sessions = super::to_usize(*max_sessions);
    settings.max_sessions_per_caller = super::to_usize(*max_sessions_per_caller);
    settings
}
