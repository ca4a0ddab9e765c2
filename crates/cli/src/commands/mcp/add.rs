//! `mcp add`: adds an MCP server, through a running hub or to the config file.
//!
//! In: a URL or a program. Out: a request to the running hub for a URL; otherwise a section `[mcp_servers.NAME]`, made as `mcp import`
//! makes it.

use serde_json::{Map, Value, json};
use toolhub::ToolName;

use super::{RESTART_WAIT, poll_server, view};
use crate::{
    client::{Client, Request},
    commands::import::config_file,
    config::{self, ForeignConfig, LiteralSecrets, toml_string},
    exit::Exit,
    failure::Failure,
    output::strip_hidden,
    session::Session,
};

/// Add an MCP server.
#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// Name of the server; its tools are named NAME__TOOL
    name: String,
    /// An http(s) URL, or a program
    #[arg(value_name = "URL|PROGRAM")]
    target: String,
    /// Arguments of the program; write `--` before the first one that begins with a dash
    args: Vec<String>,
    /// Environment variable of the program; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Header of the requests; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    header: Vec<String>,
    /// Variable that holds the bearer token of the requests
    #[arg(long, value_name = "VARIABLE")]
    bearer_env: Option<String>,
    /// Prefix of the tools' names [default: NAME]
    #[arg(long)]
    prefix: Option<String>,
    /// Offer only tools whose name matches; repeatable
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Do not offer tools whose name matches; repeatable
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Tools that change nothing, so that calls need no approval; repeatable
    #[arg(long, value_name = "GLOB")]
    read_only: Vec<String>,
    /// Believe the server, and run calls without approval
    #[arg(long)]
    trust: bool,
    /// Allow this host although its address is private or local; repeatable
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,
    /// Only print the section of the config; add nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(session: &Session, args: &Add) -> Result<Exit, Failure> {
    args.check()?;
    // Hosts are allowed by the config only.
    let may_use_api = args.is_url() && args.allow_host.is_empty() && !args.dry_run;
    if !may_use_api {
        return write_section(session, args).await;
    }
    match session.server_client().await? {
        Some(client) => add_to_hub(session, client, args).await,
        None => write_section(session, args).await,
    }
}

impl Add {
    fn is_url(&self) -> bool {
        self.target.starts_with("http://") || self.target.starts_with("https://")
    }

    fn check(&self) -> Result<(), Failure> {
        ToolName::new(self.name.as_str()).map_err(|error| Failure::usage(error.describe("server name")))?;
        let inapplicable = match self.is_url() {
            true => [("arguments", !self.args.is_empty()), ("--env", !self.env.is_empty()), ("", false)],
            false => [
                ("--header", !self.header.is_empty()),
                ("--bearer-env", self.bearer_env.is_some()),
                ("--allow-host", !self.allow_host.is_empty()),
            ],
        };
        match inapplicable.iter().find(|(_, is_set)| *is_set) {
            Some((flag, _)) => {
                let kind = if self.is_url() { "a URL" } else { "a program" };
                Err(Failure::usage(format!("{flag} does not apply to {kind}")))
            }
            None => Ok(()),
        }
    }

    /// The server as other programs write it, for the reader of their configs.
    fn foreign_config(&self) -> Result<Value, Failure> {
        let mut server = Map::new();
        if self.is_url() {
            server.insert("url".into(), self.target.clone().into());
            server.insert("headers".into(), pairs("--header", &self.header)?.into());
            server.extend(self.bearer_env.iter().map(|name| ("bearer_token_env_var".into(), name.clone().into())));
        } else {
            server.insert("command".into(), self.target.clone().into());
            server.insert("args".into(), self.args.clone().into());
            server.insert("env".into(), pairs("--env", &self.env)?.into());
        }
        server.insert("includeTools".into(), self.include.clone().into());
        server.insert("excludeTools".into(), self.exclude.clone().into());
        Ok(json!({"mcpServers": {self.name.as_str(): server}}))
    }

