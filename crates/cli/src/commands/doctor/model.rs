//! Whether the model of `[llm]` is to be had: somebody answers at its address, takes the key, and knows its name. No model is
//! asked anything, so nothing is paid for.

use std::collections::BTreeSet;

use toolhub::agent::{ModelError, ModelFault};

use super::{Check, Found};
use crate::{
    config::{Agents, Llm, Provider, closest},
    exit::Exit,
};

const NAME: &str = "model";
/// So many names of a list are shown.
const SHOWN: usize = 5;

/// The check; none where the config has no model.
pub(super) async fn check(agents: &Agents) -> Option<Check> {
    let llm = agents.llm.as_ref()?;
    if let Provider::Scripted(_) = llm.provider {
        return Some(Check::new(NAME, Found::Good, format!("{}, which is a script", llm.model)));
    }
    let offered = match llm.model(&llm.model) {
        Ok(model) => model.offered().await,
        Err(why) => return Some(Check::new(NAME, Found::Bad(Exit::Usage), why).fix("toolhub config check")),
    };
    Some(match offered {
        Ok(None) => {
            Check::new(NAME, Found::Good, format!("the server of {} answers; it keeps no list of models", llm.model))
        }
        Ok(Some(known)) => named(agents, llm, &known),
        Err(error) => failed(&error),
    })
}

/// Whether a server has all models that are asked here.
fn named(agents: &Agents, llm: &Llm, known: &[String]) -> Check {
    let own = agents.agents.values().filter_map(|agent| agent.model.as_ref());
    let wanted: BTreeSet<&String> = own.chain([&llm.model]).collect();
    // Ollama writes the version of a model behind its name, and takes the name alone for the latest.
    let has = |name: &str| known.iter().any(|one| one == name || one.strip_suffix(":latest") == Some(name));
    let missing: Vec<&String> = wanted.iter().filter(|name| !has(name)).copied().collect();
    let Some(first) = missing.first() else {
        let all: Vec<&str> = wanted.iter().map(|name| name.as_str()).collect();
        return Check::new(NAME, Found::Good, format!("{} can be had, and the server answers", all.join(", ")));
    };
    let fix = match closest(first, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None if known.is_empty() => "give the server a model".to_owned(),
        None => {
            let some: Vec<&str> = known.iter().take(SHOWN).map(String::as_str).collect();
            let more = if known.len() > SHOWN { ", …" } else { "" };
            format!("name one it has in [llm] or [agents]: {}{more}", some.join(", "))
        }
    };
    // Some serve models they do not list.
    Check::new(NAME, Found::Odd, format!("the server answers, but `{first}` is not among its models")).fix(fix)
}

fn failed(error: &ModelError) -> Check {
    let (found, fix) = match (error.fault, error.status) {
        (_, Some(401 | 403)) => (Found::Bad(Exit::Auth), "put a key that is good there into `api_key` in [llm]"),
        (ModelFault::Unreachable | ModelFault::Timeout, _) => {
            (Found::Bad(Exit::Unreachable), "check `base_url` in [llm], and whether its server runs")
        }
        (ModelFault::Refused, _) => {
            (Found::Bad(Exit::Failed), "check `base_url` in [llm]: it ends with /v1 for most servers")
        }
        _ => (Found::Odd, "look again later; agents ask it again by themselves"),
    };
    Check::new(NAME, found, error.message.clone()).fix(fix)
}
