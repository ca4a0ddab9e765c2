//! Reads the config: finds the files, lays the layers over each other, and says everything that is wrong.
//!
//! In: what the user asked for. Out: a resolved `Config` with the origin of each value, or all problems. The layers, from the
//! weakest: defaults, the user's own file, the nearest `toolhub.toml` upward or the one that was named, the environment, flags.

use std::{
    fmt, fs, io,
    path::{Path as FilePath, PathBuf},
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value, json};

use super::{
    Config, check,
    environment::Environment,
    overlay,
    problem::{Problem, Problems},
    raw::{Backend, RawConfig, Retention},
    resolve::{self, Tool},
    salvage,
    shape::Shape,
    tree::{self, Node, Origin, Path, Source},
    variables,
};

/// What a config file is called.
pub(crate) const FILE_NAME: &str = "toolhub.toml";
/// A config file is not larger.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Where to look for a config, and what to lay over it.
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
    /// The working folder.
    pub(crate) folder: PathBuf,
    /// The variables of the process.
    pub(crate) environment: Environment,
    /// A file as it would be, in the place of what it holds.
    pub(crate) file_override: Option<(PathBuf, String)>,
}

/// A config, and how it came to be.
pub(crate) struct LoadedConfig {
    /// What holds.
    pub(crate) config: Config,
    /// The same as it would be written, defaults included.
    pub(crate) raw: RawConfig,
    /// What was said, and where.
    pub(crate) tree: Node,
    /// The files that were read, the weaker first.
    pub(crate) files: Vec<PathBuf>,
    /// Those of them that say nothing at all.
    pub(crate) blank_files: Vec<PathBuf>,
}

impl LoadOptions {
    /// With the folder and the environment of this process.
    ///
    /// # Errors
    /// When the working folder is gone.
    pub(crate) fn from_process() -> io::Result<Self> {
        Ok(Self { folder: std::env::current_dir()?, environment: Environment::from_process(), ..Self::default() })
    }

    /// The same with the variables of `--env-file`, and what is wrong with that.
    pub(crate) fn with_env_file(&self) -> (Self, Vec<Problem>) {
        let (mut asked, mut problems) = (self.clone(), Vec::new());
        if let Some(path) = &self.env_file {
            let origin = Origin::Flag(format!("--env-file {}", path.display()));
            match read_source(self, &self.folder.join(path), &origin) {
                Ok(source) => problems = asked.environment.add_file(&source),
                Err(problem) => problems.push(problem),
            }
        }
        (asked, problems)
    }

    /// The files to read, the weaker first; and whether each must be there.
    pub(crate) fn files(&self) -> Vec<(PathBuf, FileRequirement)> {
        let mut files = Vec::new();
        files.extend(self.user_file().filter(|path| path.is_file()).map(|path| (path, FileRequirement::Optional)));
        let named = self.config.clone().map(|path| (path, FileRequirement::ByFlag));
        let by_variable = || {
            let path = self.environment.get("TOOLHUB_CONFIG").filter(|path| !path.is_empty())?;
            Some((PathBuf::from(path), FileRequirement::ByVariable))
        };
        let nearest = || {
            let upward = self.folder.ancestors().map(|folder| folder.join(FILE_NAME));
            upward.into_iter().find(|path| path.is_file()).map(|path| (path, FileRequirement::Optional))
        };
        files.extend(named.or_else(by_variable).or_else(nearest));
        files.into_iter().map(|(path, needed)| (self.folder.join(path), needed)).collect()
    }

    /// The user's own file, whether it is there or not.
    pub(crate) fn user_file(&self) -> Option<PathBuf> {
        let set = |name| self.environment.get(name).filter(|path| path.starts_with('/')).map(PathBuf::from);
        let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
        Some(folder.join("toolhub").join("config.toml"))
    }

    /// How a file is called: short where it is near.
    fn display_name(&self, path: &FilePath) -> String {
        path.strip_prefix(&self.folder).unwrap_or(path).display().to_string()
    }
}

impl fmt::Debug for LoadedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Whether a file must be there, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileRequirement {
    Optional,
    ByFlag,
    ByVariable,
}

/// What a config may look like.
static SHAPE: LazyLock<Shape> = LazyLock::new(Shape::of_config);

