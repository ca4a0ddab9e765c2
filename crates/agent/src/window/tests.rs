use serde_json::json;

use super::*;
use crate::message::{AskedCall, CallResult};

fn user(text: &str) -> Message {
    Message::User { content: text.into() }
}

/// A step: a call and its result.
fn step(name: &str) -> [Message; 2] {
    let call = AskedCall { id: name.into(), tool: "look".into(), arguments: json!({}), malformed: None, extra: None };
    let (id, tool, text) = (name.into(), "look".into(), "x".repeat(300));
    let result = CallResult { id, call_id: None, tool, text, is_error: false, pictures: Vec::new() };
    [
        Message::Assistant { content: String::new(), reasoning: String::new(), calls: vec![call] },
        Message::Tool { results: vec![result] },
    ]
}

fn sized(messages: impl IntoIterator<Item = Message>) -> Vec<SizedMessage> {
    let mut upto = 0;
    let measure = |message: Message| {
        upto += message_tokens(&message);
        SizedMessage { message, tokens_so_far: upto }
    };
    messages.into_iter().map(measure).collect()
}

fn select_fitting(messages: &[SizedMessage], room: u64) -> Vec<Message> {
    select_messages(messages, trim_point(messages.last().map_or(0, |last| last.tokens_so_far), room))
}

/// Every call has its result right after it, and every result its call right before it.
fn assert_calls_paired(messages: &[Message]) {
    for pair in messages.windows(2) {
        let asks = matches!(&pair[0], Message::Assistant { calls, .. } if !calls.is_empty());
        let answers = matches!(pair[1], Message::Tool { .. });
        assert_eq!(asks, answers, "{pair:?}");
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
    let turn = |at: usize| [user(&format!("question {at}"))].into_iter().chain(step("a")).chain(step("b"));
    let messages = sized((0..20).flat_map(turn));
    for room in [600, 900, 1_500, 3_000] {
        let told = select_fitting(&messages, room);
        assert_calls_paired(&told);
        assert_eq!(told.iter().rfind(|message| matches!(message, Message::User { .. })), Some(&user("question 19")));
        let size: u64 = told.iter().map(message_tokens).sum();
        assert!(size <= room, "{size} of {room}");
        assert!(told.len() > 4, "room for {room} is used: {}", told.len());
    }
}

#[test]
fn a_turn_that_is_too_long_keeps_its_question_and_its_last_steps() {
    let steps = (0..40).flat_map(|at| step(&at.to_string()));
    let messages = sized([user("old")].into_iter().chain([user("question")]).chain(steps));
    let told = select_fitting(&messages, 1_000);
    assert_calls_paired(&told);
    assert_eq!(told[0], user("question"));
    assert!(told.len() < 20 && told.len() > 4, "{}", told.len());
    let Some(Message::Tool { results }) = told.last() else { panic!("{told:?}") };
    assert_eq!(results[0].id, "39");
}

#[test]
fn a_last_step_that_is_too_long_by_itself_is_told() {
    let messages = sized([user("question")].into_iter().chain(step("a")).chain(step("b")));
    let told = select_fitting(&messages, 10);
    assert_calls_paired(&told);
    assert_eq!(told.len(), 3);
}

#[test]
fn what_is_left_out_stays_the_same_for_many_steps() {
    let mut messages = vec![user("question")];
    let mut beginnings = std::collections::BTreeSet::new();
    for at in 0..60 {
        messages.extend(step(&at.to_string()));
        let told = select_fitting(&sized(messages.clone()), 2_000);
        let Message::Assistant { calls, .. } = &told[1] else { panic!("{told:?}") };
        beginnings.insert(calls[0].id.clone());
    }
    assert!(beginnings.len() < 20, "60 steps, {} beginnings", beginnings.len());
}
