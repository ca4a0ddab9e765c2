//! Tools that were made over the API, kept in the store so that they are there after a restart.
//!
//! In: what was asked for, as JSON. Out: tools in the making, held to the rules of the config. Today that is the tools the binary
//! carries; what else may come this way comes here too.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};
use toolhub::{
    ToolBuilder,
    backend::{Backend, Batch, Change, Durability, Expect, Partition, Place, Scan, Scope, StoreError, Table, Write},
    clock::{Clock, SystemClock},
    ids::Tenant,
    server::ToolChangeError,
};

use crate::config;

/// The layout of a row.
const LAYOUT: u32 = 1;
/// Members whose own members are the owner's words, and stay as they are.
const FREE: [&str; 2] = ["metadata", "parameters"];

/// Makes a tool of what was asked for. It may wait for tools that `others` knows.
///
/// # Errors
/// What is wrong with it, in words for whoever asked.
pub(super) fn builder(
    name: &str,
    asked: &Value,
    others: impl Fn(&str) -> bool,
) -> Result<ToolBuilder, ToolChangeError> {
    let refused = |why: String| ToolChangeError::Refused(why);
    let said = asked.as_object().ok_or_else(|| refused("a tool is an object".into()))?;
    let mut said = in_config_words(said);
    said.remove("name");
    let tool = config::tool(name, &said, others).map_err(|problems| {
        let told = problems.iter().map(|problem| match &problem.help {
            Some(help) => format!("{} ({help})", problem.message),
            None => problem.message.clone(),
        });
        refused(told.collect::<Vec<_>>().join("; "))
    })?;
    tool.builder(name).ok_or_else(|| refused("there is no such builtin".into()))
}

/// All that can be made, when `configured` are there besides. One that waits for a tool that is gone is left out, and so are
/// those that wait for that one: a server that starts without a tool is better than none.
pub(super) fn builders(kept: &BTreeMap<String, Value>, configured: impl Fn(&str) -> bool) -> Vec<ToolBuilder> {
    let mut left: BTreeMap<&String, &Value> = kept.iter().filter(|(name, _)| !configured(name)).collect();
    loop {
        let others = |base: &str| configured(base) || left.keys().any(|name| *name == base);
        let (mut made, mut gone) = (Vec::new(), Vec::new());
        for (name, asked) in &left {
            match builder(name, asked, others) {
                Ok(tool) => made.push(tool),
                Err(error) => {
                    tracing::warn!(tool = name, %error, "a tool that was made over the API is left out");
                    gone.push(*name);
                }
            }
        }
        if gone.is_empty() {
            return made;
        }
        left.retain(|name, _| !gone.contains(name));
    }
}

/// The API writes `rateLimit`, a config `rate_limit`; and what is null there is not said here.
fn in_config_words(members: &Map<String, Value>) -> Map<String, Value> {
    let said = members.iter().filter(|(_, value)| !value.is_null());
    said.map(|(key, value)| match value {
        Value::Object(inner) if !FREE.contains(&key.as_str()) => (snake(key), in_config_words(inner).into()),
        other => (snake(key), other.clone()),
    })
    .collect()
}

fn snake(key: &str) -> String {
    key.chars()
        .flat_map(|c| c.is_ascii_uppercase().then_some('_').into_iter().chain([c.to_ascii_lowercase()]))
        .collect()
}

/// All that are kept, by name.
///
/// # Errors
/// When the store does not answer.
pub(super) async fn all(store: &Arc<dyn Backend>) -> Result<BTreeMap<String, Value>, StoreError> {
    let mut scan = Scan::of(Table::Tools, Scope::Partition(place()));
    let mut kept = BTreeMap::new();
    loop {
        let page = store.scan(scan.clone(), SystemClock.now()).await?;
        for (key, row) in page.rows {
            match serde_json::from_slice(&row.value) {
                Ok(asked) if row.schema == LAYOUT => drop(kept.insert(key.id.to_string(), asked)),
                _ => tracing::warn!(tool = %key.id, "a tool that was made over the API cannot be read any more"),
            }
        }
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(kept),
        }
    }
}

/// Keeps a tool, or forgets it where nothing is asked for any more.
///
/// # Errors
/// When the store does not answer.
pub(super) async fn keep(store: &Arc<dyn Backend>, name: &str, asked: Option<&Value>) -> Result<(), StoreError> {
    let change = match asked {
        Some(asked) => Change::Put { value: asked.to_string().into_bytes().into(), schema: LAYOUT, expires: None },
        None => Change::Remove,
    };
    let write =
        Write { table: Table::Tools, id: name.into(), expect: Expect::Any, change, durability: Durability::PowerSafe };
    store.commit(Batch::on(place()).with(write), SystemClock.now()).await.map(drop)
}

fn place() -> Partition {
    Partition { tenant: Tenant::default(), place: Place::Tools }
}
