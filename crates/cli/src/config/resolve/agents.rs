//! Resolves `[llm]`, `[agents.NAME]` and `[toolsets.NAME]`.
//!
//! In: the raw sections, and the tools. Out: plain values that can be compared. The model's server is not contacted: a hub whose
//! model is unreachable still serves its tools.

mod model;

use std::{collections::BTreeMap, fs, time::Duration};

use toolhub::{Glob, agent, config::SecretText};

use super::{
    super::{
        raw::{self, DEMO_SCRIPT, RawConfig},
        suggest::closest,
        tree::Path,
    },
    Diagnostics, Tools, mcp_servers,
};

/// The model, the agents and the toolsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Agents {
    /// `None`: there are no agents.
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

/// The API of the model's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Provider {
    /// A script from a file; `None` for the bundled one.
    Scripted(Option<ScriptFile>),
    /// A server with OpenAI's API.
    Openai(ModelEndpoint),
    /// A server with Anthropic's API.
    Anthropic(ModelEndpoint),
}

/// A script from a file. Only its text is compared, not its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptFile {
    pub(crate) text: String,
}

/// The URL of a model's server, and the API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelEndpoint {
    /// `None`: the provider's own.
    pub(crate) base_url: Option<String>,
    pub(crate) key: Option<SecretText>,
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agent {
    pub(crate) system_prompt: String,
    /// The names of its toolsets; empty if it has every tool.
    pub(crate) toolsets: Vec<String>,
    /// Globs over tool names; `None` for all tools.
    pub(crate) tools: Option<Vec<String>>,
    /// Another model than that of `[llm]`.
    pub(crate) model: Option<String>,
    pub(crate) max_steps: u32,
    pub(crate) token_budget: Option<u64>,
    pub(crate) time_budget: Option<Duration>,
    pub(crate) context_window: Option<u32>,
    pub(crate) execution: Execution,
}

/// Who executes its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Execution {
    /// The hub, with this many retries.
    Internal(Option<u32>),
    /// The client, within this deadline.
    External(Duration),
}

/// A named set of tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Toolset {
    pub(crate) description: Option<String>,
    pub(crate) tools: Vec<String>,
}

/// OpenAI's limit of tools per request; many compatible servers have the same.
const MAX_TOOLS: usize = 128;
/// Default deadline for external results.
const DEFAULT_EXTERNAL_DEADLINE: Duration = Duration::from_secs(5 * 60);

/// Resolves the sections. Harmless oddities become warnings.
pub(super) fn resolve(
    raw: &RawConfig,
    tools: &Tools,
    warnings: &mut Vec<String>,
    diagnostics: &mut Diagnostics<'_>,
) -> Agents {
    let toolsets = raw
        .toolsets
        .iter()
        .map(|(name, set)| (name.clone(), resolve_toolset(name, set, raw, tools, warnings, diagnostics)));
    let toolsets: BTreeMap<String, Toolset> = toolsets.collect();
    let llm = raw.llm.as_ref().and_then(|raw| resolve_llm(raw, diagnostics));
    let max_steps = raw.llm.as_ref().map_or(1, |llm| llm.max_steps);
    let mut agents = BTreeMap::new();
    for (name, agent) in &raw.agents {
        check_section_name("agents", name, diagnostics);
        agents.insert(name.clone(), resolve_agent(name, agent, &toolsets, max_steps, diagnostics));
    }
    if raw.llm.is_none() && !raw.agents.is_empty() {
        let help = "add [llm] with provider = \"scripted\" to try it out, or with \"openai\" or \
                    \"anthropic\", a `model` and an `api_key`";
        diagnostics.report(&Path::of(["agents"]), "there are agents, but no model", help);
    }
    if raw.llm.is_some() && raw.agents.is_empty() {
        let agent = resolve_agent("default", &raw::Agent::default(), &toolsets, max_steps, diagnostics);
        agents.insert("default".into(), agent);
    }
    for (name, agent) in &agents {
        warnings.extend(llm.as_ref().and_then(|llm| too_many_tools_warning(name, agent, llm, tools)));
    }
    Agents { llm, agents, toolsets }
}

