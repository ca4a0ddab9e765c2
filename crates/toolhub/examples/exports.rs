//! Prints every export format of a set of tools as one JSON document: tools with awkward schemas from the checks, and a few with
//! schemas inferred from Rust types. `./test` validates it with the providers' own packages.

use toolhub::{
    Annotations, Definition, DependsOn, Kind, Metadata, ToolName,
    export::{self, Format},
    prelude::*,
};

/// Plan a journey.
#[derive(Deserialize, JsonSchema)]
#[allow(dead_code, reason = "only the schema is used")]
struct Journey {
    /// Where it begins.
    from: Place,
    /// Stops on the way, in order.
    #[serde(default)]
    by: Vec<Place>,
    to: Place,
    budget: Option<u32>,
    mode: Mode,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code, reason = "only the schema is used")]
enum Place {
    City(String),
    Coordinates { latitude: f64, longitude: f64 },
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Train,
    Ship,
}

/// Do one of several things with a tree of files.
#[derive(Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
#[allow(dead_code, reason = "only the schema is used")]
enum Files {
    /// Make a folder with folders in it.
    Make { folder: Folder },
    /// Remove it.
    Remove { name: String, recursive: bool },
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code, reason = "only the schema is used")]
struct Folder {
    name: String,
    folders: Vec<Folder>,
}

async fn journey(_: Journey) -> Result<(), ToolError> {
    Ok(())
}

async fn files(_: Files) -> Result<(), ToolError> {
    Ok(())
}

async fn ping(_: NoArguments) -> Result<(), ToolError> {
    Ok(())
}

/// A definition for export only. A hub would refuse some of these schemas, but an imported list of tools may contain them.
fn parse_definition(tool: &Value) -> Result<Definition, Box<dyn std::error::Error>> {
    let text = |name: &str| tool[name].as_str().map(String::from);
    let name = ToolName::new(text("name").unwrap_or_default())?;
    Ok(Definition {
        id: Definition::derive_id(&Kind::Stateless, &name, None),
        kind: Kind::Stateless,
        description: text("description").unwrap_or_default(),
        parameters: tool["parameters"].clone(),
        output_schema: tool.get("output_schema").cloned(),
        annotations: Annotations { title: text("title"), ..Annotations::default() },
        metadata: Metadata::default(),
        depends_on: DependsOn::default(),
        origin: None,
        config: Value::Null,
        name,
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let hub = ToolHub::builder()
        .tool(tool("plan_journey", journey).read_only())
        .tool(tool("change_files", files))
        .tool(tool("ping", ping).description("Answer.").read_only())
        .build()
        .await?;
    let awkward: Vec<Value> = serde_json::from_str(include_str!("../../../checks/exports/awkward.json"))?;
    let mut definitions: Vec<_> = awkward.iter().map(parse_definition).collect::<Result<_, _>>()?;
    definitions.extend(hub.list(&ToolFilter::default()).iter().map(|tool| tool.definition.clone()));
    let list = |format: &Format| (format.to_string(), Value::from(export::export(*format, &definitions)));
    println!("{}", Format::ALL.iter().map(list).collect::<Value>());
    Ok(())
}
