//! `tools show`: one tool, for people or as the schema of its arguments.

use anstyle::Style;
use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock};

use super::super::list::text;
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Table, ago, lasting, status},
    session::Session,
};

/// Show one tool.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowTool {
    /// The tool
    tool: String,
    /// Print the JSON Schema of its arguments
    #[arg(long)]
    schema: bool,
}

pub(super) async fn run(session: &Session, asked: &ShowTool) -> Result<Exit, Failure> {
    let wrong = |failure| super::explained(failure, "show", &asked.tool);
    let answer = session.ask(Request::get(["tools", &asked.tool])).await.map_err(wrong)?;
    let tool = answer.value()?;
    let show = &session.show;
    if asked.schema {
        show.document(&tool["parameters"].to_string());
    } else if show.json {
        show.document(&answer.text());
    } else {
        show.data(&about(&tool, show.width, show.ascii));
        show.data(&arguments(&tool["parameters"], show.width, show.ascii));
        let pairs = example(&tool["parameters"]);
        show.say(&format!("\ntoolhub call {}{pairs}", text(&tool, "/name")));
    }
    Ok(Exit::Fine)
}

fn about(tool: &Value, width: Option<usize>, ascii: bool) -> String {
    let now = SystemClock.now();
    let mut fields = Fields::default();
    fields.styled("name", text(tool, "/name"), Style::new().bold());
    fields.add("about", text(tool, "/description"));
    fields.add("kind", text(tool, "/kind"));
    let (word, style) = status(&text(tool, "/status"), ascii);
    fields.styled("status", format!("{word} ({})", text(tool, "/reason")), style);
    let since = |name: &str| tool["standing"][name].as_str().map(|at| ago(at, now)).unwrap_or_default();
    fields.add("last success", since("lastSuccessTime"));
    fields.add("last failure", since("lastFailureTime"));
    fields.add("needs", needs(&tool["dependsOn"]));
    fields.add("hints", hints(&tool["annotations"]));
    let tags: Vec<&str> = tool["metadata"]["tags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    fields.add("tags", tags.join(", "));
    let stats = &tool["stats"];
    if stats["calls"].as_u64().is_some_and(|calls| calls > 0) {
        let p95 = lasting(stats["p95Ms"].as_f64().unwrap_or_default());
        fields.add("calls", format!("{}, {} failed or refused, 95% within {p95}", stats["calls"], stats["errors"]));
    }
    fields.lines(width, 0)
}

fn hints(annotations: &Value) -> String {
    let words = [
        ("readOnly", "read-only"),
        ("destructive", "destructive"),
        ("idempotent", "idempotent"),
        ("openWorld", "open world"),
    ];
    words.iter().filter(|(name, _)| annotations[*name] == true).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
}

/// What must have succeeded first, as far as it has names.
fn needs(depends: &Value) -> String {
    fn gather<'a>(value: &'a Value, names: &mut Vec<&'a str>) {
        match value {
            Value::String(name) => names.push(name),
            Value::Array(all) => all.iter().for_each(|one| gather(one, names)),
            Value::Object(all) => {
                all.iter().filter(|(key, _)| !key.starts_with("within")).for_each(|(_, one)| gather(one, names));
            }
            _ => {}
        }
    }
    let mut names = Vec::new();
    gather(depends, &mut names);
    names.join(", ")
}

fn arguments(schema: &Value, width: Option<usize>, ascii: bool) -> String {
    let Some(properties) = schema["properties"].as_object().filter(|all| !all.is_empty()) else { return String::new() };
    let mut table = Table::new([
        Column::new("ARGUMENT"),
        Column::new("TYPE").goes(1),
        Column::new("").goes(2),
        Column::new("ABOUT").goes(3).cut(16),
    ]);
    for (name, property) in properties {
        let required = schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
        let kind = match &property["type"] {
            Value::String(kind) => kind.clone(),
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
            _ => String::new(),
        };
        table.row([
            name.clone(),
            kind,
            if required { "required".into() } else { String::new() },
            text(property, "/description"),
        ]);
    }
    format!("\n{}", table.lines(width, ascii))
}

fn example(schema: &Value) -> String {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    required.map(|name| format!(" {name}=…")).collect()
}