/// Warns about an agent with more tools than many models accept.
fn too_many_tools_warning(name: &str, agent: &Agent, llm: &Llm, tools: &Tools) -> Option<String> {
    let globs: Option<Vec<Glob>> =
        agent.tools.as_ref().map(|globs| globs.iter().filter_map(|glob| Glob::new(glob.as_str()).ok()).collect());
    let is_offered = |tool: &&String| globs.as_ref().is_none_or(|globs| globs.iter().any(|glob| glob.matches(tool)));
    let count = tools.keys().filter(is_offered).count();
    let warning = format!(
        "the agent `{name}` may be offered {count} tools, but many models accept at most {MAX_TOOLS}: name fewer in its `toolsets`"
    );
    (count > MAX_TOOLS && matches!(llm.provider, Provider::Openai(_))).then_some(warning)
}

/// Checks the name of a section.
fn check_section_name(section: &str, name: &str, diagnostics: &mut Diagnostics<'_>) {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
        let message = format!("`{name}` is not a valid name: use 1 to 64 letters, digits, `_` and `-`");
        diagnostics.report(&Path::of([section, name]), message, format!("rename the section: [{section}.basic]"));
    }
}

fn resolve_toolset(
    name: &str,
    raw: &raw::Toolset,
    config: &RawConfig,
    tools: &Tools,
    warnings: &mut Vec<String>,
    diagnostics: &mut Diagnostics<'_>,
) -> Toolset {
    check_section_name("toolsets", name, diagnostics);
    for (index, text) in raw.tools.iter().enumerate() {
        let at = Path::of(["toolsets", name, "tools"]).index(index);
        match Glob::new(text.as_str()) {
            Err(why) => diagnostics.report(&at, why, "name a tool, or write a glob such as \"fs__*\""),
            // Not an error, because the tool may still be registered over the API.
            Ok(_)
                if !text.contains(['*', '?'])
                    && !tools.contains_key(text)
                    && mcp_servers::server_of(text, &config.mcp_servers).is_none() =>
            {
                let suggestion = closest(text, tools.keys().map(String::as_str));
                let suggestion = suggestion.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
                warnings
                    .push(format!("the toolset `{name}` names `{text}`, but the config has no such tool{suggestion}"));
            }
            Ok(_) => {}
        }
    }
    Toolset { description: raw.description.clone(), tools: raw.tools.clone() }
}

fn resolve_agent(
    name: &str,
    raw: &raw::Agent,
    toolsets: &BTreeMap<String, Toolset>,
    max_steps: u32,
    diagnostics: &mut Diagnostics<'_>,
) -> Agent {
    let at = Path::of(["agents", name]);
    let mut globs = Vec::new();
    for (index, toolset) in raw.toolsets.iter().flatten().enumerate() {
        match toolsets.get(toolset) {
            Some(set) => globs.extend(set.tools.iter().cloned()),
            None => {
                let help = match closest(toolset, toolsets.keys().map(String::as_str)) {
                    Some(name) => format!("did you mean {name:?}?"),
                    None => format!("add [toolsets.{toolset}] with its `tools`, or omit `toolsets` for every tool"),
                };
                diagnostics.report(&at.key("toolsets").index(index), format!("there is no toolset `{toolset}`"), help);
            }
        }
    }
    let (internal, external) = (raw::Execution::Internal, raw::Execution::External);
    for (key, required, name) in [("max_retries", internal, "internal"), ("external_deadline", external, "external")] {
        let path = at.key(key);
        if raw.tool_execution != required && diagnostics.is_set(&path) {
            let message = format!("`{path}` has no effect unless `tool_execution` is {name:?}");
            diagnostics.report(&path, message, format!("write tool_execution = {name:?}, or remove `{key}`"));
        }
    }
    Agent {
        system_prompt: raw.system_prompt.clone(),
        toolsets: raw.toolsets.clone().unwrap_or_default(),
        tools: raw.toolsets.is_some().then_some(globs),
        model: raw.model.clone(),
        max_steps: raw.max_steps.unwrap_or(max_steps),
        token_budget: raw.token_budget.map(u64::from),
        time_budget: raw.time_budget.map(|time| time.0),
        context_window: raw.context_window,
        execution: match raw.tool_execution {
            raw::Execution::Internal => Execution::Internal(raw.max_retries),
            raw::Execution::External => {
                Execution::External(raw.external_deadline.map_or(DEFAULT_EXTERNAL_DEADLINE, |time| time.0))
            }
        },
    }
}

