//! The program behind the demo's tool `words`: an example of the command tool protocol.
//!
//! In: `{"arguments": {"text": …}}` on stdin. Out: JSON on stdout.

use std::io::Read;

use serde_json::{Value, json};

use crate::{exit::Exit, failure::Failure};

pub(crate) fn run() -> Result<Exit, Failure> {
    let mut input = String::new();
    let read = std::io::stdin().read_to_string(&mut input);
    read.map_err(|error| Failure::unexpected(error.to_string()))?;
    let request: Value = serde_json::from_str(&input).map_err(|error| Failure::unexpected(error.to_string()))?;
    let text = request["arguments"]["text"].as_str().unwrap_or_default();
    let letters = text.chars().filter(|letter| letter.is_alphanumeric()).count();
    println!("{}", json!({ "words": text.split_whitespace().count(), "letters": letters }));
    Ok(Exit::Success)
}
