//! Loads the config: finds the files, merges the layers, and reports every problem.
//!
//! In: the load options. Out: a resolved `Config` with the origin of each value, or all problems. The layers, in increasing
//! precedence: defaults, the user's own file, the nearest `toolhub.toml` upward or the named one, the environment, flags.

use std::{
    fmt, io,
    path::{Path as FilePath, PathBuf},
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value, json};
use toolhub::config::McpServerPlan;

use super::{
    Config, check,
    environment::Environment,
    mcp_json, old_registry, overlay,
    problem::{Problem, Problems},
    raw::{Backend, RawConfig, Retention},
    resolve::{self, Tool},
    salvage,
    shape::Shape,
    source_file,
    tree::{self, Node, Origin, Path, Source},
    variables,
};

/// The name of a config file.
pub(crate) const FILE_NAME: &str = "toolhub.toml";
/// Where to find the config, and what to merge over it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LoadOptions {
    /// `--config`; the variable `TOOLHUB_CONFIG` where absent.
    pub(crate) config: Option<PathBuf>,
    /// `--env-file`.
    pub(crate) env_file: Option<PathBuf>,
    /// `--set key=value`, in the order they were typed.
    pub(crate) set: Vec<String>,
    /// `--host`.
    pub(crate) host: Option<String>,
    /// `--port`.
    pub(crate) port: Option<u16>,
    /// `--no-ui`.
    pub(crate) no_ui: bool,
    /// The working folder.
    pub(crate) folder: PathBuf,
    /// The variables of the process.
    pub(crate) environment: Environment,
    /// A text to use instead of the content of a file.
    pub(crate) file_override: Option<(PathBuf, String)>,
}

/// A config, and where it came from.
pub(crate) struct LoadedConfig {
    /// The effective config.
    pub(crate) config: Config,
    /// The same in its written form, with defaults.
    pub(crate) raw: RawConfig,
    /// The merged layers, with origins.
    pub(crate) tree: Node,
    /// The files that were read, in increasing precedence.
    pub(crate) files: Vec<PathBuf>,
    /// Those of them that are empty.
    pub(crate) blank_files: Vec<PathBuf>,
    /// Configs of other programs that were read too.
    pub(crate) imported_files: Vec<PathBuf>,
    /// The files of old registries that were read, and the folders in which a new one would be.
    pub(crate) registry_files: Vec<PathBuf>,
    pub(crate) registry_folders: Vec<PathBuf>,
}

impl LoadOptions {
    /// Options with the folder and the environment of this process.
    ///
    /// # Errors
    /// When the working folder cannot be determined.
    pub(crate) fn from_process() -> io::Result<Self> {
        Ok(Self { folder: std::env::current_dir()?, environment: Environment::from_process(), ..Self::default() })
    }

    /// The same for a config of which only the shape matters: variables that are not set are no problem.
    pub(crate) fn assuming_variables_set(self) -> Self {
        Self { environment: self.environment.assuming_all_set(), ..self }
    }

    /// The same for the reloads of a running server.
    pub(crate) fn of_running_server(self) -> Self {
        Self { environment: self.environment.of_running_server(), ..self }
    }

    /// The same with the variables of `--env-file`, and the problems of that file.
    pub(crate) fn with_env_file(&self) -> (Self, Vec<Problem>) {
        let (mut options, mut problems) = (self.clone(), Vec::new());
        if let Some(path) = &self.env_file {
            let origin = Origin::Flag(format!("--env-file {}", path.display()));
            match read_source(self, &self.folder.join(path), &origin) {
                Ok(source) => problems = options.environment.add_file(&source),
                Err(problem) => problems.push(problem),
            }
        }
        (options, problems)
    }