/// Reads the config.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub(crate) fn load(asked: &LoadOptions) -> Result<LoadedConfig, Problems> {
    let shape = &*SHAPE;
    let (asked, mut problems) = asked.with_env_file();
    let (asked, environment) = (&asked, &asked.environment);
    let (mut tree, mut files, mut blank, mut broken) = (Node::empty(), Vec::new(), Vec::new(), false);
    // The folder that relative paths begin in where nothing else is known.
    let mut folder = asked.folder.clone();
    for (path, needed) in asked.files() {
        let origin = match needed {
            FileRequirement::ByVariable => environment.origin("TOOLHUB_CONFIG"),
            FileRequirement::Optional | FileRequirement::ByFlag => {
                Origin::Flag(format!("--config {}", asked.display_name(&path)))
            }
        };
        match read_source(asked, &path, &origin) {
            Ok(source) => {
                let (mut node, wrong) = tree::parse(&source);
                broken |= !wrong.is_empty();
                let found = validate_file(&mut node, shape, environment, &wrong);
                problems.extend(wrong.into_iter().chain(found));
                match files.is_empty() {
                    true => tree = node,
                    false => tree.merge(node),
                }
                if Some(&path) != asked.user_file().as_ref() {
                    folder = path.parent().map_or(folder, FilePath::to_owned);
                }
                if source.text.trim().is_empty() {
                    blank.push(path.clone());
                }
                files.push(path);
            }
            Err(problem) => problems.push(problem),
        }
    }
    problems.extend(overlay::apply_environment(&mut tree, shape, environment));
    problems.extend(apply_flags(asked, &mut tree, shape));
    // What could not be read may be all that seems to be missing.
    if !broken {
        problems.extend(check::validate(&tree, shape));
    }
    // What values mean together is asked only of values that fit; the sections without a mistake are asked all the same.
    if !problems.is_empty() {
        let rest = salvage::retain_valid(&tree, &problems).filter(|_| !broken);
        let raw = rest.as_ref().and_then(|rest| serde_json::from_value::<RawConfig>(rest.to_json()).ok());
        if let (Some(rest), Some(raw)) = (rest, raw)
            && let Err(more) = resolve::resolve(&raw, &rest, &folder, environment, &asked.folder)
        {
            problems.extend(more.iter().cloned());
        }
        return Err(Problems::new(problems));
    }
    let raw = to_raw(&tree).map_err(|error| {
        let message = format!("the config cannot be read, which is a bug of toolhub: {error}");
        Problems::new(vec![Problem::new(tree.origin.clone(), "", message)])
    })?;
    let config = resolve::resolve(&raw, &tree, &folder, environment, &asked.folder)?;
    Ok(LoadedConfig { config, raw, tree, files, blank_files: blank })
}

/// What is written, with the defaults where nothing is. Some of them hang on what else is written.
fn to_raw(tree: &Node) -> serde_json::Result<RawConfig> {
    let mut raw: RawConfig = serde_json::from_value(tree.to_json())?;
    let said = |key| tree.get(&Path::of(["store", "retention", key])).is_some();
    if raw.store.backend == Backend::Memory {
        let kept = &mut raw.store.retention;
        kept.calls = if said("calls") { kept.calls } else { Retention::CALLS_IN_MEMORY };
        kept.audit = if said("audit") { kept.audit } else { Retention::AUDIT_IN_MEMORY };
    }
    Ok(raw)
}

