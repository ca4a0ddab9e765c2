//! Walks the operations of a document and builds a plan for each.
//!
//! In: a document and import options. Out: the imported document. A problem with one operation becomes a warning that names it, and the
//! import continues with the next one.

use std::collections::BTreeSet;

use serde_json::Value;
use toolhub_core::{Annotations, Glob};
use url::Url;

use super::{
    ImportError, ImportedDocument, Options, Plan, Warning, arguments,
    document::{Document, is_true, member_text, to_text},
    naming::{self, ToolNames},
    schema::Patterns,
    security::Security,
    server,
};
use crate::truncate::truncate;

/// The longest tool description that every provider accepts.
const MAX_DESCRIPTION_LEN: usize = 1_000;
/// More parameters would exceed the schema limits of a tool.
const MAX_PARAMETERS: usize = 1_000;
/// The maximum length of a warning; names in a document may have any length.
const MAX_WARNING_LEN: usize = 400;
/// How many tags a warning lists.
const MAX_LISTED_TAGS: usize = 12;
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
    /// The base URL that overrides the servers of the document.
    base_url: Option<String>,
    document_url: Option<Url>,
    source: String,
    security: Security<'d>,
    patterns: Patterns,
    names: ToolNames,
    /// The tags of all operations.
    found_tags: BTreeSet<String>,
    plans: Vec<Plan>,
    warnings: Vec<Warning>,
    filtered: usize,
    /// Why an operation has no server URL, if one was skipped for that.
    missing_server: Option<String>,
}

/// The names of all operations.
fn all_names(document: Document<'_>) -> Vec<String> {
    let paths = document.root.get("paths").and_then(Value::as_object).into_iter().flatten();
    let items = paths.filter_map(|(path, item)| Some((path, document.resolve(item).ok()?)));
    let operations = items
        .flat_map(|(path, item)| METHODS.iter().filter_map(move |method| Some((*method, path, item.get(*method)?))));
    let name = |(method, path, definition): (&str, &String, &Value)| {
        naming::operation_name(member_text(definition, "operationId"), method, path)
    };
    operations.map(name).collect()
}

/// One operation, with its path item.
struct Operation<'d> {
    method: &'static str,
    path: &'d str,
    item: &'d Value,
    definition: &'d Value,
}

