//! What holds for `[llm]`, `[agents.NAME]` and `[toolsets.NAME]`.
//!
//! In: what is said, and which tools there are. Out: plain values that can be compared. Nobody is asked whether the model answers: a
//! server whose model is away still serves its tools.

mod model;

use std::{collections::BTreeMap, fs, time::Duration};

use toolhub::{Glob, agent, config::SecretString};

use super::{
    super::{
        closest::closest,
        raw::{self, DEMO_SCRIPT, RawConfig},
        tree::Path,
    },
    Diagnostics, Tools,
};

/// The agents, what they ask, and what they may be offered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Agents {
    /// None: there are no agents.
    pub(crate) llm: Option<Llm>,
    pub(crate) agents: BTreeMap<String, Agent>,
    pub(crate) toolsets: BTreeMap<String, Toolset>,
}

/// The model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Llm {
    pub(crate) provider: Provider,
    pub(crate) model: String,
    pub(crate) request_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) retries: u32,
}

/// Who makes its answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Provider {
    /// A script from a file; none for the one that the binary carries.
    Scripted(Option<ScriptFile>),
    /// A server that speaks as OpenAI's does.
    Openai(ModelEndpoint),
    /// A server that speaks as Anthropic's does.
    Anthropic(ModelEndpoint),
}

/// A script from a file. What it says counts, not where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptFile {
    pub(crate) text: String,
}

/// Where a model's server is, and the key for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelEndpoint {
    /// None: the provider's own.
    pub(crate) base_url: Option<String>,
    pub(crate) key: Option<SecretString>,
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agent {
    pub(crate) system_prompt: String,
    /// The toolsets it has, by name; empty where it has every tool.
    pub(crate) toolsets: Vec<String>,
    /// Globs over names of tools; none for all.
    pub(crate) tools: Option<Vec<String>>,
    /// Another model than the usual one.
    pub(crate) model: Option<String>,
    pub(crate) max_steps: u32,
    pub(crate) token_budget: Option<u64>,
    pub(crate) time_budget: Option<Duration>,
    pub(crate) context_window: Option<u32>,
    pub(crate) execution: Execution,
}

/// Who does the work of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Execution {
    /// The hub, which tries a call again so often.
    Internal(Option<u32>),
    /// Somebody outside, within this time.
    External(Duration),
}

/// Tools under one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Toolset {
    pub(crate) description: Option<String>,
    pub(crate) tools: Vec<String>,
}

/// OpenAI takes no more tools in one question; many who speak like it do as it does.
const MAX_TOOLS: usize = 128;
/// How long somebody outside has, where nothing is said.
const DEFAULT_EXTERNAL_DEADLINE: Duration = Duration::from_secs(5 * 60);

/// Works it out; what is odd and does no harm becomes a word.
pub(super) fn resolve(said: &RawConfig, tools: &Tools, words: &mut Vec<String>, desk: &mut Diagnostics<'_>) -> Agents {
    let toolsets =
        said.toolsets.iter().map(|(name, set)| (name.clone(), resolve_toolset(name, set, tools, words, desk)));
    let toolsets: BTreeMap<String, Toolset> = toolsets.collect();
    let llm = said.llm.as_ref().and_then(|said| resolve_llm(said, desk));
    let steps = said.llm.as_ref().map_or(1, |llm| llm.max_steps);
    let mut agents = BTreeMap::new();
    for (name, agent) in &said.agents {
        check_section_name("agents", name, desk);
        agents.insert(name.clone(), resolve_agent(name, agent, &toolsets, steps, desk));
    }
    if said.llm.is_none() && !said.agents.is_empty() {
        let help = "add the model they ask: [llm] with provider = \"scripted\" to try it out, or with \"openai\" or \
                    \"anthropic\", a `model` and an `api_key`";
        desk.report(&Path::of(["agents"]), "there are agents, but no model they could ask", help);
    }
    if said.llm.is_some() && said.agents.is_empty() {
        let usual = resolve_agent("default", &raw::Agent::default(), &toolsets, steps, desk);
        agents.insert("default".into(), usual);
    }
    for (name, agent) in &agents {
        words.extend(llm.as_ref().and_then(|llm| too_many_tools_warning(name, agent, llm, tools)));
    }
    Agents { llm, agents, toolsets }
}

