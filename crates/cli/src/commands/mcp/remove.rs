//! `mcp remove`: removes an MCP server from the hub, or its section from the config file.
//!
//! In: a name. Out: a hub without the server. One that was added through the API is removed there; one in the config file is removed
//! from the file, whose other lines stay as they are.

use axum::http::Method;
use serde_json::json;

use super::{ServerName, send};
use crate::{client::Request, commands::import::config_file, exit::Exit, failure::Failure, session::Session};

pub(super) async fn run(session: &Session, ServerName { name }: &ServerName) -> Result<Exit, Failure> {
    let removed = send(session, Request::new(Method::DELETE, ["mcp-servers", name]), "remove", name).await;
    let printer = &session.printer;
    let file = match removed {
        Ok(_) => None,
        Err(failure) if failure.code == "conflict" => {
            // A server of another machine has another config.
            let options = match session.global.server {
                Some(_) => return Err(failure),
                None => session.global.load_options()?,
            };
            Some(config_file::remove_mcp_server(&options, name).await?.ok_or(failure)?)
        }
        Err(failure) => return Err(failure),
    };
    if printer.json {
        let file = file.map(|file| file.display().to_string());
        printer.print_json(&json!({"removed": name, "file": file}).to_string());
        return Ok(Exit::Success);
    }
    match &file {
        None => printer.print(&format!("removed  {name}")),
        Some(file) => {
            printer.print_untrusted(&format!("removed from {}: {name}", file.display()));
            if session.client().await?.server_url().is_some() {
                printer.note(&format!("reload the server: toolhub reload{}", session.target_flags()));
            }
        }
    }
    Ok(Exit::Success)
}
