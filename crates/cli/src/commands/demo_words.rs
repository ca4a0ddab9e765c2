//! The program behind the demo's tool `words`: what any program has to do to be a tool.
//!
//! In: `{"arguments": {"text": …}}` on stdin. Out: JSON on stdout.

use std::io::Read;

use serde_json::{Value, json};

use crate::{exit::Exit, failure::Failure};

pub(crate) fn run() -> Result<Exit, Failure> {
    let mut asked = String::new();
    let read = std::io::stdin().read_to_string(&mut asked);
    read.map_err(|error| Failure::unexpected(error.to_string()))?;
    let asked: Value = serde_json::from_str(&asked).map_err(|error| Failure::unexpected(error.to_string()))?;
    let text = asked["arguments"]["text"].as_str().unwrap_or_default();
    let letters = text.chars().filter(|letter| letter.is_alphanumeric()).count();
    println!("{}", json!({ "words": text.split_whitespace().count(), "letters": letters }));
    Ok(Exit::Success)
}
