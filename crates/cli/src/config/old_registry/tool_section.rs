//! Turns the file of a tool into a section `[tools.NAME]`.
//!
//! In: the file, and what the registry says about it. Out: the section, with its values at the places of the file; validation and
//! meaning are those of every section. `rest_section`, `mcp_section`, `state_section` and `metadata` read their own keys.

use std::collections::BTreeMap;

use toolhub::ToolName;

use super::{
    super::tree::{Node, Path, Value},
    findings::Findings,
    keys::{Keys, table_node, text, text_node, with_value},
    kinds::{self, OldKind},
    mcp_section, metadata, misplaced, rest_section,
    secrets::{self, Secrets},
    settings::Settings,
    source_tree::ToolFile,
    state_section,
    units::{NumberUnit, duration},
};

/// The section of a tool.
pub(super) struct ToolSection {
    pub(super) name: String,
    /// The file it comes from, and its name without the extension.
    pub(super) file: String,
    pub(super) stem: String,
    pub(super) node: Node,
    /// What was adjusted, line by line.
    pub(super) notes: Vec<String>,
    /// The risk level that suggests a rule which asks.
    pub(super) risk: Option<String>,
}

/// What the readers of the parts of a tool share.
pub(super) struct ToolReader<'a, 's> {
    pub(super) name: String,
    pub(super) kind: OldKind,
    /// The keys of the file that were not read yet.
    pub(super) keys: Keys,
    pub(super) settings: Settings,
    /// The keys of the section.
    pub(super) section: BTreeMap<String, Node>,
    pub(super) findings: &'a mut Findings,
    pub(super) secrets: &'a mut Secrets<'s>,
    /// The file as a whole.
    pub(super) place: Node,
}

/// Reads a file. `None` if it cannot be read as a tool, which is reported.
pub(super) fn read(file: ToolFile, findings: &mut Findings, secrets: &mut Secrets<'_>) -> Option<ToolSection> {
    let before = findings.notes.len();
    findings.begin(Path::of(["tools", &file.stem]));
    let place = file.node.clone();
    let Value::Table(mut root) = file.node.value else { return None };
    unwrap_tool(&mut root, findings);
    misplaced::hoist(&mut root, findings);
    let mut keys = Keys(root);
    let name = read_name(&mut keys, &file.stem, &place, findings);
    findings.begin(Path::of(["tools", &name]));
    let kind = read_kind(&mut keys, file.kind, &place, findings)?;
    let settings = Settings::read(&mut keys, findings);
    let mut reader = ToolReader {
        name: name.clone(),
        kind,
        keys,
        settings,
        section: BTreeMap::new(),
        findings,
        secrets,
        place: with_value(Value::Bool(true), &place),
    };
    reader.read_common(file.disabled_by.as_deref());
    let risk = metadata::read(&mut reader);
    reader.read_executor();
    state_section::read(&mut reader);
    let ToolReader { keys, settings, section, .. } = reader;
    settings.finish(findings);
    keys.finish("", findings);
    let node = with_value(Value::Table(section), &place);
    let notes = findings.lines_since(before);
    Some(ToolSection { name, file: file.name, stem: file.stem, node, notes, risk })
}

/// Some files have a table `[tool]` with an `id` and a `name` for people.
fn unwrap_tool(root: &mut BTreeMap<String, Node>, findings: &mut Findings) {
    let Some(Node { value: Value::Table(inner), key_origin, .. }) = root.remove("tool") else { return };
    findings.note(&key_origin, "the keys of [tool] are those of the tool");
    for (key, node) in inner {
        root.entry(key).or_insert(node);
    }
}

fn read_name(keys: &mut Keys, stem: &str, place: &Node, findings: &mut Findings) -> String {
    let (id, name) = (keys.take("id"), keys.take("name"));
    let is_name = |node: &&Node| text(node).is_some_and(|name| ToolName::new(name).is_ok());
    let chosen = [&name, &id].into_iter().flatten().find(is_name).or(name.as_ref()).or(id.as_ref());
    let original = match chosen.and_then(|node| Some((node, text(node)?))) {
        Some((node, original)) => {
            let legal = ToolName::imported("", original);
            if legal.as_str() != original {
                let text = format!("the name is not one that models accept; the tool is named `{}`", legal.as_str());
                findings.note(&node.origin, text);
            }
            legal
        }
        None => {
            let legal = ToolName::imported("", stem);
            findings.note(&place.origin, format!("the file has no name; the tool is named `{}`", legal.as_str()));
            legal
        }
    };
    original.as_str().to_owned()
}