    /// The server for the API.
    fn request(&self) -> Result<Value, Failure> {
        let mut server = json!({"name": self.name, "url": self.target, "trust": self.trust});
        let headers = pairs("--header", &self.header)?;
        let lists = [("include", &self.include), ("exclude", &self.exclude), ("readOnly", &self.read_only)];
        for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            server[key] = list.clone().into();
        }
        if !headers.is_empty() {
            server["headers"] = headers.into();
        }
        if let Some(prefix) = &self.prefix {
            server["prefix"] = prefix.clone().into();
        }
        if let Some(variable) = &self.bearer_env {
            let token = std::env::var(variable).map_err(|_| {
                Failure::usage(format!("the variable `{variable}` is not set"))
                    .help("the running hub is given its value")
            })?;
            server["auth"] = json!({"type": "bearer", "token": token});
        }
        Ok(server)
    }
}

/// `NAME=VALUE` pairs.
fn pairs(flag: &str, texts: &[String]) -> Result<Map<String, Value>, Failure> {
    let pair = |text: &String| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.into())),
        _ => Err(Failure::usage(format!("{flag} must be NAME=VALUE"))),
    };
    texts.iter().map(pair).collect()
}

/// Adds the server to a running hub, which remembers it.
async fn add_to_hub(session: &Session, client: &Client, args: &Add) -> Result<Exit, Failure> {
    let response = client.send_checked(Request::post(["mcp-servers"]).body(args.request()?)).await?;
    let printer = &session.printer;
    if printer.json {
        printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let has_tried = |server: &Value| server["connection"] != "connecting" || server["lastError"].is_string();
    let server = poll_server(session, &args.name, RESTART_WAIT, has_tried).await?;
    printer.print(&view::render_connection(&server, printer));
    if server["connection"] != "connected" {
        printer.note(&format!("not connected yet: toolhub mcp get {}{}", args.name, session.target_flags()));
    }
    Ok(Exit::Success)
}

/// Writes the server to the config file.
async fn write_section(session: &Session, args: &Add) -> Result<Exit, Failure> {
    let options = session.global.load_options()?;
    let foreign = config::read_foreign_mcp(
        &args.foreign_config()?,
        LiteralSecrets::Refer,
        &config_file::existing_variables(&options),
    );
    let ForeignConfig { sections, variables, notes } = foreign.map_err(Failure::usage)?;
    let Some((_, mut section)) = sections.into_iter().next() else {
        let reason = notes.first().map_or("it cannot be used", String::as_str);
        return Err(Failure::usage(strip_hidden(reason)));
    };
    let list = |items: &[String]| {
        items.iter().map(|item| toml_string(&item.replace("${", "$${"))).collect::<Vec<_>>().join(", ")
    };
    if let Some(prefix) = &args.prefix {
        section += &format!("prefix = {}\n", toml_string(prefix));
    }
    for (key, items) in [("read_only", &args.read_only), ("allow_hosts", &args.allow_host)] {
        if !items.is_empty() {
            section += &format!("{key} = [{}]\n", list(items));
        }
    }
    if args.trust {
        section += "trust = true\n";
    }
    let written = match args.dry_run {
        true => None,
        false => Some(config_file::append_mcp_servers(&options, &[&args.name], &section).await?),
    };
    let printer = &session.printer;
    let unset: Vec<&str> =
        variables.iter().map(String::as_str).filter(|name| options.environment.get(name).is_none()).collect();
    if printer.json {
        let file = written.as_ref().map(|file| file.display().to_string());
        printer.print_json(&json!({"file": file, "toml": section, "variables": unset, "notes": notes}).to_string());
        return Ok(Exit::Success);
    }
    match &written {
        Some(file) => printer.print_untrusted(&format!("added to {}: {}", file.display(), args.name)),
        None => printer.print_untrusted(section.trim_end()),
    }
    for note in &notes {
        printer.note(&strip_hidden(note));
    }
    if !unset.is_empty() {
        printer.note(&format!("set these variables before toolhub starts: {}", unset.join(", ")));
    }
    if written.is_some() {
        printer.note(&format!("start or reload the server: toolhub reload{}", session.target_flags()));
    }
    Ok(Exit::Success)
}