/// A word about an agent with more tools than its model may take.
fn too_many_tools_warning(name: &str, agent: &Agent, llm: &Llm, tools: &Tools) -> Option<String> {
    let globs: Option<Vec<Glob>> =
        agent.tools.as_ref().map(|globs| globs.iter().filter_map(|glob| Glob::new(glob.as_str()).ok()).collect());
    let has = |tool: &&String| globs.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob.matches(tool)));
    let many = tools.keys().filter(has).count();
    let word = format!(
        "the agent `{name}` may be offered {many} tools, and many models take no more than {MAX_TOOLS}: name fewer in its `toolsets`"
    );
    (many > MAX_TOOLS && matches!(llm.provider, Provider::Openai(_))).then_some(word)
}

/// Looks at the name of a section.
fn check_section_name(section: &str, name: &str, desk: &mut Diagnostics<'_>) {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
        let message = format!("`{name}` cannot be a name: 1 to 64 letters, digits, `_` and `-` can");
        desk.report(&Path::of([section, name]), message, format!("rename the section: [{section}.basic]"));
    }
}

fn resolve_toolset(
    name: &str,
    said: &raw::Toolset,
    tools: &Tools,
    words: &mut Vec<String>,
    desk: &mut Diagnostics<'_>,
) -> Toolset {
    check_section_name("toolsets", name, desk);
    for (place, text) in said.tools.iter().enumerate() {
        let at = Path::of(["toolsets", name, "tools"]).index(place);
        match Glob::new(text.as_str()) {
            Err(why) => desk.report(&at, why, "name a tool, or write a glob such as \"fs__*\""),
            // A tool may still be made over the API, so it is no mistake.
            Ok(_) if !text.contains(['*', '?']) && !tools.contains_key(text) => {
                let meant = closest(text, tools.keys().map(String::as_str));
                let meant = meant.map_or(String::new(), |meant| format!("; did you mean `{meant}`?"));
                words.push(format!("the toolset `{name}` names `{text}`, and the config has no such tool{meant}"));
            }
            Ok(_) => {}
        }
    }
    Toolset { description: said.description.clone(), tools: said.tools.clone() }
}

fn resolve_agent(
    name: &str,
    said: &raw::Agent,
    toolsets: &BTreeMap<String, Toolset>,
    steps: u32,
    desk: &mut Diagnostics<'_>,
) -> Agent {
    let at = Path::of(["agents", name]);
    let mut globs = Vec::new();
    for (place, wanted) in said.toolsets.iter().flatten().enumerate() {
        match toolsets.get(wanted) {
            Some(set) => globs.extend(set.tools.iter().cloned()),
            None => {
                let help = match closest(wanted, toolsets.keys().map(String::as_str)) {
                    Some(meant) => format!("did you mean {meant:?}?"),
                    None => format!("add [toolsets.{wanted}] with its `tools`, or leave `toolsets` out for every tool"),
                };
                desk.report(&at.key("toolsets").index(place), format!("there is no toolset `{wanted}`"), help);
            }
        }
    }
    let (internal, external) = (raw::Execution::Internal, raw::Execution::External);
    for (key, right, word) in [("max_retries", internal, "internal"), ("external_deadline", external, "external")] {
        let path = at.key(key);
        if said.tool_execution != right && desk.is_set(&path) {
            let message = format!("`{path}` does nothing unless `tool_execution` is {word:?}");
            desk.report(&path, message, format!("write tool_execution = {word:?}, or remove `{key}`"));
        }
    }
    Agent {
        system_prompt: said.system_prompt.clone(),
        toolsets: said.toolsets.clone().unwrap_or_default(),
        tools: said.toolsets.is_some().then_some(globs),
        model: said.model.clone(),
        max_steps: said.max_steps.unwrap_or(steps),
        token_budget: said.token_budget.map(u64::from),
        time_budget: said.time_budget.map(|time| time.0),
        context_window: said.context_window,
        execution: match said.tool_execution {
            raw::Execution::Internal => Execution::Internal(said.max_retries),
            raw::Execution::External => {
                Execution::External(said.external_deadline.map_or(DEFAULT_EXTERNAL_DEADLINE, |time| time.0))
            }
        },
    }
}