fn read_kind(keys: &mut Keys, listed: Option<OldKind>, place: &Node, findings: &mut Findings) -> Option<OldKind> {
    match (keys.take("tool_type").or_else(|| keys.take("type")), listed) {
        (Some(node), listed) => {
            let kind = kinds::read(&node, findings)?;
            if listed.is_some_and(|listed| listed != kind) {
                let text = format!("the registry lists the tool under another type; `{}` is used", kind.name());
                findings.note(&node.key_origin, text);
            }
            Some(kind)
        }
        (None, Some(kind)) => Some(kind),
        (None, None) => {
            let help = "write tool_type = \"stateless\", \"stateful\", \"rest\" or \"mcp\"";
            findings.report(&place.origin, "the file has no `tool_type`, and no type of the registry lists it", help);
            None
        }
    }
}

impl ToolReader<'_, '_> {
    pub(super) fn set(&mut self, key: &str, node: Node) {
        self.section.insert(key.to_owned(), node);
    }

    /// The keys of every kind.
    fn read_common(&mut self, disabled_by: Option<&str>) {
        let description = self.keys.take("description");
        if let Some(description) = description.and_then(|node| secrets::without_secrets(&node, "", self.findings)) {
            self.set("description", description);
        }
        if let Some(enabled) = self.keys.take("enabled").filter(|node| !matches!(node.value, Value::Bool(true))) {
            self.set("enabled", enabled);
        }
        if let Some(place) = disabled_by {
            let disabled = with_value(Value::Bool(false), &self.place);
            self.findings.note(&disabled.origin, format!("the tool is disabled, because its type is ({place})"));
            self.set("enabled", disabled);
        }
        self.read_limits();
        self.read_parameters();
    }

    /// Timeout, retries and rates.
    fn read_limits(&mut self) {
        let timeout = self.keys.take("timeout");
        let timeout = match (timeout, self.settings.timeout.take()) {
            (own, Some((path, node, unit))) => {
                if let Some(own) = own {
                    let text = format!("`timeout` was left out, because `{path}` overrides it");
                    self.findings.note(&own.key_origin, text);
                }
                duration(&path, &node, unit, self.findings)
            }
            (Some(node), None) => duration("timeout", &node, NumberUnit::Seconds, self.findings),
            (None, None) => None,
        };
        if let Some(timeout) = timeout {
            self.set("timeout", timeout);
        }
        self.read_retry();
        self.read_rate();
    }

    fn read_retry(&mut self) {
        let (count, delay) = (self.keys.take("retry_count"), self.keys.take("retry_delay"));
        let count = self.settings.retries.take().or_else(|| count.map(|node| ("retry_count".into(), node)));
        let own_delay = delay.map(|node| ("retry_delay".to_owned(), node, NumberUnit::Seconds));
        let delay = self.settings.retry_delay.take().or(own_delay);
        let mut retry = Vec::new();
        let mut place = None;
        if let Some((path, node)) = count {
            match &node.value {
                Value::Integer(retries) if *retries >= 0 => {
                    let attempts = retries.saturating_add(1);
                    let text = format!(
                        "`{path} = {retries}` is read as retries after the first attempt: attempts = {attempts}"
                    );
                    self.findings.note(&node.key_origin, text);
                    retry.push(("attempts", with_value(Value::Integer(attempts), &node)));
                }
                _ => {
                    let message = format!("`{path}` must be a number of retries");
                    self.findings.report(&node.origin, message, "write a whole number, such as 3");
                }
            }
            place = Some(node);
        }
        if let Some((path, node, unit)) = delay {
            if let Some(delay) = duration(&path, &node, unit, self.findings) {
                retry.push(("initial", delay));
            }
            place.get_or_insert(node);
        }
        if let (Some(place), false) = (place, retry.is_empty()) {
            let table = table_node(retry, &place);
            self.set("retry", table);
        }
    }

