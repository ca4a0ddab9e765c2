//! Goes through the operations of a document and makes a plan of each.
//!
//! In: a document and what its owner says. Out: everything that was found. What goes wrong with one operation becomes a warning that
//! names it, and the next one is looked at.

use std::collections::BTreeSet;

use serde_json::Value;
use toolhub_core::{Annotations, Glob, ToolName};
use url::Url;

use super::{
    ImportError, ImportedDocument, Options, Plan, Warning, arguments,
    document::{Document, is_true, member_text, to_text},
    naming::{self, ToolNames},
    schema::{Patterns, truncate},
    security::Security,
    server,
};

/// The longest description of a tool that every provider takes.
const MAX_DESCRIPTION_LEN: usize = 1_000;
/// More would not fit into the schema of a tool.
const MAX_PARAMETERS: usize = 1_000;
/// The longest text of a warning; a document may have names of any length.
const MAX_WARNING_LEN: usize = 400;
const METHODS: [&str; 8] = ["get", "head", "options", "post", "put", "patch", "delete", "trace"];

pub(super) fn import(document: &Value, options: &Options) -> Result<ImportedDocument, ImportError> {
    let document = Document::new(document)?;
    let mut import = Importer::new(document, options)?;
    let paths = document.root.get("paths").and_then(Value::as_object);
    for (path, item) in paths.into_iter().flatten().filter(|(path, _)| !path.starts_with("x-")) {
        import.import_path(path, item);
    }
    import.finish()
}

struct Importer<'d> {
    document: Document<'d>,
    options: &'d Options,
    include: NameFilter,
    exclude: NameFilter,
    /// Where requests go whatever the document says.
    base_url: Option<String>,
    document_url: Option<Url>,
    source: String,
    security: Security<'d>,
    patterns: Patterns,
    names: ToolNames,
    plans: Vec<Plan>,
    warnings: Vec<Warning>,
    filtered: usize,
    /// Why operations have no server, if they have none.
    missing_server: Option<String>,
}

/// One operation, and what holds for all of its path.
struct Operation<'d> {
    method: &'static str,
    path: &'d str,
    item: &'d Value,
    definition: &'d Value,
}

impl<'d> Importer<'d> {
    fn new(document: Document<'d>, options: &'d Options) -> Result<Self, ImportError> {
        let base_url = options.base_url.as_deref().map(server::parse_base_url).transpose();
        let base_url = base_url.map_err(|why| ImportError::Setting { setting: "base_url", why })?;
        let document_url = options.document_url.as_deref().map(Url::parse).transpose();
        let wrong = |error: url::ParseError| ImportError::Setting { setting: "document_url", why: error.to_string() };
        let document_url = document_url.map_err(wrong)?;
        let security = Security::new(document, &options.credentials, document_url.as_ref());
        security.check()?;
        let title = document.root.get("info").and_then(|info| member_text(info, "title")).unwrap_or("openapi");
        let source = options.source.as_deref().or(options.prefix.as_deref()).unwrap_or(title).to_owned();
        Ok(Self {
            document,
            options,
            include: NameFilter::new("include", &options.include)?,
            exclude: NameFilter::new("exclude", &options.exclude)?,
            base_url,
            document_url,
            source,
            security,
            patterns: Patterns::new(),
            names: ToolNames::default(),
            plans: Vec::new(),
            warnings: Vec::new(),
            filtered: 0,
            missing_server: None,
        })
    }

    fn import_path(&mut self, path: &'d str, item: &'d Value) {
        let item = match self.document.resolve(item) {
            Ok(item) => item,
            Err(why) => return self.warn(path, &why, true),
        };
        for method in METHODS {
            let Some(itself) = item.get(method) else { continue };
            let operation = Operation { method, path, item, definition: itself };
            let words = operation.label();
            match self.plan_operation(&operation) {
                Ok(Some((plan, left_out))) => {
                    left_out.iter().for_each(|text| self.warn(&words, text, false));
                    self.plans.push(plan);
                }
                Ok(None) => self.filtered += 1,
                Err(why) => self.warn(&words, &why, true),
            }
        }
    }