fn resolve_llm(said: &raw::Llm, desk: &mut Diagnostics<'_>) -> Option<Llm> {
    let at = |key: &str| Path::of(["llm", key]);
    let scripted = said.provider == raw::Provider::Scripted;
    let foreign: &[&str] = if scripted { &["base_url", "api_key", "max_tokens"] } else { &["script"] };
    for key in foreign {
        if desk.is_set(&at(key)) {
            let message = if scripted {
                format!("a scripted model has no `{key}`")
            } else {
                "only a scripted model has a `script`".into()
            };
            desk.report(&at(key), message, format!("remove `{key}`, or name another `provider`"));
        }
    }
    if !scripted && said.model.is_none() {
        let help = "name the model as its server calls it, such as model = \"deepseek-chat\"";
        desk.report(&at("model"), "it is not said which model is asked", help);
    }
    let before = desk.problems().len();
    let provider = match said.provider {
        raw::Provider::Scripted => Provider::Scripted(resolve_script(said, desk)?),
        raw::Provider::Openai => Provider::Openai(resolve_endpoint(said, desk)?),
        raw::Provider::Anthropic => Provider::Anthropic(resolve_endpoint(said, desk)?),
    };
    let llm = Llm {
        provider,
        model: said.model.clone().unwrap_or_else(|| "demo".into()),
        request_timeout: said.request_timeout.0,
        connect_timeout: said.connect_timeout.0,
        idle_timeout: said.idle_timeout.0,
        max_tokens: said.max_tokens,
        retries: said.retries,
    };
    // What is wrong with its address and its key was said before.
    if let (Err(error), true) = (llm.build_model(&llm.model), desk.problems().len() == before) {
        desk.report(&Path::of(["llm"]), error, "correct what the section says about the model's server");
    }
    Some(llm)
}

/// The script, if it is one from a file; nothing at all where it cannot be used.
fn resolve_script(said: &raw::Llm, desk: &mut Diagnostics<'_>) -> Option<Option<ScriptFile>> {
    let path = Path::of(["llm", "script"]);
    let Some(text) = said.script.as_deref().filter(|text| *text != DEMO_SCRIPT) else { return Some(None) };
    if let Some(name) = text.strip_prefix("builtin:") {
        let message = format!("there is no script `{name}` in the binary");
        desk.report(&path, message, format!("write {DEMO_SCRIPT:?}, or the path of a file"));
        return None;
    }
    let file = desk.resolve_path(&path, text);
    match fs::read_to_string(&file) {
        Ok(script) => {
            // All that is wrong with it, and where it stands in the script.
            for wrong in agent::Script::parse(&script).err().into_iter().flat_map(|error| error.problems) {
                let help = wrong.help.unwrap_or_else(|| "docs/stub-llm.md says how scripts are written".into());
                desk.report(&path, format!("{text}:{}: {}", wrong.line, wrong.message), help);
            }
            Some(Some(ScriptFile { text: script }))
        }
        Err(error) => {
            let help = "check the path; it begins where this file is";
            desk.report(&path, format!("{text} cannot be read: {error}"), help);
            None
        }
    }
}

fn resolve_endpoint(said: &raw::Llm, desk: &mut Diagnostics<'_>) -> Option<ModelEndpoint> {
    let at = |key: &str| Path::of(["llm", key]);
    // `"${URL:-}"` says nothing where the variable is not set.
    let base_url = said.base_url.as_deref().filter(|url| !url.is_empty());
    if let Some(url) = base_url {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        if !rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['?', '#', '@', ' '])) {
            let help = "write it like \"https://api.deepseek.com/v1\"; the key belongs into `api_key`";
            // What stands in a query may be a key: then the line is not shown.
            let place = if url.contains('?') { Path::of(["llm"]) } else { at("base_url") };
            desk.report(&place, "`llm.base_url` is no URL of a model's server", help);
        }
    }
    if base_url.is_none() && said.api_key.is_none() {
        let variable = if said.provider == raw::Provider::Anthropic { "ANTHROPIC_API_KEY" } else { "OPENAI_API_KEY" };
        let help = format!("add api_key = {{ env = \"{variable}\" }}; or the `base_url` of a server that wants none");
        desk.report(&at("api_key"), "the provider's own server answers nobody without a key", help);
    }
    let key = match &said.api_key {
        Some(key) => Some(key.fetch(&at("api_key"), desk)?),
        None => None,
    };
    Some(ModelEndpoint { base_url: base_url.map(|url| url.trim_end_matches('/').to_owned()), key })
}
