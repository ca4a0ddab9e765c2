//! `import`: tools that are described elsewhere, written into the config.
//!
//! In: a document. Out: what it comes to, and lines at the end of the config file. Nothing is written before the config was found good with
//! them, and what cannot be written whole leaves nothing behind.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use toolhub::openapi::{self, ImportedDocument, Options, Scheme, SchemeKind};

use crate::{
    client,
    config::{self, FileRequirement, LoadOptions},
    exit::Exit,
    failure::Failure,
    output::{Column, Table, strip_control_chars},
    session::Session,
};

/// Write tools into the config that are described elsewhere.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ImportCommand {
    /// Make a tool of each operation of an OpenAPI document (3.0 or 3.1, JSON or YAML)
    Openapi(OpenApiArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct OpenApiArgs {
    /// The document: a file, or an http(s) address. What comes from an address is kept in `specs/` beside the config
    spec: String,
    /// Tools are called PREFIX__operation
    #[arg(long)]
    prefix: Option<String>,
    /// Take only operations whose names fit; may be given several times
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Leave out operations whose names fit; may be given several times
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Where the service is, in place of what the document says
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// A host that may be reached although its address is private or local; may be given several times
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Only show what would come of it
    #[arg(long)]
    dry_run: bool,
}

impl OpenApiArgs {
    fn is_url(&self) -> bool {
        self.spec.starts_with("http://") || self.spec.starts_with("https://")
    }
}

pub(crate) async fn run(session: &Session, import: ImportCommand) -> Result<Exit, Failure> {
    let ImportCommand::Openapi(said) = import;
    let asked = session.global.load_options()?;
    let is_address = said.is_url();
    let text = if is_address {
        client::fetch(&said.spec).await?
    } else {
        let file = asked.folder.join(&said.spec);
        fs::read_to_string(&file).map_err(|error| {
            Failure::usage(format!("{} cannot be read: {error}", said.spec)).help("name a file or an http(s) address")
        })?
    };
    let options = Options {
        prefix: said.prefix.clone(),
        include: said.include.clone(),
        exclude: said.exclude.clone(),
        base_url: said.base_url.clone(),
        document_url: is_address.then(|| client::redact_url(&said.spec)),
        ..Options::default()
    };
    let imported = openapi::import(&text, &options).map_err(|error| Failure::usage(error.to_string()))?;
    let written = match said.dry_run || imported.plans.is_empty() {
        true => None,
        false => {
            let written = write(&asked, &said, is_address.then_some(text.as_str()), &imported).await;
            Some(written.inspect_err(|_| session.printer.note("nothing was written"))?)
        }
    };
    show(session, &said, &imported, written.as_deref());
    Ok(Exit::Success)
}

fn show(session: &Session, said: &OpenApiArgs, imported: &ImportedDocument, written: Option<&Path>) {
    let secrets: Vec<&Scheme> = imported.schemes.iter().collect();
    if session.printer.json {
        let tools = imported.plans.iter().map(|plan| {
            json!({ "name": plan.name, "method": plan.method, "path": plan.path, "description": plan.description })
        });
        let secrets = secrets.iter().map(
            |scheme| json!({ "name": scheme.name, "needs": scheme.kind.description(), "variables": scheme.variables }),
        );
        let warnings: Vec<String> = imported.warnings.iter().map(ToString::to_string).collect();
        let whole = json!({
            "title": imported.title, "version": imported.version, "tools": tools.collect::<Vec<Value>>(),
            "filtered": imported.filtered, "skipped": imported.skipped(), "warnings": warnings,
            "secrets": secrets.collect::<Vec<Value>>(), "written": written.map(Path::display).map(|path| path.to_string()),
        });
        return session.printer.print_json(&whole.to_string());
    }
    let mut table = Table::new([
        Column::new("TOOL"),
        Column::new("OPERATION").shrink_to(20),
        Column::new("WHAT IT DOES").shrink_to(12).drop_order(1),
    ]);
    for plan in &imported.plans {
        let first = plan.description.lines().next().unwrap_or_default().to_owned();
        table.add_row([plan.name.to_string(), plan.operation(), first]);
    }
    // The table has cleaned what stands in the document.
    session.printer.print(&table.render(session.printer.width, session.printer.ascii));
    for warning in &imported.warnings {
        session.printer.note(&strip_control_chars(&warning.to_string()));
    }
    for scheme in secrets {
        let variables = scheme.variables.join(" and ");
        let variables = if variables.is_empty() { String::new() } else { format!("; set {variables}") };
        session.printer.note(&strip_control_chars(&format!(
            "`{}` needs {}{variables}",
            scheme.name,
            scheme.kind.description()
        )));
    }
    let (many, left) = (imported.plans.len(), imported.filtered + imported.skipped());
    let counted = |many: usize, word: &str| format!("{many} {word}{}", if many == 1 { "" } else { "s" });
    let what = format!("{} of \"{}\", {} left out", counted(many, "tool"), imported.title, counted(left, "operation"));
    session.printer.note(&strip_control_chars(&match written {
        Some(file) => {
            format!("{what}; written into {}. Next: toolhub serve, or a reload of the server", file.display())
        }
        None if said.dry_run => format!("{what}; nothing was written"),
        None => format!("{what}; there was nothing to write"),
    }));
}

/// Writes the lines, and the document where it came from an address. Answers which file has them.
async fn write(
    asked: &LoadOptions,
    said: &OpenApiArgs,
    text: Option<&str>,
    imported: &ImportedDocument,
) -> Result<PathBuf, Failure> {
    let file = project_file(asked)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let before = fs::read_to_string(&file).map_err(|error| io_failure(&file, &error))?;
    let with = |spec: &str| format!("{}\n\n{}", before.trim_end(), config_lines(asked, said, spec, imported));
    let Some(text) = text else {
        let whole = with(&relative_path(&asked.folder.join(&said.spec), folder));
        check(asked, &file, &whole).await?;
        atomic_replace(&file, &whole).map_err(|error| io_failure(&file, &error))?;
        return Ok(file);
    };
    let ending = if text.trim_start().starts_with('{') { "json" } else { "yaml" };
    let name = format!("{}.{ending}", spec_file_name(said.prefix.as_deref().unwrap_or(&imported.title)));
    let place = folder.join("specs").join(&name);
    if place.exists() {
        let words = format!("{} is there already", place.display());
        return Err(Failure::usage(words).help("give a --prefix of its own, or remove the file first"));
    }
    // Looked at elsewhere, until the config was found good with it.
    let aside =
        TempDocument::new(&std::env::temp_dir().join(format!("toolhub-import-{}", std::process::id())), &name, text)?;
    check(asked, &file, &with(&aside.path.display().to_string())).await?;
    drop(aside);
    let kept = TempDocument::new(&folder.join("specs"), &name, text)?;
    atomic_replace(&file, &with(&relative_path(&place, folder))).map_err(|error| io_failure(&file, &error))?;
    kept.persist();
    Ok(file)
}

/// The file that is to have the tools: the project's, or the one that was named. The user's own holds everywhere, and is changed
/// by nobody who did not name it.
fn project_file(asked: &LoadOptions) -> Result<PathBuf, Failure> {
    let found = asked.files().pop().filter(|(file, _)| file.is_file());
    let own = asked.user_file();
    let found = found.filter(|(file, needed)| *needed != FileRequirement::Optional || Some(file) != own.as_ref());
    found.map(|(file, _)| file).ok_or_else(|| {
        let place = asked.folder.join(config::FILE_NAME);
        Failure::usage("there is no toolhub.toml that could have the tools")
            .help(format!("`toolhub init --empty` writes {}, where they would go", place.display()))
            .help("--config names another file; --dry-run shows the tools without one")
    })
}

/// Looks whether a config would be good with another text in one of its files.
async fn check(asked: &LoadOptions, file: &Path, text: &str) -> Result<(), Failure> {
    let asked = LoadOptions { file_override: Some((file.to_owned(), text.to_owned())), ..asked.clone() };
    let loaded = config::load(&asked).map_err(|problems| Failure::from_config_problems(&problems))?;
    config::dry_run(&loaded).await.map_err(|problems| Failure::from_config_problems(&problems))
}

/// A document in a file of its own, which is gone with this unless it is to stay.
struct TempDocument {
    path: PathBuf,
    /// The folder, where there was none before.
    created_folder: Option<PathBuf>,
}

impl TempDocument {
    fn new(folder: &Path, name: &str, text: &str) -> Result<Self, Failure> {
        let made = (!folder.exists()).then(|| folder.to_owned());
        fs::create_dir_all(folder).map_err(|error| io_failure(folder, &error))?;
        let this = Self { path: folder.join(name), created_folder: made };
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
        // What cannot be taken away lies there, and is in nobody's way.
        let _ = fs::remove_file(&self.path);
        let _ = self.created_folder.take().map(fs::remove_dir);
    }
}

fn io_failure(what: &Path, error: &io::Error) -> Failure {
    Failure::unexpected(format!("{}: {error}", what.display()))
}

/// Puts a text in the place of a file's, whole or not at all: the file is the user's own, and a disk may be full. A link stays one, and
/// whoever could not read the file still cannot.
fn atomic_replace(file: &Path, text: &str) -> io::Result<()> {
    let file = file.canonicalize()?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let aside = file.with_file_name(name);
    let written = write_temp(&aside, text, file.metadata()?.permissions()).and_then(|()| fs::rename(&aside, &file));
    let Err(error) = written else { return Ok(()) };
    let _ = fs::remove_file(&aside);
    // One that is mounted by itself, as containers do, can only be written in its place.
    if error.kind() == io::ErrorKind::ResourceBusy { fs::write(&file, text) } else { Err(error) }
}

fn write_temp(file: &Path, text: &str, permissions: fs::Permissions) -> io::Result<()> {
    let mut written = fs::File::create(file)?;
    written.set_permissions(permissions)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()
}

/// What is written into the config.
fn config_lines(asked: &LoadOptions, said: &OpenApiArgs, spec: &str, imported: &ImportedDocument) -> String {
    // `${` would be read as a variable.
    let text = |text: &str| toml_string(&text.replace("${", "$${"));
    let list = |words: &[String]| format!("[{}]", words.iter().map(|word| text(word)).collect::<Vec<_>>().join(", "));
    let mut lines = vec![format!("[[imports.openapi]]\nspec = {}", text(spec))];
    let one = |key: &str, value: &Option<String>| value.as_deref().map(|value| format!("{key} = {}", text(value)));
    lines.extend(one("prefix", &said.prefix));
    lines.extend(one("base_url", &said.base_url));
    for (key, words) in [("include", &said.include), ("exclude", &said.exclude), ("allow_hosts", &said.allow_host)] {
        lines.extend((!words.is_empty()).then(|| format!("{key} = {}", list(words))));
    }
    if said.is_url() {
        lines.push(format!("document_url = {}", text(&client::redact_url(&said.spec))));
    }
    for scheme in &imported.schemes {
        let Some(last) = scheme.variables.last() else { continue };
        // A variable that is not set would make the config wrong. And where no prefix of the user stands before it, the document
        // alone chose its name, and would have any variable of this machine sent to its service.
        let holds = said.prefix.is_some() && scheme.variables.iter().all(|name| asked.environment.get(name).is_some());
        let mark = if holds { "" } else { "# " };
        let reference = |index: usize| format!("{{ env = {} }}", text(scheme.variables.get(index).unwrap_or(last)));
        let given = match &scheme.kind {
            SchemeKind::Basic => format!("username = \"…\", password = {}", reference(1)),
            SchemeKind::ClientCredentials { .. } => format!("client_id = \"…\", client_secret = {}", reference(1)),
            _ => format!("token = {}", reference(0)),
        };
        // Who asks is no secret, and nobody here knows it.
        let mark = if given.contains('…') { "# " } else { mark };
        lines.push(format!("{mark}credentials.{} = {{ {given} }}", toml_key(&scheme.name)));
    }
    lines.join("\n") + "\n"
}

/// A key of TOML.
fn toml_key(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { name.into() } else { toml_string(name) }
}

/// A text of TOML, on one line whatever it holds: it may stand behind a `#`, and may come from a stranger. What JSON escapes, TOML
/// reads in the same way; one character more may not stand in it as it is.
fn toml_string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// A name for a file.
fn spec_file_name(words: &str) -> String {
    let name: String = words
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' })
        .collect();
    match name.trim_matches('-') {
        "" => "openapi".into(),
        name => name.chars().take(48).collect(),
    }
}

/// A path as it is written in a file of a folder.
fn relative_path(path: &Path, folder: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}