/// One tool that did not come from a file, held to the same rules as if it had. No variable is filled in: whoever sends it is
/// not whoever set them. It may wait for tools that `others` knows.
///
/// # Errors
/// Everything that is wrong with it, at once.
pub(crate) fn load_tool(
    name: &str,
    said: &Map<String, Value>,
    others: impl Fn(&str) -> bool,
) -> Result<Tool, Problems> {
    let shape = &*SHAPE;
    let whole =
        |message: String| Problems::new(vec![Problem::new(Origin::Flag(format!("the tool `{name}`")), "", message)]);
    // The tools it waits for stand beside it, as if they were in the same file. What they are does not matter here.
    let named = said.get("depends_on").map(collect_strings).unwrap_or_default().into_iter();
    let known =
        named.filter(|base| *base != name && others(base)).map(|base| (base.to_owned(), json!({"builtin": "clock"})));
    let mut tools: Map<String, Value> = known.collect();
    tools.insert(name.into(), said.clone().into());
    let text = toml::to_string(&json!({ "tools": tools })).map_err(|error| whole(error.to_string()))?;
    let source = Arc::new(Source { name: format!("the tool `{name}`"), path: PathBuf::new(), text });
    let (mut tree, mut problems) = tree::parse(&source);
    let environment = Environment::default();
    let found = validate_file(&mut tree, shape, &environment, &problems);
    problems.extend(found);
    problems.extend(check::validate(&tree, shape));
    if !problems.is_empty() {
        return Err(Problems::new(problems));
    }
    let raw = to_raw(&tree).map_err(|error| whole(error.to_string()))?;
    let folder = PathBuf::new();
    let mut config = resolve::resolve(&raw, &tree, &folder, &environment, &folder)?;
    config.tools.remove(name).ok_or_else(|| whole("a tool that is not enabled is none; leave `enabled` out".into()))
}

/// Every text in a value, at whatever depth.
fn collect_strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(collect_strings).collect(),
        Value::Object(members) => members.values().flat_map(collect_strings).collect(),
        _ => Vec::new(),
    }
}

fn apply_flags(asked: &LoadOptions, tree: &mut Node, shape: &Shape) -> Vec<Problem> {
    let mut problems = Vec::new();
    for said in &asked.set {
        let key = said.split('=').next().unwrap_or_default();
        // The value may be a secret, and the origin is shown.
        problems.extend(overlay::apply_flag(tree, shape, said, &Origin::Flag(format!("--set {}", key.trim()))));
    }
    let host = asked.host.as_ref().map(|host| ("host", host.clone()));
    let port = asked.port.map(|port| ("port", port.to_string()));
    for (name, value) in host.into_iter().chain(port) {
        let origin = Origin::Flag(format!("--{name} {value}"));
        problems.extend(overlay::apply_flag(tree, shape, &format!("server.{name}={value}"), &origin));
    }
    problems
}

/// What is wrong with one file; on a line that is no TOML, nothing more.
fn validate_file(node: &mut Node, shape: &Shape, environment: &Environment, syntax: &[Problem]) -> Vec<Problem> {
    let mut found = Vec::new();
    variables::expand(node, &Path::default(), environment, &mut found);
    found.extend(check::validate_partial(node, &Path::default(), shape, shape));
    let line = |problem: &Problem| match &problem.origin {
        Origin::File { source, span } => Some(source.text[..span.start.min(source.text.len())].matches('\n').count()),
        Origin::Env { .. } | Origin::Flag(_) => None,
    };
    let bad: Vec<_> = syntax.iter().map(line).collect();
    found.into_iter().filter(|problem| !bad.contains(&line(problem))).collect()
}

fn read_source(asked: &LoadOptions, path: &FilePath, origin: &Origin) -> Result<Arc<Source>, Problem> {
    let name = asked.display_name(path);
    if let Some((_, text)) = asked.file_override.as_ref().filter(|(file, _)| file == path) {
        return Ok(Arc::new(Source { name, path: path.to_owned(), text: text.clone() }));
    }
    let fail = |why: String, help: &str| {
        Err(Problem::new(origin.clone(), "", format!("{name} cannot be read: {why}")).help(help))
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return fail(
                "there is no such file".into(),
                "check the path; `toolhub init` writes a config to begin with",
            );
        }
        Err(error) => return fail(error.to_string(), "check the path and who may read it"),
        Ok(found) if found.is_dir() => {
            return fail("it is a folder".into(), "name the file in it, such as toolhub.toml");
        }
        Ok(found) if found.len() > MAX_FILE_BYTES => {
            return fail("it is larger than 4MiB".into(), "is this the right file?");
        }
        Ok(_) => {}
    }
    match fs::read(path).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(Arc::new(Source { name, path: path.to_owned(), text })),
        Ok(Err(_)) => fail("it is no UTF-8 text".into(), "save it as UTF-8"),
        Err(error) => fail(error.to_string(), "check who may read it"),
    }
}