    /// The files to read, in increasing precedence; and whether each must exist.
    pub(crate) fn files(&self) -> Vec<(PathBuf, FileRequirement)> {
        let mut files = Vec::new();
        files.extend(self.user_file().filter(|path| path.is_file()).map(|path| (path, FileRequirement::Optional)));
        let named = self.config.clone().map(|path| (path, FileRequirement::ByFlag));
        let from_env = || {
            let path = self.environment.get("TOOLHUB_CONFIG").filter(|path| !path.is_empty())?;
            Some((PathBuf::from(path), FileRequirement::ByVariable))
        };
        let nearest = || {
            let upward = self.folder.ancestors().map(|folder| folder.join(FILE_NAME));
            upward.into_iter().find(|path| path.is_file()).map(|path| (path, FileRequirement::Optional))
        };
        files.extend(named.or_else(from_env).or_else(nearest));
        files.into_iter().map(|(path, requirement)| (self.folder.join(path), requirement)).collect()
    }

    /// The path of the user's own file, whether or not it exists.
    pub(crate) fn user_file(&self) -> Option<PathBuf> {
        let absolute_path = |name| self.environment.get(name).filter(|path| path.starts_with('/')).map(PathBuf::from);
        let folder = absolute_path("XDG_CONFIG_HOME").or_else(|| Some(absolute_path("HOME")?.join(".config")))?;
        Some(folder.join("toolhub").join("config.toml"))
    }

    /// The name of a file in messages: relative to the working folder if inside.
    fn display_name(&self, path: &FilePath) -> String {
        path.strip_prefix(&self.folder).unwrap_or(path).display().to_string()
    }
}

impl fmt::Debug for LoadedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedConfig").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Whether a file must exist, and what named it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileRequirement {
    Optional,
    ByFlag,
    ByVariable,
}

/// The shape of a config.
static SHAPE: LazyLock<Shape> = LazyLock::new(Shape::of_config);

/// Loads the config.
///
/// # Errors
/// Every problem of the config.
pub(crate) fn load(options: &LoadOptions) -> Result<LoadedConfig, Problems> {
    match load_partially(options) {
        (Some(loaded), problems) if problems.is_empty() => Ok(loaded),
        (_, problems) => Err(Problems::new(problems)),
    }
}

/// Loads the config as far as it is valid, and returns every problem. A config with problems is only for finding more of them.
pub(crate) fn load_partially(options: &LoadOptions) -> (Option<LoadedConfig>, Vec<Problem>) {
    let shape = &*SHAPE;
    let (options, mut problems) = options.with_env_file();
    let (options, environment) = (&options, &options.environment);
    let (mut tree, mut files, mut blank_files, mut has_syntax_errors) = (Node::empty(), Vec::new(), Vec::new(), false);
    // The folder for relative paths without a better origin.
    let mut folder = options.folder.clone();
    for (path, requirement) in options.files() {
        let origin = match requirement {
            FileRequirement::ByVariable => environment.origin("TOOLHUB_CONFIG"),
            FileRequirement::Optional | FileRequirement::ByFlag => {
                Origin::Flag(format!("--config {}", options.display_name(&path)))
            }
        };
        match read_source(options, &path, &origin) {
            Ok(source) => {
                let (mut node, syntax_problems) = tree::parse(&source);
                has_syntax_errors |= !syntax_problems.is_empty();
                let found = validate_file(&mut node, shape, environment, &syntax_problems);
                problems.extend(syntax_problems.into_iter().chain(found));
                match files.is_empty() {
                    true => tree = node,
                    false => tree.merge(node),
                }
                if Some(&path) != options.user_file().as_ref() {
                    folder = path.parent().map_or(folder, FilePath::to_owned);
                }
                if source.text.trim().is_empty() {
                    blank_files.push(path.clone());
                }
                files.push(path);
            }
            Err(problem) => problems.push(problem),
        }
    }
    problems.extend(overlay::apply_environment(&mut tree, shape, environment));
    problems.extend(apply_flags(options, &mut tree, shape));
    let imported = mcp_json::read(&tree, &options.folder);
    problems.extend(imported.problems);
    for mut servers in imported.trees {
        problems.extend(validate_file(&mut servers, shape, environment, &[]));
        problems.extend(mcp_json::merge(&mut tree, servers));
    }
    let old = old_registry::read(&tree, &options.folder);
    problems.extend(old.problems);
    if let Some(mut sections) = old.tree {
        problems.extend(validate_file(&mut sections, shape, environment, &[]));
        problems.extend(old_registry::merge(&mut tree, sections));
    }
    // After a syntax error, keys that seem to be missing may be on the lines that could not be read.
    if !has_syntax_errors {
        problems.extend(check::validate(&tree, shape));
    }
    // Only valid values are resolved; sections without problems are resolved all the same, to report their problems too.
    if !problems.is_empty() {
        let rest = salvage::retain_valid(&tree, &problems).filter(|_| !has_syntax_errors);
        let Some(rest) = rest else { return (None, problems) };
        tree = rest;
    }
    let raw = match to_raw(&tree) {
        Ok(raw) => raw,
        Err(_) if !problems.is_empty() => return (None, problems),
        Err(error) => {
            let message = format!("cannot deserialize the config; this is a bug in toolhub: {error}");
            return (None, vec![Problem::new(tree.origin.clone(), "", message)]);
        }
    };
    let (mut config, more) = resolve::resolve(&raw, &tree, &folder, environment, &options.folder);
    problems.extend(more);
    config.warnings.extend(imported.warnings.into_iter().chain(old.warnings));
    let (imported_files, registry_files, registry_folders) = (imported.files, old.files, old.folders);
    let loaded =
        LoadedConfig { config, raw, tree, files, blank_files, imported_files, registry_files, registry_folders };
    (Some(loaded), problems)
}

