//! The server of an MCP tool.
//!
//! In: the keys of its file. Out: the keys of its server in its section.

use super::{super::tree::Value, keys::text, rest_section, tool_section::ToolReader};

/// Reads the server. `false` if there is none.
pub(super) fn read(reader: &mut ToolReader<'_, '_>) -> bool {
    let url = reader.keys.take("mcp_server_url").or_else(|| reader.settings.server_url.take());
    let url = url.or_else(|| reader.settings.base_url.take());
    let name = reader.settings.server_name.take();
    match (url.filter(|node| text(node) != Some("")), name) {
        (Some(url), name) => {
            if let Some(name) = name {
                reader.findings.note(&name.key_origin, "`serverName` was left out, because the server has an address");
            }
            let url = rest_section::with_defaults(url, reader);
            let variable = format!("{}_SECRET_URL", reader.name);
            let url = reader.secrets.address(url, "mcp_server_url", &variable, reader.findings);
            reader.set("server_url", url);
            rest_section::read_headers(reader);
            rest_section::read_auth(reader);
        }
        (None, Some(name)) => {
            let text = format!("the tool belongs to [mcp_servers.{}] of the config", text(&name).unwrap_or("NAME"));
            reader.findings.note(&name.key_origin, text);
            reader.set("server", name);
        }
        (None, None) => return false,
    }
    if let Some(tool) = reader.settings.tool.take() {
        reader.set("tool", tool);
    }
    if let Some(dynamic) = reader.keys.take("dynamic_schema")
        && matches!(dynamic.value, Value::Bool(true))
        && reader.section.remove("parameters").is_some()
    {
        let text = "`dynamic_schema`: the schema of the server is used, not that of this file";
        reader.findings.note(&dynamic.key_origin, text);
    }
    if let Some(interval) = reader.keys.take("refresh_interval") {
        let text = "`refresh_interval` was left out: a server says when its tools change, and its list is read again";
        reader.findings.note(&interval.key_origin, text);
    }
    true
}
