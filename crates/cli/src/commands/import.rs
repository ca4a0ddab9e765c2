//! `import`: imports tools into the config, from documents that describe an API.
//!
//! In: a document. Out: the resulting tools, and a section in the config file, which `config_file` writes.

pub(crate) mod config_file;
mod registry;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use toolhub::openapi::{self, ImportedDocument, Options, Scheme};

use config_file::{WrittenConfig, write};
use registry::RegistryArgs;

use crate::{
    client,
    config::{self, LoadOptions},
    exit::Exit,
    failure::Failure,
    output::{Column, Table, strip_hidden},
    session::Session,
};

/// Import tools into the config.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ImportCommand {
    /// Create a tool for each operation of an OpenAPI document (3.0 or 3.1, JSON or YAML)
    Openapi(OpenApiArgs),
    /// Convert an old registry (configs/tools/__registry__.toml) to sections of toolhub.toml
    Registry(RegistryArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct OpenApiArgs {
    /// Document: a file, or an http(s) URL. A fetched document is saved in `specs/` beside the config
    spec: String,
    /// Name the tools PREFIX__operation
    #[arg(long)]
    prefix: Option<String>,
    /// Import only operations whose name matches; repeatable
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Skip operations whose name matches; repeatable
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Import only operations with this tag; repeatable
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Import only operations with this method, e.g. get; repeatable
    #[arg(long, value_name = "METHOD")]
    method: Vec<String>,
    /// Base URL of the service, instead of the one in the document
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Allow this host although its address is private or local; repeatable
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Only print the tools; write nothing
    #[arg(long)]
    dry_run: bool,
}

impl OpenApiArgs {
    fn is_url(&self) -> bool {
        self.spec.starts_with("http://") || self.spec.starts_with("https://")
    }
}

pub(crate) async fn run(session: &Session, import: ImportCommand) -> Result<Exit, Failure> {
    match import {
        ImportCommand::Openapi(args) => import_openapi(session, args).await,
        ImportCommand::Registry(args) => registry::run(session, &args).await,
    }
}

async fn import_openapi(session: &Session, args: OpenApiArgs) -> Result<Exit, Failure> {
    let options = session.global.load_options()?;
    let is_url = args.is_url();
    let text = if is_url {
        client::fetch(&args.spec).await?
    } else {
        let file = options.folder.join(&args.spec);
        fs::read_to_string(&file).map_err(|error| {
            Failure::usage(format!("cannot read {}: {error}", args.spec)).help("name a file or an http(s) URL")
        })?
    };
    let import_options = Options {
        prefix: args.prefix.clone(),
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        tags: args.tag.clone(),
        methods: args.method.clone(),
        base_url: args.base_url.clone(),
        document_url: is_url.then(|| client::redact_url(&args.spec)),
        ..Options::default()
    };
    let imported = openapi::import(&text, &import_options).map_err(|error| Failure::usage(error.to_string()))?;
    if imported.plans.is_empty() {
        return Err(nothing_imported(&imported));
    }
    let earlier = EarlierImport::find(&options, &args);
    if let Some(earlier) = &earlier {
        earlier.check(&args)?;
    }
    let written = match args.dry_run {
        true => None,
        false => {
            let written = write(&options, &args, is_url.then_some(text.as_str()), &imported).await;
            Some(written.inspect_err(|_| session.printer.note("nothing was written"))?)
        }
    };
    show(session, &args, &imported, written.as_ref());
    if let Some(earlier) = earlier {
        session.printer.note(&earlier.note());
    }
    Ok(Exit::Success)
}

/// No operation became a tool: a mistake in the flags, or a document without usable operations.
fn nothing_imported(imported: &ImportedDocument) -> Failure {
    let (filtered, skipped) = (imported.filtered, imported.skipped());
    let message = match (filtered, skipped) {
        (0, 0) => format!("\"{}\" has no operations", imported.title),
        (_, 0) => format!("no operation of \"{}\" was selected; it has {filtered}", imported.title),
        _ => format!("no operation of \"{}\" can be used: {filtered} not selected, {skipped} skipped", imported.title),
    };
    let failure = Failure::usage(strip_hidden(&message));
    let warnings = imported.warnings.iter().take(10).map(|warning| strip_hidden(&warning.to_string()));
    let failure = warnings.fold(failure, Failure::help);
    if filtered > 0 {
        failure.help("without --include, --exclude, --tag and --method, all are imported")
    } else {
        failure
    }
}

/// A section of the config that imports the same document.
struct EarlierImport {
    prefix: Option<String>,
    spec: String,
}

impl EarlierImport {
    fn find(options: &LoadOptions, args: &OpenApiArgs) -> Option<Self> {
        let (loaded, _) = config::load_partially(options);
        let loaded = loaded?;
        let folder = loaded.files.last().and_then(|file| file.parent()).unwrap_or(Path::new(".")).to_owned();
        let resolve = |path: PathBuf| path.canonicalize().unwrap_or(path);
        let is_same = |section: &&config::OpenApi| match args.is_url() {
            true => section.document_url.as_deref() == Some(client::redact_url(&args.spec).as_str()),
            false => resolve(folder.join(&section.spec)) == resolve(options.folder.join(&args.spec)),
        };
        let same: Vec<&config::OpenApi> = loaded.raw.imports.openapi.iter().filter(is_same).collect();
        let found = same.iter().find(|section| section.prefix == args.prefix).or(same.first())?;
        Some(Self { prefix: found.prefix.clone(), spec: found.spec.clone() })
    }

    /// Refuses a second import with the same names.
    fn check(&self, args: &OpenApiArgs) -> Result<(), Failure> {
        if self.prefix != args.prefix || args.dry_run {
            return Ok(());
        }
        Err(Failure::usage(format!("{} is imported already", args.spec))
            .help(format!("change its section [[imports.openapi]] with spec = \"{}\" in the config", self.spec))
            .help("or import it again with another --prefix"))
    }

    fn note(&self) -> String {
        let prefix =
            self.prefix.as_ref().map_or("without a prefix".into(), |prefix| format!("with the prefix `{prefix}`"));
        format!("this document is imported already, {prefix}")
    }
}

fn show(session: &Session, args: &OpenApiArgs, imported: &ImportedDocument, written: Option<&WrittenConfig>) {
    let secrets: Vec<&Scheme> = imported.schemes.iter().collect();
    let commented: Vec<(usize, &str)> =
        written.into_iter().flat_map(|written| written.commented_credentials(&imported.schemes)).collect();
    if session.printer.json {
        let tools = imported.plans.iter().map(|plan| {
            json!({ "name": plan.name, "method": plan.method, "path": plan.path, "description": plan.description })
        });
        let secrets = secrets.iter().map(
            |scheme| json!({ "name": scheme.name, "needs": scheme.kind.description(), "variables": scheme.variables }),
        );
        let warnings: Vec<String> = imported.warnings.iter().map(ToString::to_string).collect();
        let summary = json!({
            "title": imported.title, "version": imported.version, "tools": tools.collect::<Vec<Value>>(),
            "filtered": imported.filtered, "skipped": imported.skipped(), "warnings": warnings,
            "secrets": secrets.collect::<Vec<Value>>(), "written": written.map(|written| written.file.display().to_string()),
            "uncomment": commented.iter().map(|(line, text)| json!({"line": line, "text": text})).collect::<Vec<Value>>(),
        });
        return session.printer.print_json(&summary.to_string());
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
    // The table strips control characters from the document's texts.
    session.printer.print(&table.render(session.printer.width, session.printer.ascii));
    for warning in &imported.warnings {
        session.printer.note(&strip_hidden(&warning.to_string()));
    }
    for scheme in secrets {
        let variables = scheme.variables.join(" and ");
        let variables = if variables.is_empty() { String::new() } else { format!("; set {variables}") };
        session.printer.note(&strip_hidden(&format!(
            "`{}` needs {}{variables}",
            scheme.name,
            scheme.kind.description()
        )));
    }
    for (line, text) in commented {
        session.printer.note(&strip_hidden(&format!(
            "without it requests are refused by the service: uncomment line {line}, {}",
            text.trim_start_matches("# ")
        )));
    }
    for (host, range) in refused_hosts(imported, &args.allow_host) {
        session.printer.note(&strip_hidden(&format!(
            "requests to `{host}` are refused, because it is {range}: {}",
            match written {
                Some(_) => format!("add allow_hosts = [\"{host}\"] to the section"),
                None => format!("add --allow-host {host}"),
            }
        )));
    }
    let (count, left_out) = (imported.plans.len(), imported.filtered + imported.skipped());
    let counted = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let summary =
        format!("{} of \"{}\", {} left out", counted(count, "tool"), imported.title, counted(left_out, "operation"));
    session.printer.note(&strip_hidden(&match written {
        Some(written) => {
            format!("{summary}; written to {}. Next: start or reload the server", written.file.display())
        }
        None => format!("{summary}; nothing was written"),
    }));
}

/// The hosts of the service that the address guard refuses, with their address ranges.
fn refused_hosts(imported: &ImportedDocument, allow_hosts: &[String]) -> BTreeSet<(String, &'static str)> {
    imported.plans.iter().filter_map(|plan| plan.refused_host(allow_hosts)).collect()
}
