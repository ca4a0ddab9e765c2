//! `tools show`: prints one tool, or the schema of its arguments.

use anstyle::Style;
use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock};

use super::super::paging::pointer_text;
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Table, format_ago, format_millis, format_status},
    session::Session,
};

/// Show a tool.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowTool {
    /// Name of the tool
    tool: String,
    /// Print the JSON Schema of its arguments
    #[arg(long)]
    schema: bool,
}

pub(super) async fn run(session: &Session, args: &ShowTool) -> Result<Exit, Failure> {
    let add_help = |failure| super::with_help(failure, "show", &args.tool);
    let response = session.send_checked(Request::get(["tools", &args.tool])).await.map_err(add_help)?;
    let tool = response.json()?;
    let printer = &session.printer;
    if args.schema {
        printer.print_json(&tool["parameters"].to_string());
    } else if printer.json {
        printer.print_json(&response.text());
    } else {
        printer.print(&render_tool(&tool, printer.width, printer.ascii));
        printer.print(&arguments_table(&tool["parameters"], printer.width, printer.ascii));
        let pairs = example_arguments(&tool["parameters"]);
        printer.note(&format!("\ntoolhub call {}{pairs}", pointer_text(&tool, "/name")));
    }
    Ok(Exit::Success)
}

fn render_tool(tool: &Value, width: Option<usize>, ascii: bool) -> String {
    let now = SystemClock.now();
    let mut fields = Fields::default();
    fields.add_styled("name", pointer_text(tool, "/name"), Style::new().bold());
    fields.add("description", pointer_text(tool, "/description"));
    fields.add("kind", pointer_text(tool, "/kind"));
    let (status, style) = format_status(&pointer_text(tool, "/status"), ascii);
    fields.add_styled("status", format!("{status} ({})", pointer_text(tool, "/reason")), style);
    fields.add("threads", withheld_note(tool).unwrap_or_default());
    let since = |name: &str| tool["standing"][name].as_str().map(|at| format_ago(at, now)).unwrap_or_default();
    fields.add("last success", since("lastSuccessTime"));
    fields.add("last failure", since("lastFailureTime"));
    fields.add("depends on", dependency_names(&tool["dependsOn"]));
    fields.add("hints", format_annotations(&tool["annotations"]));
    let tags: Vec<&str> = tool["metadata"]["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    fields.add("tags", tags.join(", "));
    let stats = &tool["stats"];
    if stats["calls"].as_u64().is_some_and(|calls| calls > 0) {
        let p95 = format_millis(stats["p95Ms"].as_f64().unwrap_or_default());
        fields.add("calls", format!("{}, {} failed, p95 {p95}", stats["calls"], stats["errors"]));
    }
    fields.render(width, 0)
}

fn format_annotations(annotations: &Value) -> String {
    let words = [
        ("readOnly", "read-only"),
        ("destructive", "destructive"),
        ("idempotent", "idempotent"),
        ("openWorld", "open world"),
    ];
    words.iter().filter(|(name, _)| annotations[*name] == true).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
}

/// In how many threads a tool is withheld.
pub(super) fn withheld_note(tool: &Value) -> Option<String> {
    match tool["withheldThreads"].as_u64()? {
        1 => Some("withheld in 1 thread".to_owned()),
        threads => Some(format!("withheld in {threads} threads")),
    }
}

/// The names of all tools in the dependency groups.
pub(super) fn dependency_names(depends: &Value) -> String {
    fn collect_names<'a>(value: &'a Value, names: &mut Vec<&'a str>) {
        match value {
            Value::String(name) => names.push(name),
            Value::Array(all) => all.iter().for_each(|one| collect_names(one, names)),
            Value::Object(all) => {
                all.iter().filter(|(key, _)| !key.starts_with("within")).for_each(|(_, one)| collect_names(one, names));
            }
            _ => {}
        }
    }
    let mut names = Vec::new();
    collect_names(depends, &mut names);
    names.join(", ")
}

fn arguments_table(schema: &Value, width: Option<usize>, ascii: bool) -> String {
    let Some(properties) = schema["properties"].as_object().filter(|all| !all.is_empty()) else { return String::new() };
    let mut table = Table::new([
        Column::new("ARGUMENT"),
        Column::new("TYPE").drop_order(1),
        Column::new("").drop_order(2),
        Column::new("DESCRIPTION").drop_order(3).shrink_to(16),
    ]);
    for (name, property) in properties {
        let required = schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
        let kind = match &property["type"] {
            Value::String(kind) => kind.clone(),
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
            _ => String::new(),
        };
        table.add_row([
            name.clone(),
            kind,
            if required { "required".into() } else { String::new() },
            pointer_text(property, "/description"),
        ]);
    }
    format!("\n{}", table.render(width, ascii))
}

fn example_arguments(schema: &Value) -> String {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    required.map(|name| format!(" {name}=…")).collect()
}
