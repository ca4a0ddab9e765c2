//! Checks the model of `[llm]`: its server responds, accepts the API key and knows the model. No completion is requested, so the
//! check costs nothing.

use std::collections::BTreeSet;

use toolhub::agent::{ModelError, ModelFault};

use super::{Check, CheckStatus};
use crate::{
    config::{Agents, Llm, Provider, closest},
    exit::Exit,
};

const CHECK_NAME: &str = "model";
/// How many model names to list.
const MAX_LISTED_MODELS: usize = 5;

/// The check; `None` if the config has no model.
pub(super) async fn check(agents: &Agents) -> Option<Check> {
    let llm = agents.llm.as_ref()?;
    if let Provider::Scripted(_) = llm.provider {
        return Some(Check::new(CHECK_NAME, CheckStatus::Pass, format!("{} (scripted)", llm.model)));
    }
    let listed = match llm.build_model(&llm.model) {
        Ok(model) => model.list_models().await,
        Err(reason) => {
            return Some(Check::new(CHECK_NAME, CheckStatus::Fail(Exit::Usage), reason).fix("toolhub config check"));
        }
    };
    Some(match listed {
        Ok(None) => Check::new(
            CHECK_NAME,
            CheckStatus::Pass,
            format!("the server of {} responds; it does not list its models", llm.model),
        ),
        Ok(Some(known)) => check_models_listed(agents, llm, &known),
        Err(error) => model_failure(&error),
    })
}

/// Whether the server lists all models that the config uses.
fn check_models_listed(agents: &Agents, llm: &Llm, known: &[String]) -> Check {
    let of_agents = agents.agents.values().filter_map(|agent| agent.model.as_ref());
    let used: BTreeSet<&String> = of_agents.chain([&llm.model]).collect();
    // Ollama appends the version to a model's name, and treats a bare name as the latest version.
    let is_listed =
        |name: &str| known.iter().any(|listed| listed == name || listed.strip_suffix(":latest") == Some(name));
    let missing: Vec<&String> = used.iter().filter(|name| !is_listed(name)).copied().collect();
    let Some(first) = missing.first() else {
        let all: Vec<&str> = used.iter().map(|name| name.as_str()).collect();
        return Check::new(
            CHECK_NAME,
            CheckStatus::Pass,
            format!("{}: the server responds and lists it", all.join(", ")),
        );
    };
    let fix = match closest(first, known.iter().map(String::as_str)) {
        Some(name) => format!("did you mean {name:?}?"),
        None if known.is_empty() => "install a model on the server".to_owned(),
        None => {
            let some: Vec<&str> = known.iter().take(MAX_LISTED_MODELS).map(String::as_str).collect();
            let more = if known.len() > MAX_LISTED_MODELS { ", …" } else { "" };
            format!("use one of its models in [llm] or [agents]: {}{more}", some.join(", "))
        }
    };
    // Only a warning: some servers do not list every model they serve.
    Check::new(CHECK_NAME, CheckStatus::Warn, format!("the server responds, but does not list `{first}`")).fix(fix)
}

fn model_failure(error: &ModelError) -> Check {
    let (status, fix) = match (error.fault, error.status) {
        (_, Some(401 | 403)) => {
            (CheckStatus::Fail(Exit::Auth), "set `api_key` in [llm] to a key that the server accepts")
        }
        (ModelFault::Unreachable | ModelFault::Timeout, _) => {
            (CheckStatus::Fail(Exit::Unreachable), "check `base_url` in [llm], and that the server is running")
        }
        (ModelFault::Refused, _) => {
            (CheckStatus::Fail(Exit::Failed), "check `base_url` in [llm]: it ends with /v1 for most servers")
        }
        _ => (CheckStatus::Warn, "try again later; agents retry automatically"),
    };
    Check::new(CHECK_NAME, status, error.message.clone()).fix(fix)
}
