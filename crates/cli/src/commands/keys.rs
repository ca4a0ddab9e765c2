//! `keys`: creates, lists and revokes API keys.

use std::time::Duration;

use axum::http::Method;
use clap::{Subcommand, builder::PossibleValuesParser};
use serde_json::{Value, json};
use toolhub::{
    clock::{Clock as _, SystemClock},
    config::KeyPath,
    server::{NewKey, Scope},
};

use super::paging::{self, Paging, pointer_text};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    global,
    local_hub::LocalHub,
    output::{Column, Table, format_ago, format_remaining},
    session::Session,
};

/// Create, list and revoke API keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key: in the running server, or as lines for the config
    Create(Create),
    /// List the keys: of the config, and created in the server
    #[command(alias = "ls")]
    List,
    /// Revoke a key immediately
    #[command(alias = "rm")]
    Revoke {
        /// Id of the key
        id: String,
    },
}

/// Create a key.
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// Name of its holder
    name: String,
    /// Scope of the key; repeatable
    #[arg(long = "scope", value_name = "SCOPE", default_values = ["tools:read", "tools:call"],
          value_parser = PossibleValuesParser::new(Scope::ALL.map(Scope::as_str)))]
    scopes: Vec<String>,
    /// Tenant whose threads and state it can access
    #[arg(long, value_name = "TENANT", default_value = "main")]
    tenant: String,
    /// Lifetime, e.g. 90d
    #[arg(long, value_name = "TIME", value_parser = global::parse_duration)]
    expires_in: Option<Duration>,
}

const COLUMNS: [Column; 6] = [
    Column::new("ID"),
    Column::new("NAME"),
    Column::new("TENANT").drop_order(2),
    Column::new("SCOPES").drop_order(1).shrink_to(12),
    Column::new("LAST USED").drop_order(3),
    Column::new("EXPIRES").drop_order(4),
];

pub(crate) async fn run(session: &Session, command: KeysCommand) -> Result<Exit, Failure> {
    match command {
        KeysCommand::Create(create) => match session.server_client().await? {
            Some(_) => create_in_server(session, &create).await,
            None => create_for_config(session, &create),
        },
        KeysCommand::List => list_keys(session).await,
        KeysCommand::Revoke { id } => {
            let add_help = |failure: Failure| match failure.code.as_str() {
                "key_not_found" => {
                    failure.help("toolhub keys list; keys of the config are revoked by removing them from its file")
                }
                _ => failure,
            };
            session.send_checked(Request::new(Method::DELETE, ["keys", &id])).await.map_err(add_help)?;
            if session.printer.json {
                session.printer.print_json(&json!({"revoked": id}).to_string());
            } else {
                session.printer.note(&format!("{id} is revoked"));
            }
            Ok(Exit::Success)
        }
    }
}

async fn create_in_server(session: &Session, create: &Create) -> Result<Exit, Failure> {
    let mut body = json!({"name": create.name, "tenant": create.tenant, "scopes": create.scopes});
    if let Some(lifetime) = create.expires_in {
        body["expiresIn"] = format!("{}s", lifetime.as_secs()).into();
    }
    let response = session.send_checked(Request::post(["keys"]).body(body)).await?;
    if session.printer.json {
        session.printer.print_json(&response.text());
    } else {
        session.printer.print(&pointer_text(&response.json()?, "/key"));
        session.printer.note("the key is shown only once and not stored; pass it with --token or TOOLHUB_TOKEN");
    }
    Ok(Exit::Success)
}

/// No server runs: prints the key for its holder, and its hash for the config.
fn create_for_config(session: &Session, create: &Create) -> Result<Exit, Failure> {
    let new_key = NewKey::make().map_err(|error| Failure::unexpected(format!("cannot create a key: {error}")))?;
    let mut lines = format!(
        "[[auth.keys]]\nname = {}\ntenant = {}\nhash = {}\nscopes = {}\n",
        json!(create.name),
        json!(create.tenant),
        json!(new_key.hash),
        json!(create.scopes)
    );
    let expires = create.expires_in.map(|lifetime| SystemClock.now() + lifetime);
    lines.extend(expires.map(|timestamp| format!("expires = {}\n", json!(timestamp))));
    if session.printer.json {
        let document = json!({"name": create.name, "tenant": create.tenant, "scopes": create.scopes, "key": new_key.key,
            "hash": new_key.hash, "expiresAt": expires, "config": lines});
        session.printer.print_json(&document.to_string());
        return Ok(Exit::Success);
    }
    session.printer.print(&new_key.key);
    let intro = "the key is shown only once and not stored. No server is running, so";
    let note = match auth_of_config(session) {
        ConfigAuth::Absent => format!("{intro} add this to toolhub.toml:\n\n[auth]\nmode = \"keys\"\n\n{lines}"),
        ConfigAuth::Other => {
            format!(
                "{intro} set mode = \"keys\" in the section [auth] of toolhub.toml, and add this at the end of the file:\n\n{lines}"
            )
        }
        ConfigAuth::Keys => format!("{intro} add this at the end of toolhub.toml:\n\n{lines}"),
    };
    session.printer.note(&note);
    Ok(Exit::Success)
}

/// What the config says about authentication.
enum ConfigAuth {
    /// Nothing; or there is no config.
    Absent,
    /// It has the section `[auth]`, with another mode.
    Other,
    /// It requires keys.
    Keys,
}

fn auth_of_config(session: &Session) -> ConfigAuth {
    let Ok(Some(local)) = LocalHub::find_partial(&session.global) else { return ConfigAuth::Absent };
    match local.loaded.tree.get(&KeyPath::of(["auth"])) {
        _ if local.requires_keys() => ConfigAuth::Keys,
        Some(_) => ConfigAuth::Other,
        None => ConfigAuth::Absent,
    }
}

async fn list_keys(session: &Session) -> Result<Exit, Failure> {
    let Some(keys) = paging::fetch_items(session, Request::get(["keys"]), &Paging::all()).await? else {
        return Ok(Exit::Success);
    };
    let (printer, now) = (&session.printer, SystemClock.now());
    if keys.is_empty() {
        printer.note("no keys");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(COLUMNS);
    for key in &keys {
        let scopes: Vec<&str> = key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let non_empty = |at: String, format: &dyn Fn(&str) -> String| if at.is_empty() { at } else { format(&at) };
        table.add_row([
            pointer_text(key, "/id"),
            pointer_text(key, "/name"),
            pointer_text(key, "/tenant"),
            scopes.join(" "),
            non_empty(pointer_text(key, "/lastUsedAt"), &|at| format_ago(at, now)),
            non_empty(pointer_text(key, "/expiresAt"), &|at| format_remaining(at, now)),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    Ok(Exit::Success)
}