/// Deserializes the tree, with defaults. Some defaults depend on other keys.
fn to_raw(tree: &Node) -> serde_json::Result<RawConfig> {
    let mut raw: RawConfig = serde_json::from_value(tree.to_json())?;
    let is_set = |key| tree.get(&Path::of(["store", "retention", key])).is_some();
    if raw.store.backend == Backend::Memory {
        let retention = &mut raw.store.retention;
        retention.calls = if is_set("calls") { retention.calls } else { Retention::CALLS_IN_MEMORY };
        retention.audit = if is_set("audit") { retention.audit } else { Retention::AUDIT_IN_MEMORY };
    }
    Ok(raw)
}

/// Loads a tool that does not come from a file, by the same rules. Variables are not expanded, because a client of the API must
/// not read the server's environment. `others` says which tools exist that it may depend on.
///
/// # Errors
/// Every problem of the tool.
pub(crate) fn load_tool(name: &str, raw: &Map<String, Value>, others: impl Fn(&str) -> bool) -> Result<Tool, Problems> {
    let mut config = load_section("tools", name, raw, others)?;
    config
        .tools
        .remove(name)
        .ok_or_else(|| section_problem(name, "a disabled tool cannot be registered; omit `enabled`".into()))
}

/// Loads an MCP server that does not come from a file, like [`load_tool`].
///
/// # Errors
/// Every problem of the server.
pub(crate) fn load_server(
    name: &str,
    raw: &Map<String, Value>,
    others: impl Fn(&str) -> bool,
) -> Result<McpServerPlan, Problems> {
    let mut config = load_section("mcp_servers", name, raw, others)?;
    config.mcp_servers.remove(name).ok_or_else(|| section_problem(name, "it cannot be resolved".into()))
}

