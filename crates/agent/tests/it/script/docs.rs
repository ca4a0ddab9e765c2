//! Checks the documentation of scripts: its scripts are valid, and its conversations match the code.

use toolhub_agent::Script;

use super::ScriptedConversation;

const PAGE: &str = include_str!("../../../../../docs/stub-llm.md");

/// The code blocks of the page, each with its language.
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

/// Replays a conversation and checks the model's replies.
fn play(script: &Script, conversation: &str) {
    let mut chat = ScriptedConversation::new(script, &[]);
    let (mut reply, mut results) = (String::new(), Vec::new());
    for line in conversation.lines().filter(|line| !line.trim().is_empty()) {
        let (speaker, text) = line.split_once(':').unwrap_or_else(|| panic!("no speaker: {line}"));
        let text = text.trim();
        if !results.is_empty() && speaker != "result" {
            reply = chat.results(&results);
            results.clear();
        }
        match speaker {
            "offered" => {
                chat.conversation.tools = text.split(", ").filter(|name| !name.is_empty()).map(String::from).collect();
            }
            "system" => chat.conversation.system = text.to_owned(),
            "user" => reply = chat.user(text),
            "result" => results.push(text),
            "model" | "call" => {
                reply = reply.strip_prefix(text).unwrap_or_else(|| panic!("instead of {line}: {reply}")).to_owned();
            }
            _ => panic!("unknown speaker: {line}"),
        }
        assert!(matches!(speaker, "user" | "model" | "call") || reply.is_empty(), "before {line}: {reply}");
    }
    assert!(reply.is_empty() && results.is_empty(), "left over: {reply}");
}

#[test]
fn the_scripts_of_the_page_do_what_it_says() {
    let (mut script, mut played) = (None, 0);
    for (language, block) in blocks() {
        match language {
            "toml" => script = Some(Script::parse(block).unwrap_or_else(|error| panic!("{error}\n{block}"))),
            "text" => {
                play(script.as_ref().expect("a script comes before its conversation"), block);
                played += 1;
            }
            _ => {}
        }
    }
    assert!(played > 2, "the page has conversations, found {played}");
}
