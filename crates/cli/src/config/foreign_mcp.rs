//! Reads the MCP servers in the config of another program.
//!
//! In: the parsed config. Out: a section of `toolhub.toml` per server, the variables that they refer to, and what was left out. For a
//! file of ours, a value that looks secret becomes a reference to a variable, and is in no text of ours.

mod foreign_servers;
mod jsonc;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use foreign_servers::FoundServer;
pub(crate) use jsonc::to_json as strip_json_comments;

use super::{
    secret_text::{SecretPart, find_in_argument, is_secret},
    toml_text::{toml_key, toml_string},
    variable_names::{ExistingVariables, VariableNames},
};

/// What becomes of a value that looks secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LiteralSecrets {
    /// A reference to a variable stands for it: the sections are written to a file.
    Refer,
    /// It is used, with a note: the sections are read once.
    Keep,
}

/// The servers of another program.
pub(crate) struct ForeignConfig {
    /// Name and lines of each server.
    pub(crate) sections: Vec<(String, String)>,
    pub(crate) variables: BTreeSet<String>,
    pub(crate) notes: Vec<String>,
}

/// Parses a config: TOML, if its file is named so, otherwise JSON, which may have comments and trailing commas.
pub(crate) fn parse(file: &str, text: &str) -> Result<Value, String> {
    match text.trim_start_matches('\u{feff}').trim() {
        "" => Err("it is empty".into()),
        _ if file.ends_with(".toml") => {
            toml::from_str(text).map_err(|error| format!("it is not TOML: {}", error.message()))
        }
        _ => serde_json::from_str(&jsonc::to_json(text)).map_err(|error| format!("it is not JSON: {error}")),
    }
}

/// The servers of a config, or why they cannot be read.
pub(crate) fn read(
    document: &Value,
    secrets: LiteralSecrets,
    existing: &ExistingVariables,
) -> Result<ForeignConfig, String> {
    let mut variables = VariableNames::new(document, existing);
    let mut config = ForeignConfig { sections: Vec::new(), variables: BTreeSet::new(), notes: Vec::new() };
    for FoundServer { name, project, keys } in foreign_servers::find(document)? {
        config.notes.extend(project.map(|project| format!("`{name}` is a server of the project {project}")));
        let (config_ref, names) = (&mut config, &mut variables);
        let mut reader =
            ServerReader { name: &name, keys: &keys, secrets, config: config_ref, names, lines: Vec::new() };
        match reader.read() {
            Ok(()) => {
                let lines = reader.lines.join("\n");
                config.sections.push((name.clone(), format!("[mcp_servers.{}]\n{lines}\n", toml_key(&name))));
            }
            Err(reason) => config.notes.push(format!("`{name}` was left out: {reason}")),
        }
    }
    Ok(config)
}

/// Keys that are taken over, or have no meaning here.
const KNOWN_KEYS: [&str; 21] = [
    "type",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "httpUrl",
    "serverUrl",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "env_vars",
    "disabled",
    "enabled",
    "includeTools",
    "enabled_tools",
    "excludeTools",
    "disabled_tools",
    "startup_timeout_sec",
    "description",
];

struct ServerReader<'a, 'v> {
    name: &'a str,
    keys: &'a Map<String, Value>,
    secrets: LiteralSecrets,
    config: &'a mut ForeignConfig,
    names: &'a mut VariableNames<'v>,
    lines: Vec<String>,
}

