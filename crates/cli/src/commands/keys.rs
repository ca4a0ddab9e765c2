//! `keys`: who may use the server.

use std::time::Duration;

use axum::http::Method;
use clap::Subcommand;
use serde_json::{Value, json};
use toolhub::{
    clock::{Clock as _, SystemClock},
    server::NewKey,
};

use super::paging::{self, Paging, pointer_text};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    global,
    output::{Column, Table, format_ago, format_remaining},
    session::Session,
};

/// Make, list and revoke the keys of clients.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key: in the server that runs, or lines for the config
    Create(Create),
    /// List the keys that were made in the server
    #[command(alias = "ls")]
    List,
    /// Take a key back, at once
    #[command(alias = "rm")]
    Revoke {
        /// The key's id
        id: String,
    },
}

/// Make a key.
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// What to call its holder
    name: String,
    /// What it may do; several times for several things
    #[arg(long = "scope", value_name = "SCOPE", default_values = ["tools:read", "tools:call"],
          value_parser = ["tools:read", "tools:call", "approvals:write", "state:read", "state:write", "admin"])]
    scopes: Vec<String>,
    /// Whose threads and states it sees
    #[arg(long, value_name = "TENANT", default_value = "main")]
    tenant: String,
    /// When it ends, such as 90d from now
    #[arg(long, value_name = "TIME", value_parser = global::time)]
    expires_in: Option<Duration>,
}

const COLUMNS: [Column; 6] = [
    Column::new("ID"),
    Column::new("NAME"),
    Column::new("TENANT").drop_order(2),
    Column::new("SCOPES").drop_order(1).shrink_to(12),
    Column::new("LAST USED").drop_order(3),
    Column::new("LEFT").drop_order(4),
];

pub(crate) async fn run(session: &Session, asked: KeysCommand) -> Result<Exit, Failure> {
    match asked {
        KeysCommand::Create(create) => match session.server_client().await? {
            Some(_) => create_in_server(session, &create).await,
            None => create_for_config(session, &create),
        },
        KeysCommand::List => list_keys(session).await,
        KeysCommand::Revoke { id } => {
            let wrong = |failure: Failure| match failure.code.as_str() {
                "key_not_found" => failure.help("toolhub keys list; a key of the config is taken back in its file"),
                _ => failure,
            };
            session.send_checked(Request::new(Method::DELETE, ["keys", &id])).await.map_err(wrong)?;
            if session.printer.json {
                session.printer.print_json(&json!({"revoked": id}).to_string());
            } else {
                session.printer.note(&format!("{id} is taken back"));
            }
            Ok(Exit::Success)
        }
    }
}

async fn create_in_server(session: &Session, create: &Create) -> Result<Exit, Failure> {
    let mut body = json!({"name": create.name, "tenant": create.tenant, "scopes": create.scopes});
    if let Some(time) = create.expires_in {
        body["expiresIn"] = format!("{}s", time.as_secs()).into();
    }
    let answer = session.send_checked(Request::post(["keys"]).body(body)).await?;
    if session.printer.json {
        session.printer.print_json(&answer.text());
    } else {
        session.printer.print(&pointer_text(&answer.json()?, "/key"));
        session.printer.note("this is shown once and kept nowhere; give it with --token or TOOLHUB_TOKEN");
    }
    Ok(Exit::Success)
}

/// No server runs: the key's holder gets the key, the config its digest.
fn create_for_config(session: &Session, create: &Create) -> Result<Exit, Failure> {
    let made = NewKey::make().map_err(|error| Failure::unexpected(format!("no key can be made: {error}")))?;
    let mut lines = format!(
        "[[auth.keys]]\nname = {}\ntenant = {}\nhash = {}\nscopes = {}\n",
        json!(create.name),
        json!(create.tenant),
        json!(made.hash),
        json!(create.scopes)
    );
    let expires = create.expires_in.map(|time| SystemClock.now() + time);
    lines.extend(expires.map(|moment| format!("expires = {}\n", json!(moment))));
    if session.printer.json {
        let told = json!({"name": create.name, "tenant": create.tenant, "scopes": create.scopes, "key": made.key,
            "hash": made.hash, "expiresAt": expires, "config": lines});
        session.printer.print_json(&told.to_string());
        return Ok(Exit::Success);
    }
    session.printer.print(&made.key);
    session.printer.note("this is shown once and kept nowhere. No server runs here, so put this into toolhub.toml:\n");
    session.printer.note(&format!("[auth]\nmode = \"keys\"\n\n{lines}"));
    Ok(Exit::Success)
}

async fn list_keys(session: &Session) -> Result<Exit, Failure> {
    let Some(keys) = paging::fetch_items(session, Request::get(["keys"]), &Paging::all()).await? else {
        return Ok(Exit::Success);
    };
    let (show, now) = (&session.printer, SystemClock.now());
    if keys.is_empty() {
        show.note("no keys");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(COLUMNS);
    for key in &keys {
        let scopes: Vec<&str> = key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let some = |at: String, words: &dyn Fn(&str) -> String| if at.is_empty() { at } else { words(&at) };
        table.add_row([
            pointer_text(key, "/id"),
            pointer_text(key, "/name"),
            pointer_text(key, "/tenant"),
            scopes.join(" "),
            some(pointer_text(key, "/lastUsedAt"), &|at| format_ago(at, now)),
            some(pointer_text(key, "/expiresAt"), &|at| format_remaining(at, now)),
        ]);
    }
    show.print(&table.render(show.width, show.ascii));
    Ok(Exit::Success)
}
