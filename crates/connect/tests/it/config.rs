//! Tools made of what is written about them, at run time.

mod secrets;
mod tool_creation;
mod validation;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use toolhub_connect::config::{ToolConfig, ToolConfigError, ToolFactory};
use toolhub_core::{ToolError, ToolHub, tool};

/// What is written, as a program gets it.
#[track_caller]
fn parse_config(json: Value) -> ToolConfig {
    serde_json::from_value(json).unwrap()
}

/// A hub that runs already, with nothing in it.
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

/// A factory with a function.
fn factory() -> ToolFactory {
    ToolFactory::new().function("shout", |name| tool(name, shout).read_only())
}

/// What is wrong with a config: each key, and what is said of it.
#[track_caller]
fn problems(factory: &ToolFactory, json: Value) -> Vec<(String, String)> {
    let error: ToolConfigError = factory.create_tool(&parse_config(json)).map(drop).unwrap_err();
    error
        .problems
        .into_iter()
        .map(|problem| (problem.key.to_string(), format!("{} ({})", problem.message, problem.help)))
        .collect()
}