impl ServerReader<'_, '_> {
    fn read(&mut self) -> Result<(), String> {
        let text = |key: &str| self.keys.get(key).and_then(Value::as_str);
        let url = text("httpUrl").or(text("serverUrl")).or(text("url")).map(str::to_owned);
        if text("type") == Some("sse") {
            let address = url.map(|url| url.replacen("/sse", "/mcp", 1)).filter(|url| !is_secret("", url));
            let address = address.map(|url| format!(", such as {url}")).unwrap_or_default();
            return Err(format!(
                "it speaks HTTP+SSE, which is not supported; add its streamable HTTP address{address}"
            ));
        }
        let is_http = |url: &String| ["http://", "https://", "${"].iter().any(|start| url.starts_with(start));
        if text("command").is_none() && url.as_ref().is_some_and(|url| !is_http(url)) {
            return Err("its address does not begin with `http://` or `https://`".into());
        }
        let lists = ["args", "env_vars", "includeTools", "enabled_tools", "excludeTools", "disabled_tools"];
        if let Some(key) = lists.iter().find(|key| self.keys.get(**key).is_some_and(|value| !is_list_of_texts(value))) {
            return Err(format!("`{key}` is not a list of texts"));
        }
        let host = |url: &String| url.split("://").nth(1).and_then(|rest| rest.split('/').next()).map(str::to_owned);
        if url.as_ref().and_then(host).is_some_and(|host| host.contains('@')) {
            return Err("its address contains a user name or a password; add it with `auth`".into());
        }
        match (text("command").map(str::to_owned), url) {
            (Some(command), url) => {
                if url.is_some() {
                    self.config.notes.push(format!("`{}`: ignored its address, since it has a `command`", self.name));
                }
                self.read_program(&command);
            }
            (None, Some(url)) => self.read_address(&url),
            (None, None) => return Err("it has neither `command` nor `url`".into()),
        }
        let is_off = self.keys.get("disabled") == Some(&true.into()) || self.keys.get("enabled") == Some(&false.into());
        self.lines.extend(is_off.then(|| "enabled = false".to_owned()));
        for (key, sources) in
            [("include", ["includeTools", "enabled_tools"]), ("exclude", ["excludeTools", "disabled_tools"])]
        {
            let tools: Vec<String> =
                sources.iter().flat_map(|source| self.list(source)).map(|tool| quote(&tool)).collect();
            self.lines.extend((!tools.is_empty()).then(|| format!("{key} = [{}]", tools.join(", "))));
        }
        if let Some(seconds) =
            self.keys.get("startup_timeout_sec").and_then(Value::as_u64).filter(|seconds| *seconds > 0)
        {
            self.lines.push(format!("startup_timeout = \"{seconds}s\""));
        }
        let ignored: Vec<&str> = self.keys.keys().map(String::as_str).filter(|key| !KNOWN_KEYS.contains(key)).collect();
        if !ignored.is_empty() {
            self.config.notes.push(format!("`{}`: ignored {}", self.name, ignored.join(", ")));
        }
        Ok(())
    }

    fn read_program(&mut self, command: &str) {
        let command = self.argument("command", "", command);
        self.lines.push(format!("command = {command}"));
        let (mut args, mut flag) = (Vec::new(), String::new());
        for arg in self.list("args") {
            let is_flag = arg.starts_with('-');
            args.push(self.argument("args", if is_flag { "" } else { &flag }, &arg));
            flag = if is_flag && !arg.contains(['=', ':']) { arg } else { String::new() };
        }
        self.lines.extend((!args.is_empty()).then(|| format!("args = [{}]", args.join(", "))));
        let env: Vec<String> = self
            .table("env")
            .iter()
            .map(|(name, value)| format!("{} = {}", toml_key(name), self.setting(name, value, name)))
            .collect();
        self.lines.extend((!env.is_empty()).then(|| format!("env = {{ {} }}", env.join(", "))));
        let passed: Vec<String> = self.list("env_vars").iter().map(|name| quote(name)).collect();
        self.lines.extend((!passed.is_empty()).then(|| format!("pass_env = [{}]", passed.join(", "))));
        if let Some(cwd) = self.keys.get("cwd").and_then(Value::as_str) {
            let cwd = self.value(cwd);
            self.lines.push(format!("cwd = {cwd}"));
        }
    }

    fn read_address(&mut self, url: &str) {
        let path = url.find("://").and_then(|scheme| url[scheme + 3..].find('/').map(|path| scheme + 3 + path));
        let (start, name) = match url.split_once('?') {
            Some((address, _)) if !is_secret("", address) => (address.len(), "secret_query"),
            _ => (path.unwrap_or(url.len()), "secret_path"),
        };
        let url = match is_secret("", url) && self.refers("url") {
            true => {
                let (public, secret) = url.split_at(url.len().min(start + 1));
                let variable = self.secret_variable(&self.variable_of(name), secret);
                self.value(&format!("{public}${{{variable}}}"))
            }
            false => self.value(url),
        };
        self.lines.push(format!("url = {url}"));
        let mut headers = Vec::new();
        let all = [self.table("headers"), self.table("http_headers")].concat();
        for (name, value) in all {
            match value.strip_prefix("Bearer ").or(value.strip_prefix("bearer ")) {
                Some(token) if name.eq_ignore_ascii_case("authorization") => {
                    let token = self.setting("token", token, &format!("{}_token", self.name));
                    self.lines.push(format!("auth = {{ type = \"bearer\", token = {token} }}"));
                }
                _ => {
                    let variable = format!("{}_{name}", self.name);
                    headers.push(format!("{} = {}", toml_key(&name), self.setting(&name, &value, &variable)));
                }
            }
        }
        for (name, variable) in self.table("env_http_headers") {
            headers.push(format!("{} = {}", toml_key(&name), self.reference(&variable)));
        }
        self.lines.extend((!headers.is_empty()).then(|| format!("headers = {{ {} }}", headers.join(", "))));
        if let Some(variable) = self.keys.get("bearer_token_env_var").and_then(Value::as_str) {
            let token = self.reference(variable);
            self.lines.push(format!("auth = {{ type = \"bearer\", token = {token} }}"));
        }
    }

