//! `mcp remove`: removes an MCP server from the hub, or its section from the config file.
//!
//! In: a name. Out: a hub without the server. One that was added through the API is removed there; one in the config file is removed
//! from the file, whose other lines stay as they are.

use std::path::PathBuf;

use axum::http::Method;
use serde_json::json;

use super::{ServerName, send};
use crate::{client::Request, commands::import::config_file, exit::Exit, failure::Failure, session::Session};

pub(super) async fn run(session: &Session, ServerName { name }: &ServerName) -> Result<Exit, Failure> {
    // The store is opened only for a server that is not in the config file: that needs the variables of the config.
    let is_running = session.server_client().await?.is_some();
    let file = match is_running {
        true => None,
        false => config_file::remove_mcp_server(&session.global.load_options()?, name).await.unwrap_or_default(),
    };
    let file = match file {
        Some(file) => Some(file),
        None => remove_from_hub(session, name).await?,
    };
    let printer = &session.printer;
    if printer.json {
        let file = file.map(|file| file.display().to_string());
        printer.print_json(&json!({"removed": name, "file": file}).to_string());
        return Ok(Exit::Success);
    }
    match &file {
        None => printer.print(&format!("removed  {name}")),
        Some(file) => {
            printer.print_untrusted(&format!("removed from {}: {name}", file.display()));
            if is_running {
                printer.note(&format!("reload the server: toolhub reload{}", session.target_flags()));
            }
        }
    }
    Ok(Exit::Success)
}

/// Removes the server from the hub; or from the config file of this machine, which is returned, if the hub has it from there.
async fn remove_from_hub(session: &Session, name: &str) -> Result<Option<PathBuf>, Failure> {
    match send(session, Request::new(Method::DELETE, ["mcp-servers", name]), "remove", name).await {
        Ok(_) => Ok(None),
        // A server of another machine has another config.
        Err(failure) if failure.code == "conflict" && session.global.server.is_none() => {
            let removed = config_file::remove_mcp_server(&session.global.load_options()?, name).await?;
            removed.map(Some).ok_or(failure)
        }
        Err(failure) => Err(failure),
    }
}