fn resolve_llm(raw: &raw::Llm, diagnostics: &mut Diagnostics<'_>) -> Option<Llm> {
    let at = |key: &str| Path::of(["llm", key]);
    let scripted = raw.provider == raw::Provider::Scripted;
    let unsupported: &[&str] = if scripted { &["base_url", "api_key", "max_tokens"] } else { &["script"] };
    for key in unsupported {
        if diagnostics.is_set(&at(key)) {
            let message = if scripted {
                format!("a scripted model has no `{key}`")
            } else {
                "only a scripted model has a `script`".into()
            };
            diagnostics.report(&at(key), message, format!("remove `{key}`, or name another `provider`"));
        }
    }
    if !scripted && raw.model.is_none() {
        let help = "set the model's name at its server, e.g. model = \"deepseek-chat\"";
        diagnostics.report(&at("model"), "no model given", help);
    }
    let before = diagnostics.problems().len();
    let provider = match raw.provider {
        raw::Provider::Scripted => Provider::Scripted(resolve_script(raw, diagnostics)?),
        raw::Provider::Openai => Provider::Openai(resolve_endpoint(raw, diagnostics)?),
        raw::Provider::Anthropic => Provider::Anthropic(resolve_endpoint(raw, diagnostics)?),
    };
    let llm = Llm {
        provider,
        model: raw.model.clone().unwrap_or_else(|| "demo".into()),
        request_timeout: raw.request_timeout.0,
        connect_timeout: raw.connect_timeout.0,
        idle_timeout: raw.idle_timeout.0,
        max_tokens: raw.max_tokens,
        retries: raw.retries,
    };
    // Problems of its URL and its key were reported already.
    if let (Err(error), true) = (llm.build_model(&llm.model), diagnostics.problems().len() == before) {
        diagnostics.report(&Path::of(["llm"]), error, "correct the settings of the model's server");
    }
    Some(llm)
}

/// The script, if it is from a file; `None` if it cannot be used.
fn resolve_script(raw: &raw::Llm, diagnostics: &mut Diagnostics<'_>) -> Option<Option<ScriptFile>> {
    let path = Path::of(["llm", "script"]);
    let Some(text) = raw.script.as_deref().filter(|text| *text != DEMO_SCRIPT) else { return Some(None) };
    if let Some(name) = text.strip_prefix("builtin:") {
        let message = format!("there is no bundled script `{name}`");
        diagnostics.report(&path, message, format!("write {DEMO_SCRIPT:?}, or the path of a file"));
        return None;
    }
    let file = diagnostics.resolve_path(&path, text);
    match fs::read_to_string(&file) {
        Ok(script) => {
            // Report every problem, with its line in the script.
            for problem in agent::Script::parse(&script).err().into_iter().flat_map(|error| error.problems) {
                let help = problem.help.unwrap_or_else(|| "see docs/stub-llm.md for the script format".into());
                diagnostics.report(&path, format!("{text}:{}: {}", problem.line, problem.message), help);
            }
            Some(Some(ScriptFile { text: script }))
        }
        Err(error) => {
            let help = "check the path; it is relative to this file";
            diagnostics.report(&path, format!("cannot read {text}: {error}"), help);
            None
        }
    }
}

fn resolve_endpoint(raw: &raw::Llm, diagnostics: &mut Diagnostics<'_>) -> Option<ModelEndpoint> {
    let at = |key: &str| Path::of(["llm", key]);
    // `"${URL:-}"` is empty if the variable is not set.
    let base_url = raw.base_url.as_deref().filter(|url| !url.is_empty());
    if let Some(url) = base_url {
        let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        if !rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['?', '#', '@', ' '])) {
            let help = "write it like \"https://api.deepseek.com/v1\"; the key belongs in `api_key`";
            // A query may hold a key, so its line is not shown.
            let location = if url.contains('?') { Path::of(["llm"]) } else { at("base_url") };
            diagnostics.report(&location, "`llm.base_url` is not a valid URL", help);
        }
    }
    if base_url.is_none() && raw.api_key.is_none() {
        let variable = if raw.provider == raw::Provider::Anthropic { "ANTHROPIC_API_KEY" } else { "OPENAI_API_KEY" };
        let help = format!("add api_key = {{ env = \"{variable}\" }}; or the `base_url` of a server that needs none");
        diagnostics.report(&at("api_key"), "the provider's server requires an API key", help);
    }
    let key = match &raw.api_key {
        Some(key) => Some(key.fetch(&at("api_key"), diagnostics)?),
        None => None,
    };
    Some(ModelEndpoint { base_url: base_url.map(|url| url.trim_end_matches('/').to_owned()), key })
}
