//! Whether the model of `[llm]` is to be had: somebody answers at its address, takes the key, and knows its name. No model is
//! asked anything, so nothing is paid for.

use std::collections::BTreeSet;

use toolhub::agent::{ModelError, ModelFault};

use super::{Check, CheckStatus};
use crate::{
    config::{Agents, Llm, Provider, closest},
    exit::Exit,
};

const CHECK_NAME: &str = "model";
/// So many names of a list are shown.
const MAX_LISTED_MODELS: usize = 5;

/// The check; none where the config has no model.
pub(super) async fn check(agents: &Agents) -> Option<Check> {
    let llm = agents.llm.as_ref()?;
    if let Provider::Scripted(_) = llm.provider {
        return Some(Check::new(CHECK_NAME, CheckStatus::Pass, format!("{}, which is a script", llm.model)));
    }
    let offered = match llm.build_model(&llm.model) {
        Ok(model) => model.list_models().await,
        Err(why) => {
            return Some(Check::new(CHECK_NAME, CheckStatus::Fail(Exit::Usage), why).fix("toolhub config check"));
        }
    };
    Some(match offered {
        Ok(None) => Check::new(
            CHECK_NAME,
            CheckStatus::Pass,
            format!("the server of {} answers; it keeps no list of models", llm.model),
        ),
        Ok(Some(known)) => check_models_listed(agents, llm, &known),
        Err(error) => model_failure(&error),
    })
}

/// Whether a server has all models that are asked here.
fn check_models_listed(agents: &Agents, llm: &Llm, known: &[String]) -> Check {
    let own = agents.agents.values().filter_map(|agent| agent.model.as_ref());
    let wanted: BTreeSet<&String> = own.chain([&llm.model]).collect();
    // Ollama writes the version of a model behind its name, and takes the name alone for the latest.
    let has = |name: &str| known.iter().any(|one| one == name || one.strip_suffix(":latest") == Some(name));
    let missing: Vec<&String> = wanted.iter().filter(|name| !has(name)).copied().collect();
    let Some(first) = missing.first() else {
        let all: Vec<&str> = wanted.iter().map(|name| name.as_str()).collect();
        return Check::new(
            CHECK_NAME,
            CheckStatus::Pass,
            format!("{} can be had, and the server answers", all.join(", ")),
        );
    };
    let fix = match closest(first, known.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None if known.is_empty() => "give the server a model".to_owned(),
        None => {
            let some: Vec<&str> = known.iter().take(MAX_LISTED_MODELS).map(String::as_str).collect();
            let more = if known.len() > MAX_LISTED_MODELS { ", …" } else { "" };
            format!("name one it has in [llm] or [agents]: {}{more}", some.join(", "))
        }
    };
    // Some serve models they do not list.
    Check::new(CHECK_NAME, CheckStatus::Warn, format!("the server answers, but `{first}` is not among its models"))
        .fix(fix)
}

fn model_failure(error: &ModelError) -> Check {
    let (found, fix) = match (error.fault, error.status) {
        (_, Some(401 | 403)) => (CheckStatus::Fail(Exit::Auth), "put a key that is good there into `api_key` in [llm]"),
        (ModelFault::Unreachable | ModelFault::Timeout, _) => {
            (CheckStatus::Fail(Exit::Unreachable), "check `base_url` in [llm], and whether its server runs")
        }
        (ModelFault::Refused, _) => {
            (CheckStatus::Fail(Exit::Failed), "check `base_url` in [llm]: it ends with /v1 for most servers")
        }
        _ => (CheckStatus::Warn, "look again later; agents ask it again by themselves"),
    };
    Check::new(CHECK_NAME, found, error.message.clone()).fix(fix)
}