    /// The plan of an operation and what is not in it; nothing where the owner does not want it.
    fn plan_operation(&mut self, operation: &Operation<'d>) -> Result<Option<(Plan, Vec<String>)>, String> {
        let Operation { method, path, item, definition: itself } = *operation;
        if !itself.is_object() {
            return Err("it is no object".into());
        }
        let original = naming::operation_name(member_text(itself, "operationId"), method, path);
        if !self.is_selected(&original) {
            return Ok(None);
        }
        if method == "trace" {
            return Err("requests with TRACE are not sent".into());
        }
        let server = match &self.base_url {
            Some(given) => given.clone(),
            None => server::base_url(self.document, [itself, item], self.document_url.as_ref())
                .inspect_err(|why| self.missing_server = Some(why.clone()))?,
        };
        let (path_alone, query) = split_query(path)?;
        let parameters = operation.parameters(self.document)?;
        let mut left_out = Vec::new();
        let body = itself.get("requestBody").filter(|_| {
            let none = matches!(method, "get" | "head");
            if none && itself.pointer("/requestBody/required") == Some(&Value::Bool(true)) {
                left_out.push("it has a body, which such requests do not; it is left out".to_owned());
            }
            !none
        });
        let arguments = arguments::build(self.document, &self.patterns, path_alone, &parameters, body)?;
        left_out.extend(arguments.omissions);
        let signed = self.security.signing_plan(itself)?;
        let prefix = self.options.prefix.as_deref().unwrap_or_default();
        let name = self.names.assign(prefix, &original, &operation.label());
        let (name, original) = name.ok_or("another operation has the same name, method and path")?;
        let mut plan = Plan {
            name,
            original_name: original,
            source: self.source.clone(),
            method: method.to_ascii_uppercase(),
            path: path.to_owned(),
            server,
            description: description(itself, operation),
            annotations: annotations(method, member_text(itself, "summary")),
            tags: tags(itself),
            schema: arguments.schema,
            parameters: arguments.parameters,
            body: arguments.body,
            security: Vec::new(),
            trusted: self.options.trust,
            query,
            auth: None,
            header_keys: Vec::new(),
        };
        left_out.extend(plan.apply_signing(signed, self.options.auth.as_ref())?);
        if let Some(problem) = plan.unsigned_request().problems().into_iter().next() {
            return Err(problem.to_string());
        }
        Ok(Some((plan, left_out)))
    }

    /// Whether the owner wants an operation, by what it is called with and without repairs.
    fn is_selected(&mut self, original: &str) -> bool {
        let name = ToolName::imported("", original);
        let names = [original, name.as_str()];
        let included = self.include.matches_any(names);
        let excluded = self.exclude.matches_any(names);
        (included || self.include.globs.is_empty()) && !excluded
    }

    fn warn(&mut self, operation: &str, text: &str, skipped: bool) {
        let (operation, text) = (truncate(operation, MAX_WARNING_LEN), truncate(text, MAX_WARNING_LEN));
        self.warnings.push(Warning { operation: Some(operation), text, skipped });
    }

    fn finish(mut self) -> Result<ImportedDocument, ImportError> {
        if let (true, Some(why)) = (self.plans.is_empty(), self.missing_server.take()) {
            return Err(ImportError::NoServer(why));
        }
        if self.plans.is_empty() && self.warnings.is_empty() && self.filtered == 0 {
            let text = "the document has no operations".into();
            self.warnings.push(Warning { operation: None, text, skipped: false });
        }
        for patterns in [&self.include, &self.exclude] {
            for (glob, _) in patterns.globs.iter().filter(|(_, used)| !used) {
                let text = format!("`{glob}` in `{}` fits no operation", patterns.setting);
                self.warnings.push(Warning { operation: None, text, skipped: false });
            }
        }
        let used: BTreeSet<&String> = self.plans.iter().flat_map(|plan| plan.security.iter().flatten()).collect();
        let prefix = self.options.prefix.as_deref().unwrap_or_default();
        let schemes = used.into_iter().map(|name| self.security.scheme(name, prefix)).collect();
        let info = |member: &str| self.document.root.get("info").and_then(|info| info.get(member)).map(to_text);
        Ok(ImportedDocument {
            title: info("title").unwrap_or_default(),
            version: info("version").unwrap_or_default(),
            plans: self.plans,
            schemes,
            warnings: self.warnings,
            filtered: self.filtered,
        })
    }
}

