//! What a server has beyond what every server has, so that a client such as the dashboard can leave out what is missing.
//!
//! In: the settings. Out: names. A name that a client does not know means nothing to it.

use crate::app::App;

/// The names of this server's features.
pub(crate) fn of(app: &App) -> Vec<&'static str> {
    let settings = app.settings();
    let always = ["event_rate", "metrics_tick"];
    let optional = [
        // `GET /api/v1/config`, reloads, backups, tools and MCP servers added at run time.
        ("host_control", app.host_control().is_some()),
        ("mcp_endpoint", settings.mcp.enabled),
        ("metrics", settings.metrics),
        ("ui", settings.ui),
    ];
    always.into_iter().chain(optional.into_iter().filter(|(_, has)| *has).map(|(name, _)| name)).collect()
}
