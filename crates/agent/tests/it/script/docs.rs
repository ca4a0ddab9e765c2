//! Holds the page about scripts to the code: its scripts can be read, and its conversations go as it says.

use toolhub_agent::Script;

use super::ScriptedConversation;

const PAGE: &str = include_str!("../../../../../docs/stub-llm.md");

/// The blocks of the page, each with its language.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let mut blocks = Vec::new();
    let mut rest = PAGE;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (language, after) = after.split_once('\n').expect("a block begins on a line of its own");
        let (block, after) = after.split_once("```\n").expect("every block ends");
        blocks.push((language, block));
        rest = after;
    }
    blocks
}

/// Plays a conversation: what the model says must be what stands there.
fn play(script: &Script, conversation: &str) {
    let mut talk = ScriptedConversation::new(script, &[]);
    let (mut said, mut results) = (String::new(), Vec::new());
    for line in conversation.lines().filter(|line| !line.trim().is_empty()) {
        let (who, text) = line.split_once(':').unwrap_or_else(|| panic!("nobody says: {line}"));
        let text = text.trim();
        if !results.is_empty() && who != "result" {
            said = talk.results(&results);
            results.clear();
        }
        match who {
            "offered" => {
                talk.conversation.tools = text.split(", ").filter(|name| !name.is_empty()).map(String::from).collect();
            }
            "system" => talk.conversation.system = text.to_owned(),
            "user" => said = talk.user(text),
            "result" => results.push(text),
            "model" | "call" => {
                said = said.strip_prefix(text).unwrap_or_else(|| panic!("instead of {line}: {said}")).to_owned();
            }
            _ => panic!("nobody says: {line}"),
        }
        assert!(matches!(who, "user" | "model" | "call") || said.is_empty(), "before {line}: {said}");
    }
    assert!(said.is_empty() && results.is_empty(), "left over: {said}");
}

#[test]
fn the_scripts_of_the_page_do_what_it_says() {
    let (mut script, mut played) = (None, 0);
    for (language, block) in blocks() {
        match language {
            "toml" => script = Some(Script::parse(block).unwrap_or_else(|error| panic!("{error}\n{block}"))),
            "text" => {
                play(script.as_ref().expect("a script stands before its conversation"), block);
                played += 1;
            }
            _ => {}
        }
    }
    assert!(played > 2, "the page has conversations, found {played}");
}
