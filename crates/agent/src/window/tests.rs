//! Which messages of a conversation are sent, under small token budgets.

use serde_json::json;

use super::*;
use crate::message::{CallResult, ToolCall};

fn user(text: &str) -> Message {
    Message::User { content: text.into() }
}

/// A step: a call and its result.
fn step(name: &str) -> [Message; 2] {
    let call = ToolCall { id: name.into(), tool: "look".into(), arguments: json!({}), malformed: None, extra: None };
    let (id, tool, text) = (name.into(), "look".into(), "x".repeat(300));
    let result = CallResult { id, call_id: None, tool, text, is_error: false, images: Vec::new() };
    [
        Message::Assistant { content: String::new(), reasoning: String::new(), calls: vec![call] },
        Message::Tool { results: vec![result] },
    ]
}

fn sized(messages: impl IntoIterator<Item = Message>) -> Vec<SizedMessage> {
    let mut tokens_so_far = 0;
    let measure = |message: Message| {
        tokens_so_far += message_tokens(&message);
        SizedMessage { message, tokens_so_far }
    };
    messages.into_iter().map(measure).collect()
}

fn select_fitting(messages: &[SizedMessage], budget: u64) -> Vec<Message> {
    select_messages(messages, trim_point(messages.last().map_or(0, |last| last.tokens_so_far), budget))
}

/// Every call has its result right after it, and every result its call right before it.
fn assert_calls_paired(messages: &[Message]) {
    for pair in messages.windows(2) {
        let has_calls = matches!(&pair[0], Message::Assistant { calls, .. } if !calls.is_empty());
        let has_results = matches!(pair[1], Message::Tool { .. });
        assert_eq!(has_calls, has_results, "{pair:?}");
    }
    assert!(matches!(messages.first(), Some(Message::User { .. })), "{:?}", messages.first());
}

#[test]
fn what_fits_is_told_whole() {
    let messages = sized([user("one")].into_iter().chain(step("a")).chain([user("two")]));
    assert_eq!(select_fitting(&messages, 10_000).len(), 4);
}

#[test]
fn old_turns_are_left_out_first_and_calls_stay_with_their_results() {
    let turn = |index: usize| [user(&format!("question {index}"))].into_iter().chain(step("a")).chain(step("b"));
    let messages = sized((0..20).flat_map(turn));
    for budget in [600, 900, 1_500, 3_000] {
        let selected = select_fitting(&messages, budget);
        assert_calls_paired(&selected);
        assert_eq!(
            selected.iter().rfind(|message| matches!(message, Message::User { .. })),
            Some(&user("question 19"))
        );
        let size: u64 = selected.iter().map(message_tokens).sum();
        assert!(size <= budget, "{size} of {budget}");
        assert!(selected.len() > 4, "the budget of {budget} is used: {}", selected.len());
    }
}

#[test]
fn a_turn_that_is_too_long_keeps_its_question_and_its_last_steps() {
    let steps = (0..40).flat_map(|index| step(&index.to_string()));
    let messages = sized([user("old")].into_iter().chain([user("question")]).chain(steps));
    let selected = select_fitting(&messages, 1_000);
    assert_calls_paired(&selected);
    assert_eq!(selected[0], user("question"));
    assert!(selected.len() < 20 && selected.len() > 4, "{}", selected.len());
    let Some(Message::Tool { results }) = selected.last() else { panic!("{selected:?}") };
    assert_eq!(results[0].id, "39");
}

#[test]
fn a_last_step_that_is_too_long_by_itself_is_told() {
    let messages = sized([user("question")].into_iter().chain(step("a")).chain(step("b")));
    let selected = select_fitting(&messages, 10);
    assert_calls_paired(&selected);
    assert_eq!(selected.len(), 3);
}

#[test]
fn what_is_left_out_stays_the_same_for_many_steps() {
    let mut messages = vec![user("question")];
    let mut beginnings = std::collections::BTreeSet::new();
    for index in 0..60 {
        messages.extend(step(&index.to_string()));
        let selected = select_fitting(&sized(messages.clone()), 2_000);
        let Message::Assistant { calls, .. } = &selected[1] else { panic!("{selected:?}") };
        beginnings.insert(calls[0].id.clone());
    }
    assert!(beginnings.len() < 20, "60 steps, {} beginnings", beginnings.len());
}