    /// An argument, with a reference for its secret part.
    fn argument(&mut self, key: &str, flag: &str, arg: &str) -> String {
        match find_in_argument(flag, arg) {
            Some(SecretPart { start, name }) if self.refers(key) => {
                let name = if name.is_empty() { "secret" } else { name };
                let variable = self.secret_variable(&self.variable_of(name), &arg[start.len()..]);
                if start.is_empty() && flag.is_empty() {
                    self.config.notes.push(format!("`{}`: set {variable} to the whole argument", self.name));
                }
                toml_string(&format!("{}${{{variable}}}", start.replace("${", "$${")))
            }
            _ => self.value(arg),
        }
    }

    /// The strings of a list.
    fn list(&self, key: &str) -> Vec<String> {
        let items = self.keys.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(with_braces).collect()
    }

    /// The names and texts of a table.
    fn table(&self, key: &str) -> Vec<(String, String)> {
        let members = self.keys.get(key).and_then(Value::as_object).into_iter().flatten();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), with_braces);
        members.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), text(value))).collect()
    }

    /// The value of a variable or header, or a reference if it looks secret.
    fn setting(&mut self, name: &str, value: &str, variable: &str) -> String {
        match is_secret(name, value) && self.refers(name) {
            true => {
                let variable = self.secret_variable(&variable_name(variable), value);
                self.reference(&variable)
            }
            false => self.value(value),
        }
    }

    /// Whether a value that looks secret becomes a reference. Otherwise a note names its key.
    fn refers(&mut self, key: &str) -> bool {
        if self.secrets == LiteralSecrets::Keep {
            let note = format!(
                "`{}`: `{key}` looks like a secret; write `${{NAME}}` instead, and set that variable",
                self.name
            );
            self.config.notes.push(note);
        }
        self.secrets == LiteralSecrets::Refer
    }

    fn reference(&mut self, variable: &str) -> String {
        self.config.variables.insert(variable.to_owned());
        format!("{{ env = {} }}", toml_string(variable))
    }

    /// The variable that stands for a secret. It begins with the name of the server if the preferred one has another value.
    fn secret_variable(&mut self, preferred: &str, secret: &str) -> String {
        let of_server = variable_name(&format!("{}_", self.name));
        let own =
            if preferred.starts_with(&of_server) { preferred.to_owned() } else { format!("{of_server}{preferred}") };
        let variable = self.names.choose(preferred, &own, secret);
        if variable != preferred && own != preferred {
            let note = format!("`{}`: {preferred} is used elsewhere, so it is {variable} here", self.name);
            self.config.notes.push(note);
        }
        self.config.variables.insert(variable.clone());
        variable
    }

    /// A variable for an input of this server.
    fn variable(&mut self, name: &str) -> String {
        let variable = self.variable_of(name);
        self.config.variables.insert(variable.clone());
        variable
    }

    fn variable_of(&self, name: &str) -> String {
        variable_name(&format!("{}_{}", self.name, name.trim_start_matches('-')))
    }

    /// A text as a TOML string. References of other programs become ours: `${env:NAME}`, `${input:name}`.
    fn value(&mut self, text: &str) -> String {
        let (mut value, mut rest) = (String::new(), text);
        while let Some((before, (inside, after))) =
            rest.split_once("${").and_then(|(before, after)| Some((before, after.split_once('}')?)))
        {
            value += before;
            let name = inside.strip_prefix("env:").unwrap_or(inside);
            if inside == "workspaceFolder" {
                value += ".";
            } else if let Some(input) = inside.strip_prefix("input:") {
                value += &format!("${{{}}}", self.variable(input));
            } else {
                let (variable, default) = name.split_once(":-").unwrap_or((name, ""));
                let has_secret = is_secret(variable, default) && self.refers(variable);
                let name = if has_secret { variable } else { name };
                self.config.variables.extend((variable == name).then(|| name.to_owned()));
                value += &format!("${{{name}}}");
            }
            rest = after;
        }
        toml_string(&(value + &rest.replace("${", "$${")))
    }
}

fn is_list_of_texts(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}

/// A text that is the reference `$NAME`, as Gemini CLI has it, as `${NAME}`.
fn with_braces(text: &str) -> String {
    let is_name = |name: &&str| {
        let mut chars = name.chars();
        chars.next().is_some_and(|c| c.is_ascii_uppercase() || c == '_')
            && chars.all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    };
    match text.strip_prefix('$').filter(is_name) {
        Some(name) => format!("${{{name}}}"),
        None => text.to_owned(),
    }
}

fn quote(text: &str) -> String {
    toml_string(&text.replace("${", "$${"))
}

/// The name of an environment variable.
fn variable_name(text: &str) -> String {
    let name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}
