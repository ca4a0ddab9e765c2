//! Adds an import to the config file, and saves a fetched document beside it.
//!
//! In: an imported document, and the flags of its import. Out: the config file with one more section. The config with it is validated
//! before anything is written, and a failed write leaves no partial files behind.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use toolhub::openapi::{ImportedDocument, Scheme, SchemeKind};

use super::OpenApiArgs;
use crate::{
    client,
    config::{self, ExistingVariables, FileRequirement, LoadOptions, Problems, toml_key, toml_string},
    failure::Failure,
};

/// The config file with the import.
pub(super) struct WrittenConfig {
    pub(super) file: PathBuf,
    text: String,
}

impl WrittenConfig {
    /// The lines with credentials that are commented out: number and text.
    pub(super) fn commented_credentials<'a>(&'a self, schemes: &'a [Scheme]) -> impl Iterator<Item = (usize, &'a str)> {
        let lines: Vec<(usize, &str)> = self.text.lines().enumerate().collect();
        let start = lines.iter().rposition(|(_, line)| *line == "[[imports.openapi]]").unwrap_or_default();
        let is_ours = |line: &str| {
            let keys = schemes.iter().map(|scheme| format!("# credentials.{} = ", toml_key(&scheme.name)));
            keys.into_iter().any(|key| line.starts_with(&key))
        };
        lines.into_iter().skip(start).filter(move |(_, line)| is_ours(line)).map(|(index, line)| (index + 1, line))
    }
}

/// Appends the import to the config file and saves a fetched document beside it.
pub(super) async fn write(
    options: &LoadOptions,
    args: &OpenApiArgs,
    text: Option<&str>,
    imported: &ImportedDocument,
) -> Result<WrittenConfig, Failure> {
    let file = project_file(options)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let before = fs::read_to_string(&file).map_err(|error| io_failure(&file, &error))?;
    let with_import = |spec: &str| format!("{}\n\n{}", before.trim_end(), config_lines(options, args, spec, imported));
    let Some(text) = text else {
        let new_text = with_import(&relative_path(&options.folder.join(&args.spec), folder));
        check(options, &file, &new_text).await?;
        atomic_replace(&file, &new_text).map_err(|error| io_failure(&file, &error))?;
        return Ok(WrittenConfig { file, text: new_text });
    };
    let extension = if text.trim_start().starts_with('{') { "json" } else { "yaml" };
    let name = format!("{}.{extension}", spec_file_name(args.prefix.as_deref().unwrap_or(&imported.title)));
    let target = folder.join("specs").join(&name);
    if target.exists() {
        return Err(Failure::usage(format!("{} already exists", target.display()))
            .help("choose another --prefix, or remove the file first"));
    }
    // Validate with a temporary copy, so that a config with errors leaves no document behind.
    let temp =
        TempDocument::new(&std::env::temp_dir().join(format!("toolhub-import-{}", std::process::id())), &name, text)?;
    check(options, &file, &with_import(&temp.path.display().to_string())).await?;
    drop(temp);
    let saved = TempDocument::new(&folder.join("specs"), &name, text)?;
    let new_text = with_import(&relative_path(&target, folder));
    atomic_replace(&file, &new_text).map_err(|error| io_failure(&file, &error))?;
    saved.persist();
    Ok(WrittenConfig { file, text: new_text })
}

/// Appends sections of MCP servers to the config file, and returns it.
pub(crate) async fn append_mcp_servers(
    options: &LoadOptions,
    names: &[&str],
    sections: &str,
) -> Result<PathBuf, Failure> {
    let servers = NewSections { table: "mcp_servers", noun: "an MCP server", names };
    append_sections(options, &[servers], sections).await.map_err(|failure| match failure.existing {
        Some((_, name)) => failure.error.help(format!("or remove it first: toolhub mcp remove {name}")),
        None => failure.error,
    })
}

/// The sections that are appended below a table.
pub(crate) struct NewSections<'a> {
    pub(crate) table: &'static str,
    /// What one of them is.
    pub(crate) noun: &'static str,
    pub(crate) names: &'a [&'a str],
}