impl<'d> Importer<'d> {
    fn new(document: Document<'d>, options: &'d Options) -> Result<Self, ImportError> {
        let base_url = options.base_url.as_deref().map(server::parse_base_url).transpose();
        let base_url = base_url.map_err(|reason| ImportError::Setting { setting: "base_url", reason })?;
        let document_url = options.document_url.as_deref().map(Url::parse).transpose();
        let invalid =
            |error: url::ParseError| ImportError::Setting { setting: "document_url", reason: error.to_string() };
        let document_url = document_url.map_err(invalid)?;
        let security = Security::new(document, &options.credentials, document_url.as_ref());
        security.check()?;
        if let Some(unknown) = options.methods.iter().find(|method| !METHODS.contains(&method.to_lowercase().as_str()))
        {
            let reason = format!("`{unknown}` is not a method; use {}", METHODS.join(", "));
            return Err(ImportError::Setting { setting: "methods", reason });
        }
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
            names: ToolNames::new(all_names(document)),
            found_tags: BTreeSet::new(),
            plans: Vec::new(),
            warnings: Vec::new(),
            filtered: 0,
            missing_server: None,
        })
    }

    fn import_path(&mut self, path: &'d str, item: &'d Value) {
        let item = match self.document.resolve(item) {
            Ok(item) => item,
            Err(reason) => return self.warn(path, &reason, true),
        };
        for method in METHODS {
            let Some(definition) = item.get(method) else { continue };
            let operation = Operation { method, path, item, definition };
            let label = operation.label();
            match self.plan_operation(&operation) {
                Ok(Some((plan, omissions))) => {
                    omissions.iter().for_each(|text| self.warn(&label, text, false));
                    self.plans.push(plan);
                }
                Ok(None) => self.filtered += 1,
                Err(reason) => self.warn(&label, &reason, true),
            }
        }
    }

    /// The plan of an operation, and what was omitted from it; `None` if the operation is filtered out.
    fn plan_operation(&mut self, operation: &Operation<'d>) -> Result<Option<(Plan, Vec<String>)>, String> {
        let Operation { method, path, item, definition } = *operation;
        if !definition.is_object() {
            return Err("it is not an object".into());
        }
        let original_name = naming::operation_name(member_text(definition, "operationId"), method, path);
        if !self.is_selected(&original_name, method, &tags(definition)) {
            return Ok(None);
        }
        if method == "trace" {
            return Err("TRACE requests are not supported".into());
        }
        let server = match &self.base_url {
            Some(base_url) => base_url.clone(),
            None => server::base_url(self.document, [definition, item], self.document_url.as_ref())
                .inspect_err(|reason| self.missing_server = Some(reason.clone()))?,
        };
        let (path_only, query) = split_query(path)?;
        let parameters = operation.parameters(self.document)?;
        let mut omissions = Vec::new();
        let body = definition.get("requestBody").filter(|_| {
            let without_body = matches!(method, "get" | "head");
            if without_body && definition.pointer("/requestBody/required") == Some(&Value::Bool(true)) {
                omissions.push("GET and HEAD requests have no body; its body is ignored".to_owned());
            }
            !without_body
        });
        let arguments = arguments::build(self.document, &self.patterns, path_only, &parameters, body)?;
        omissions.extend(arguments.omissions);
        let signing = self.security.signing_plan(definition)?;
        let prefix = self.options.prefix.as_deref().unwrap_or_default();
        let name = self.names.assign(prefix, &original_name, &operation.label());
        let (name, original_name) = name.ok_or("another operation has the same name, method and path")?;
        let mut plan = Plan {
            name,
            original_name,
            source: self.source.clone(),
            method: method.to_ascii_uppercase(),
            path: path.to_owned(),
            server,
            description: description(definition, operation),
            annotations: annotations(method, member_text(definition, "summary")),
            tags: tags(definition),
            schema: arguments.schema,
            parameters: arguments.parameters,
            body: arguments.body,
            security: Vec::new(),
            trusted: self.options.trust,
            query,
            auth: None,
            header_keys: Vec::new(),
        };
        omissions.extend(plan.apply_signing(signing, self.options.auth.as_ref())?);
        if let Some(problem) = plan.unsigned_request().problems().into_iter().next() {
            return Err(problem.to_string());
        }
        Ok(Some((plan, omissions)))
    }

    /// Whether the options select an operation: by its original and its sanitized name, its method and its tags.
    fn is_selected(&mut self, original: &str, method: &str, tags: &[String]) -> bool {
        let Options { methods, tags: wanted_tags, .. } = self.options;
        let has_method = methods.is_empty() || methods.iter().any(|wanted| wanted.eq_ignore_ascii_case(method));
        self.found_tags.extend(tags.iter().cloned());
        let has_tag = wanted_tags.is_empty() || tags.iter().any(|tag| wanted_tags.contains(tag));
        if !has_method || !has_tag {
            return false;
        }
        let name = self.names.name_of("", original);
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
        if let (true, Some(reason)) = (self.plans.is_empty(), self.missing_server.take()) {
            return Err(ImportError::NoServer(reason));
        }
        if self.plans.is_empty() && self.warnings.is_empty() && self.filtered == 0 {
            let text = "the document has no operations".into();
            self.warnings.push(Warning { operation: None, text, skipped: false });
        }
        for tag in self.options.tags.iter().filter(|tag| !self.found_tags.contains(*tag)) {
            let found = self.found_tags.iter().take(MAX_LISTED_TAGS).map(|tag| format!("`{tag}`")).collect::<Vec<_>>();
            let text = format!("no operation has the tag `{tag}`; there are {}", found.join(", "));
            self.warnings.push(Warning { operation: None, text: truncate(&text, MAX_WARNING_LEN), skipped: false });
        }
        for filter in [&self.include, &self.exclude] {
            for (glob, _) in filter.globs.iter().filter(|(_, used)| !used) {
                let text = format!("`{glob}` in `{}` matches no operation", filter.setting);
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

/// Globs over names, and whether each has matched one.
struct NameFilter {
    setting: &'static str,
    globs: Vec<(Glob, bool)>,
}

impl NameFilter {
    fn new(setting: &'static str, patterns: &[String]) -> Result<Self, ImportError> {
        let invalid = |reason| ImportError::Setting { setting, reason };
        let glob = |pattern: &String| Ok((Glob::new(pattern.as_str()).map_err(invalid)?, false));
        Ok(Self { setting, globs: patterns.iter().map(glob).collect::<Result<_, _>>()? })
    }

    /// Whether a glob matches one of the names. Tries all globs, to record which ones match.
    fn matches_any(&mut self, names: [&str; 2]) -> bool {
        let mut any = false;
        for (glob, used) in &mut self.globs {
            let matches = names.iter().any(|name| glob.matches(name));
            *used |= matches;
            any |= matches;
        }
        any
    }
}

impl<'d> Operation<'d> {
    fn label(&self) -> String {
        format!("{} {}", self.method.to_ascii_uppercase(), self.path)
    }

    /// The effective parameters: those of the path item, overridden by its own with the same name and location.
    fn parameters(&self, document: Document<'d>) -> Result<Vec<&'d Value>, String> {
        let mut effective: Vec<&'d Value> = Vec::new();
        for level in [self.item, self.definition] {
            let parameters = level.get("parameters").and_then(Value::as_array);
            if parameters.is_some_and(|parameters| parameters.len() > MAX_PARAMETERS) {
                return Err(format!("it has more than {MAX_PARAMETERS} parameters"));
            }
            for parameter in parameters.into_iter().flatten() {
                let parameter = document.resolve(parameter)?;
                let same = |other: &&Value| other["name"] == parameter["name"] && other["in"] == parameter["in"];
                match effective.iter().position(same) {
                    Some(index) => effective[index] = parameter,
                    None => effective.push(parameter),
                }
            }
        }
        Ok(effective)
    }
}

/// Names and values of query parameters.
type QueryPairs = Vec<(String, String)>;

/// Splits a path from the query that some documents append to it.
fn split_query(path: &str) -> Result<(&str, QueryPairs), String> {
    if !path.starts_with('/') || path.chars().any(char::is_control) {
        return Err("its path does not begin with `/`, or contains a control character".into());
    }
    if path.contains('#') {
        return Err("its path has a fragment (`#`), which is never sent, so its requests would equal those of another operation".into());
    }
    let Some((path, query)) = path.split_once('?') else {
        return Ok((path, Vec::new()));
    };
    if query.contains('{') {
        return Err("its path has placeholders in the query".into());
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

fn description(definition: &Value, operation: &Operation<'_>) -> String {
    let (summary, long) = (member_text(definition, "summary"), member_text(definition, "description"));
    let mut text = match (summary, long) {
        (Some(summary), Some(long)) if long.starts_with(summary) => long.to_owned(),
        (Some(summary), Some(long)) => format!("{summary}\n\n{long}"),
        (Some(only), None) | (None, Some(only)) => only.to_owned(),
        (None, None) => operation.label(),
    };
    if is_true(definition, "deprecated") {
        text.insert_str(0, "Deprecated. ");
    }
    truncate(&text, MAX_DESCRIPTION_LEN)
}

fn tags(definition: &Value) -> Vec<String> {
    let tags = definition.get("tags").and_then(Value::as_array);
    tags.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
