//! `keys`: who may use the server.

use std::time::Duration;

use axum::http::Method;
use clap::Subcommand;
use serde_json::{Value, json};
use toolhub::{
    clock::{Clock as _, SystemClock},
    server::NewKey,
};

use super::list::{self, Paging, text};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    global,
    output::{Column, Table, ago, until},
    session::Session,
};

/// Make, list and revoke the keys of clients.
#[derive(Debug, Subcommand)]
pub(crate) enum Keys {
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
    Column::new("TENANT").goes(2),
    Column::new("SCOPES").goes(1).cut(12),
    Column::new("LAST USED").goes(3),
    Column::new("LEFT").goes(4),
];

pub(crate) async fn run(session: &Session, asked: Keys) -> Result<Exit, Failure> {
    match asked {
        Keys::Create(create) => match session.server().await? {
            Some(_) => in_server(session, &create).await,
            None => for_config(session, &create),
        },
        Keys::List => all(session).await,
        Keys::Revoke { id } => {
            let wrong = |failure: Failure| match failure.code.as_str() {
                "key_not_found" => failure.help("toolhub keys list; a key of the config is taken back in its file"),
                _ => failure,
            };
            session.ask(Request::new(Method::DELETE, ["keys", &id])).await.map_err(wrong)?;
            if session.show.json {
                session.show.document(&json!({"revoked": id}).to_string());
            } else {
                session.show.say(&format!("{id} is taken back"));
            }
            Ok(Exit::Fine)
        }
    }
}

async fn in_server(session: &Session, create: &Create) -> Result<Exit, Failure> {
    let mut body = json!({"name": create.name, "tenant": create.tenant, "scopes": create.scopes});
    if let Some(time) = create.expires_in {
        body["expiresIn"] = format!("{}s", time.as_secs()).into();
    }
    let answer = session.ask(Request::post(["keys"]).body(body)).await?;
    if session.show.json {
        session.show.document(&answer.text());
    } else {
        session.show.data(&text(&answer.value()?, "/key"));
        session.show.say("this is shown once and kept nowhere; give it with --token or TOOLHUB_TOKEN");
    }
    Ok(Exit::Fine)
}

/// No server runs: the key's holder gets the key, the config its digest.
fn for_config(session: &Session, create: &Create) -> Result<Exit, Failure> {
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
    if session.show.json {
        let told = json!({"name": create.name, "tenant": create.tenant, "scopes": create.scopes, "key": made.key,
            "hash": made.hash, "expiresAt": expires, "config": lines});
        session.show.document(&told.to_string());
        return Ok(Exit::Fine);
    }
    session.show.data(&made.key);
    session.show.say("this is shown once and kept nowhere. No server runs here, so put this into toolhub.toml:\n");
    session.show.say(&format!("[auth]\nmode = \"keys\"\n\n{lines}"));
    Ok(Exit::Fine)
}

async fn all(session: &Session) -> Result<Exit, Failure> {
    let Some(keys) = list::items(session, Request::get(["keys"]), &Paging::all()).await? else { return Ok(Exit::Fine) };
    let (show, now) = (&session.show, SystemClock.now());
    if keys.is_empty() {
        show.say("no keys");
        return Ok(Exit::Fine);
    }
    let mut table = Table::new(COLUMNS);
    for key in &keys {
        let scopes: Vec<&str> = key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let some = |at: String, words: &dyn Fn(&str) -> String| if at.is_empty() { at } else { words(&at) };
        table.row([
            text(key, "/id"),
            text(key, "/name"),
            text(key, "/tenant"),
            scopes.join(" "),
            some(text(key, "/lastUsedAt"), &|at| ago(at, now)),
            some(text(key, "/expiresAt"), &|at| until(at, now)),
        ]);
    }
    show.data(&table.lines(show.width, show.ascii));
    Ok(Exit::Fine)
}