/// Patterns over names, and whether each has fitted one.
struct NameFilter {
    setting: &'static str,
    globs: Vec<(Glob, bool)>,
}

impl NameFilter {
    fn new(setting: &'static str, patterns: &[String]) -> Result<Self, ImportError> {
        let wrong = |why| ImportError::Setting { setting, why };
        let glob = |pattern: &String| Ok((Glob::new(pattern.as_str()).map_err(wrong)?, false));
        Ok(Self { setting, globs: patterns.iter().map(glob).collect::<Result<_, _>>()? })
    }

    /// Whether one of them fits one of the names. All are asked, so that each that fits is known.
    fn matches_any(&mut self, names: [&str; 2]) -> bool {
        let mut any = false;
        for (glob, used) in &mut self.globs {
            let fits = names.iter().any(|name| glob.matches(name));
            *used |= fits;
            any |= fits;
        }
        any
    }
}

impl<'d> Operation<'d> {
    fn label(&self) -> String {
        format!("{} {}", self.method.to_ascii_uppercase(), self.path)
    }

    /// Its parameters: those of the path, and its own in their place where name and place are the same.
    fn parameters(&self, document: Document<'d>) -> Result<Vec<&'d Value>, String> {
        let mut found: Vec<&'d Value> = Vec::new();
        for level in [self.item, self.definition] {
            let parameters = level.get("parameters").and_then(Value::as_array);
            if parameters.is_some_and(|parameters| parameters.len() > MAX_PARAMETERS) {
                return Err(format!("it has more than {MAX_PARAMETERS} parameters"));
            }
            for parameter in parameters.into_iter().flatten() {
                let parameter = document.resolve(parameter)?;
                let same = |other: &&Value| other["name"] == parameter["name"] && other["in"] == parameter["in"];
                match found.iter().position(same) {
                    Some(place) => found[place] = parameter,
                    None => found.push(parameter),
                }
            }
        }
        Ok(found)
    }
}

/// Names and values of a query.
type QueryPairs = Vec<(String, String)>;

/// A path without the query that some documents write behind it, and that query.
fn split_query(path: &str) -> Result<(&str, QueryPairs), String> {
    if !path.starts_with('/') || path.chars().any(char::is_control) {
        return Err("its path does not begin with `/`, or has a sign that no path has".into());
    }
    if path.contains('#') {
        return Err("its path has a `#`, which is never sent: it would be the same request as another one".into());
    }
    let Some((path, query)) = path.split_once('?') else {
        return Ok((path, Vec::new()));
    };
    if query.contains('{') {
        return Err("its path has parameters behind a `?`".into());
    }
    Ok((path, url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
}

fn annotations(method: &str, title: Option<&str>) -> Annotations {
    let read_only = matches!(method, "get" | "head" | "options");
    Annotations {
        title: title.map(|title| truncate(title, 120)),
        read_only,
        destructive: !read_only,
        idempotent: read_only || matches!(method, "put" | "delete"),
        open_world: true,
    }
}

fn description(itself: &Value, operation: &Operation<'_>) -> String {
    let (summary, long) = (member_text(itself, "summary"), member_text(itself, "description"));
    let mut words = match (summary, long) {
        (Some(summary), Some(long)) if long.starts_with(summary) => long.to_owned(),
        (Some(summary), Some(long)) => format!("{summary}\n\n{long}"),
        (Some(only), None) | (None, Some(only)) => only.to_owned(),
        (None, None) => operation.label(),
    };
    if is_true(itself, "deprecated") {
        words.insert_str(0, "Deprecated. ");
    }
    truncate(&words, MAX_DESCRIPTION_LEN)
}

fn tags(itself: &Value) -> Vec<String> {
    let tags = itself.get("tags").and_then(Value::as_array);
    tags.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
