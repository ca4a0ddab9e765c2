//! Tools built from configs at run time.

mod secrets;
mod tool_creation;
mod validation;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use toolhub_connect::config::{ToolConfig, ToolConfigError, ToolFactory};
use toolhub_core::{ToolError, ToolHub, tool};

/// Parses a config from JSON.
#[track_caller]
fn parse_config(json: Value) -> ToolConfig {
    serde_json::from_value(json).unwrap()
}

/// A running hub without tools.
async fn hub() -> ToolHub {
    ToolHub::builder().build().await.unwrap()
}

/// Say something louder.
#[derive(Deserialize, JsonSchema)]
struct Words {
    text: String,
}

async fn shout(words: Words) -> Result<String, ToolError> {
    Ok(words.text.to_uppercase())
}

/// A factory with the function `shout`.
fn factory() -> ToolFactory {
    ToolFactory::new().function("shout", |name| tool(name, shout).read_only())
}

/// The problems of a config: each key, with message and help.
#[track_caller]
fn problems(factory: &ToolFactory, json: Value) -> Vec<(String, String)> {
    let error: ToolConfigError = factory.create_tool(&parse_config(json)).map(drop).unwrap_err();
    error
        .problems
        .into_iter()
        .map(|problem| (problem.key.to_string(), format!("{} ({})", problem.message, problem.help)))
        .collect()
}