/// Loads a config that has only the section `[kind.name]`.
fn load_section(
    kind: &str,
    name: &str,
    raw: &Map<String, Value>,
    others: impl Fn(&str) -> bool,
) -> Result<Config, Problems> {
    let shape = &*SHAPE;
    // Put its dependencies beside it, as if they were in the same file. Their definitions do not matter here.
    let known = collect_dependencies(raw).into_iter().filter(|base| *base != name && others(base));
    let tools: Map<String, Value> = known.map(|base| (base.to_owned(), json!({"builtin": "clock"}))).collect();
    let mut sections = Map::from_iter([("tools".to_owned(), tools.into())]);
    sections.entry(kind).or_insert_with(|| json!({}))[name] = raw.clone().into();
    let text = toml::to_string(&sections).map_err(|error| section_problem(name, error.to_string()))?;
    let source = Arc::new(Source { name: format!("`{name}`"), path: PathBuf::new(), text });
    let (mut tree, mut problems) = tree::parse(&source);
    let environment = Environment::default();
    let found = validate_file(&mut tree, shape, &environment, &problems);
    problems.extend(found);
    problems.extend(check::validate(&tree, shape));
    if !problems.is_empty() {
        let Some(rest) = salvage::retain_valid(&tree, &problems) else { return Err(Problems::new(problems)) };
        tree = rest;
    }
    let raw = to_raw(&tree).map_err(|error| section_problem(name, error.to_string()))?;
    let folder = PathBuf::new();
    let (config, more) = resolve::resolve(&raw, &tree, &folder, &environment, &folder);
    problems.extend(more);
    if problems.is_empty() { Ok(config) } else { Err(Problems::new(problems)) }
}

fn section_problem(name: &str, message: String) -> Problems {
    Problems::new(vec![Problem::new(Origin::Flag(format!("`{name}`")), "", message)])
}

/// The tools that a section, or one inside it, depends on.
fn collect_dependencies(section: &Map<String, Value>) -> Vec<&str> {
    let own = section.get("depends_on").map(collect_strings).unwrap_or_default();
    let of_tools = section.get("tools").and_then(Value::as_object).into_iter().flatten();
    own.into_iter().chain(of_tools.filter_map(|(_, tool)| tool.as_object()).flat_map(collect_dependencies)).collect()
}

/// Every string in a value, at any depth.
fn collect_strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(collect_strings).collect(),
        Value::Object(members) => members.values().flat_map(collect_strings).collect(),
        _ => Vec::new(),
    }
}

fn apply_flags(options: &LoadOptions, tree: &mut Node, shape: &Shape) -> Vec<Problem> {
    let mut problems = Vec::new();
    for assignment in &options.set {
        let key = assignment.split('=').next().unwrap_or_default();
        // The value may be a secret, and the origin is shown.
        problems.extend(overlay::apply_flag(tree, shape, assignment, &Origin::Flag(format!("--set {}", key.trim()))));
    }
    let host = options.host.as_ref().map(|host| ("host", host.clone()));
    let port = options.port.map(|port| ("port", port.to_string()));
    for (name, value) in host.into_iter().chain(port) {
        let origin = Origin::Flag(format!("--{name} {value}"));
        problems.extend(overlay::apply_flag(tree, shape, &format!("server.{name}={value}"), &origin));
    }
    if options.no_ui {
        problems.extend(overlay::apply_flag(tree, shape, "server.ui=false", &Origin::Flag("--no-ui".into())));
    }
    problems
}

/// The problems of one file, except on lines with a syntax error.
fn validate_file(node: &mut Node, shape: &Shape, environment: &Environment, syntax: &[Problem]) -> Vec<Problem> {
    let mut found = Vec::new();
    variables::expand(node, &Path::default(), environment, &mut found);
    found.extend(check::validate_partial(node, &Path::default(), shape, shape));
    let line = |problem: &Problem| match &problem.origin {
        Origin::File { source, span } => Some(source.text[..span.start.min(source.text.len())].matches('\n').count()),
        Origin::Env { .. } | Origin::Flag(_) => None,
    };
    let syntax_lines: Vec<_> = syntax.iter().map(line).collect();
    found.into_iter().filter(|problem| !syntax_lines.contains(&line(problem))).collect()
}

fn read_source(options: &LoadOptions, path: &FilePath, origin: &Origin) -> Result<Arc<Source>, Problem> {
    let name = options.display_name(path);
    if let Some((_, text)) = options.file_override.as_ref().filter(|(file, _)| file == path) {
        return Ok(Arc::new(Source { name, path: path.to_owned(), text: text.clone() }));
    }
    source_file::read(path, name, origin)
}