    /// `[rate_limit] requests_per_minute`.
    fn read_rate(&mut self) {
        let Some(mut rate) = self.keys.take_table("rate_limit", self.findings) else { return };
        let periods = [("requests_per_second", "1s"), ("requests_per_minute", "1m"), ("requests_per_hour", "1h")];
        let mut limits = Vec::new();
        for (key, period) in periods {
            let Some(node) = rate.take(key) else { continue };
            self.findings.note(&node.key_origin, format!("`{key}` became a rate limit with per = \"{period}\""));
            limits.push(table_node([("per", text_node(period, &node)), ("requests", node.clone())], &node));
        }
        rate.finish("rate_limit", self.findings);
        if let Some(first) = limits.first().cloned() {
            let list = if limits.len() == 1 { first } else { with_value(Value::List(limits), &first) };
            self.set("rate_limit", list);
        }
    }

    /// The schema of the arguments.
    fn read_parameters(&mut self) {
        let schema = self.keys.take("parameters_schema");
        let older = self.keys.take("parameters");
        let is_schema = |node: &Node| match &node.value {
            Value::Table(table) => table.contains_key("properties") || table.contains_key("type"),
            _ => false,
        };
        let schema = match (schema, older) {
            (Some(schema), None) => Some(schema),
            (None, Some(older)) if is_schema(&older) => Some(older),
            (schema, Some(older)) => {
                let text = "`parameters` is no schema of arguments and was left out";
                self.findings.note(&older.key_origin, text);
                schema
            }
            (None, None) => None,
        };
        let Some(schema) = schema.and_then(|schema| secrets::without_secrets(&schema, "", self.findings)) else {
            return;
        };
        let place = with_value(Value::Bool(true), &schema);
        let schema = match schema.value {
            Value::Table(mut table) => {
                table.entry("type".into()).or_insert_with(|| {
                    self.findings.note(&place.key_origin, "the schema has no type; it is that of an object");
                    text_node("object", &place)
                });
                with_value(Value::Table(table), &place)
            }
            other => with_value(other, &place),
        };
        self.set("parameters", schema);
    }

    /// What executes the tool; a function that is not here makes it unavailable.
    fn read_executor(&mut self) {
        let has_executor = match self.kind {
            OldKind::Rest => rest_section::read(self),
            OldKind::Mcp => mcp_section::read(self),
            OldKind::Stateless | OldKind::Stateful => false,
        };
        let function = self.keys.take("function_path");
        if has_executor {
            if let Some(function) = function {
                let text = format!("`function_path` was left out, because its kind is `{}`", self.kind.name());
                self.findings.note(&function.key_origin, text);
            }
            return;
        }
        let function = function.or_else(|| self.settings.executor.take());
        let function = match function.filter(|node| text(node).is_some_and(|text| !text.is_empty())) {
            Some(function) => {
                let public = secrets::without_secrets(&function, "", self.findings);
                let shown = public.as_ref().and_then(text).map_or("its function".into(), |path| format!("`{path}`"));
                let message = format!(
                    "{shown} cannot be loaded here: the tool is unavailable until [tools.{}] has a `command`, or a function of that \
                     name is registered",
                    self.name
                );
                self.findings.note(&function.key_origin, message);
                public.unwrap_or_else(|| text_node(self.name.clone(), &function))
            }
            None => {
                let missing = match self.kind {
                    OldKind::Rest => "`api_url` and no [config] with `baseUrl`",
                    OldKind::Mcp => "`mcp_server_url` and no server",
                    OldKind::Stateless | OldKind::Stateful => "`function_path`",
                };
                let message = format!("the file has no {missing}: the tool is unavailable until something executes it");
                self.findings.note(&self.place.origin, message);
                text_node(self.name.clone(), &self.place)
            }
        };
        if matches!(self.kind, OldKind::Stateless | OldKind::Stateful) {
            let kind = text_node(self.kind.name(), &function);
            self.set("kind", kind);
        }
        self.set("function_path", function);
    }
}