/// Why sections were not appended.
pub(crate) struct AppendFailure {
    pub(crate) error: Failure,
    /// The section that exists already: its table and its name.
    pub(crate) existing: Option<(&'static str, String)>,
}

impl From<Failure> for AppendFailure {
    fn from(error: Failure) -> Self {
        Self { error, existing: None }
    }
}

/// Appends sections to the config file, and returns it. Variables that are not set are no problem, because the user sets them later.
pub(crate) async fn append_sections(
    options: &LoadOptions,
    new: &[NewSections<'_>],
    sections: &str,
) -> Result<PathBuf, AppendFailure> {
    let file = project_file(options)?;
    let before = fs::read_to_string(&file).map_err(|error| io_failure(&file, &error))?;
    // The validation reports a file that is not TOML.
    let config: toml::Table = before.parse().unwrap_or_default();
    for NewSections { table, noun, names } in new {
        let members = config.get(*table).and_then(toml::Value::as_table);
        if let Some(name) = names.iter().find(|name| members.is_some_and(|members| members.contains_key(**name))) {
            let error = Failure::usage(format!("{} has {noun} named `{name}` already", file.display()))
                .help(format!("change its section [{table}.{}] there", toml_key(name)));
            return Err(AppendFailure { error, existing: Some((*table, (*name).to_owned())) });
        }
    }
    let text = format!("{}\n\n{sections}", before.trim_end());
    check(&options.clone().assuming_variables_set(), &file, &text).await?;
    atomic_replace(&file, &text).map_err(|error| io_failure(&file, &error))?;
    Ok(file)
}

/// The variables that are set, and those that the config file refers to.
pub(crate) fn existing_variables(options: &LoadOptions) -> ExistingVariables {
    let text = project_file(options).ok().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    // The validation reports a file that is not TOML.
    let table: toml::Table = text.parse().unwrap_or_default();
    let values = options.environment.names();
    ExistingVariables {
        referenced: serde_json::to_value(&table).as_ref().map(config::referenced_variables).unwrap_or_default(),
        values: values.filter_map(|name| Some((name.to_owned(), options.environment.get(name)?.to_owned()))).collect(),
    }
}

/// Removes the section `[mcp_servers.NAME]` and those below it from the config file, and returns the file. Everything else stays as it
/// is. `None` if the file has no such section.
pub(crate) async fn remove_mcp_server(options: &LoadOptions, name: &str) -> Result<Option<PathBuf>, Failure> {
    let file = project_file(options)?;
    let before = fs::read_to_string(&file).map_err(|error| io_failure(&file, &error))?;
    let Ok(mut expected) = before.parse::<toml::Table>() else { return Ok(None) };
    let servers = expected.get_mut("mcp_servers").and_then(toml::Value::as_table_mut);
    if servers.and_then(|servers| servers.remove(name)).is_none() {
        return Ok(None);
    }
    let text = without_sections(&before, &["mcp_servers", name]);
    let remaining = |table: &toml::Table| {
        let mut table = table.clone();
        table.retain(|key, value| key != "mcp_servers" || value.as_table().is_some_and(|servers| !servers.is_empty()));
        table
    };
    // A server that is written in another way is not cut out by lines.
    if text.parse::<toml::Table>().map(|table| remaining(&table)) != Ok(remaining(&expected)) {
        return Err(Failure::usage(format!("`{name}` is not written as a section in {}", file.display()))
            .help("remove it there with an editor"));
    }
    check(&options.clone().assuming_variables_set(), &file, &text).await?;
    atomic_replace(&file, &text).map_err(|error| io_failure(&file, &error))?;
    Ok(Some(file))
}

/// A TOML text without the sections at and below a path. Comments directly above the next section stay.
pub(crate) fn without_sections(text: &str, path: &[&str]) -> String {
    let is_inside = |header: &str| {
        let Ok(table) = header.parse::<toml::Table>() else { return false };
        let mut keys = path.iter();
        let root = toml::Value::Table(table);
        keys.try_fold(&root, |value, key| value.get(key)).is_some()
    };
    let (mut kept, mut skipping, mut comments) = (String::new(), false, Vec::new());
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed.starts_with('[') && trimmed.parse::<toml::Table>().is_ok() {
            skipping = is_inside(trimmed);
            if !skipping {
                kept.extend(comments.drain(..));
            }
            comments.clear();
        }
        match skipping {
            false => kept.push_str(line),
            true if trimmed.starts_with('#') => comments.push(line),
            true => comments.clear(),
        }
    }
    format!("{}\n", kept.trim_end())
}

/// The file to write to: the project's config, or the one named by `--config`. The user's own config applies everywhere, so it is
/// only changed when it was named.
pub(crate) fn project_file(options: &LoadOptions) -> Result<PathBuf, Failure> {
    let file = options.files().pop().filter(|(file, _)| file.is_file());
    let user_file = options.user_file();
    let file = file
        .filter(|(file, requirement)| *requirement != FileRequirement::Optional || Some(file) != user_file.as_ref());
    file.map(|(file, _)| file).ok_or_else(|| {
        let target = options.folder.join(config::FILE_NAME);
        Failure::usage("no toolhub.toml to write the tools to")
            .help(format!("`toolhub init --empty` creates {}", target.display()))
            .help("--config FILE selects another file; --dry-run prints the tools without writing")
    })
}

/// Validates the config as if one of its files had this text.
async fn check(options: &LoadOptions, file: &Path, text: &str) -> Result<(), Failure> {
    let options = LoadOptions { file_override: Some((file.to_owned(), text.to_owned())), ..options.clone() };
    let loaded = config::load(&options).map_err(|problems| Failure::from_config_problems(&problems))?;
    let problems = config::dry_run(&loaded, &[]).await;
    if problems.is_empty() { Ok(()) } else { Err(Failure::from_config_problems(&Problems::new(problems))) }
}

/// A document in its own file, removed on drop unless [`Self::persist`] was called.
struct TempDocument {
    path: PathBuf,
    /// The folder, if this created it.
    created_folder: Option<PathBuf>,
}

impl TempDocument {
    fn new(folder: &Path, name: &str, text: &str) -> Result<Self, Failure> {
        let created_folder = (!folder.exists()).then(|| folder.to_owned());
        fs::create_dir_all(folder).map_err(|error| io_failure(folder, &error))?;
        let this = Self { path: folder.join(name), created_folder };
        let written = fs::File::create_new(&this.path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| io_failure(&this.path, &error))?;
        Ok(this)
    }

    fn persist(mut self) {
        (self.path, self.created_folder) = (PathBuf::new(), None);
    }
}

impl Drop for TempDocument {
    fn drop(&mut self) {
        // A file that cannot be removed does no harm.
        let _ = fs::remove_file(&self.path);
        let _ = self.created_folder.take().map(fs::remove_dir);
    }
}

fn io_failure(path: &Path, error: &io::Error) -> Failure {
    Failure::unexpected(format!("{}: {error}", path.display()))
}

/// Replaces a file atomically, because it is the user's own and the disk may be full. Keeps symlinks and permissions.
pub(crate) fn atomic_replace(file: &Path, text: &str) -> io::Result<()> {
    let file = file.canonicalize()?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temp = file.with_file_name(name);
    let written = write_temp(&temp, text, file.metadata()?.permissions()).and_then(|()| fs::rename(&temp, &file));
    let Err(error) = written else { return Ok(()) };
    let _ = fs::remove_file(&temp);
    // A file that is a mount point itself, as in containers, cannot be renamed over.
    if error.kind() == io::ErrorKind::ResourceBusy { fs::write(&file, text) } else { Err(error) }
}

fn write_temp(file: &Path, text: &str, permissions: fs::Permissions) -> io::Result<()> {
    let mut written = fs::File::create(file)?;
    written.set_permissions(permissions)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()
}

/// The TOML lines of the import.
fn config_lines(options: &LoadOptions, args: &OpenApiArgs, spec: &str, imported: &ImportedDocument) -> String {
    // `${` would be expanded as a variable.
    let text = |text: &str| toml_string(&text.replace("${", "$${"));
    let list =
        |values: &[String]| format!("[{}]", values.iter().map(|value| text(value)).collect::<Vec<_>>().join(", "));
    let mut lines = vec![format!("[[imports.openapi]]\nspec = {}", text(spec))];
    let optional = |key: &str, value: &Option<String>| value.as_deref().map(|value| format!("{key} = {}", text(value)));
    lines.extend(optional("prefix", &args.prefix));
    lines.extend(optional("base_url", &args.base_url));
    for (key, values) in [
        ("include", &args.include),
        ("exclude", &args.exclude),
        ("tags", &args.tag),
        ("methods", &args.method),
        ("allow_hosts", &args.allow_host),
    ] {
        lines.extend((!values.is_empty()).then(|| format!("{key} = {}", list(values))));
    }
    if args.is_url() {
        lines.push(format!("document_url = {}", text(&client::redact_url(&args.spec))));
    }
    for scheme in &imported.schemes {
        let Some(last) = scheme.variables.last() else { continue };
        // A variable that is not set would be a config error. And without a prefix of the user, the document alone would choose the
        // variable's name, and could have any variable of this machine sent to its service.
        let is_safe =
            args.prefix.is_some() && scheme.variables.iter().all(|name| options.environment.get(name).is_some());
        let comment = if is_safe { "" } else { "# " };
        let reference = |index: usize| format!("{{ env = {} }}", text(scheme.variables.get(index).unwrap_or(last)));
        let credentials = match &scheme.kind {
            SchemeKind::Basic => format!("username = \"…\", password = {}", reference(1)),
            SchemeKind::ClientCredentials { .. } => format!("client_id = \"…\", client_secret = {}", reference(1)),
            _ => format!("token = {}", reference(0)),
        };
        // The user name or client id is not a secret, and unknown here.
        let comment = if credentials.contains('…') { "# " } else { comment };
        lines.push(format!("{comment}credentials.{} = {{ {credentials} }}", toml_key(&scheme.name)));
    }
    lines.join("\n") + "\n"
}

/// A file name for a saved document.
fn spec_file_name(title: &str) -> String {
    let name: String = title
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' })
        .collect();
    match name.trim_matches('-') {
        "" => "openapi".into(),
        name => name.chars().take(48).collect(),
    }
}

/// The path relative to a folder, if it is inside.
fn relative_path(path: &Path, folder: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}
