//! Transitions of a run: replies, call results, limits, cancellation, and continuation after serialization.

use serde_json::json;

use super::*;

fn run(steps: u32) -> Run {
    let now = Timestamp::from_millis(1_000);
    Run::new(
        RunId::mint(now),
        now,
        RunBudget { steps, tokens: Some(100), deadline: Some(Timestamp::from_millis(9_000)) },
    )
}

fn mint() -> CallId {
    CallId::mint(Timestamp::from_millis(2_000))
}

fn text_reply(text: &str) -> Reply {
    Reply { text: text.into(), usage: Usage { input_tokens: 10, output_tokens: 1 }, ..Reply::default() }
}

fn call_reply(tools: &[&str]) -> Reply {
    let call = |(index, tool): (usize, &&str)| ToolCall {
        id: format!("m{index}").into(),
        tool: (*tool).into(),
        arguments: json!({}),
        malformed: None,
        extra: None,
    };
    Reply {
        calls: tools.iter().enumerate().map(call).collect(),
        stop: StopReason::Calls,
        reasoning: "hm".into(),
        ..text_reply("let me see")
    }
}

/// Results for the calls that a run wants to execute now.
fn results(run: &Run) -> Vec<(CallResult, Status)> {
    let NextAction::ExecuteCalls(calls) = run.next_action() else {
        panic!("the run has no calls to execute: {:?}", run.next_action())
    };
    let result = |call: &PlannedCall| CallResult {
        id: call.tool_call.id.clone(),
        call_id: Some(call.id),
        tool: call.tool_call.tool.clone(),
        text: "done".into(),
        is_error: false,
        images: Vec::new(),
    };
    calls.iter().map(|call| (result(call), Status::Success)).collect()
}

#[test]
fn an_answer_without_calls_ends_the_run() {
    let mut run = run(3);
    assert_eq!(run.next_action(), NextAction::AskModel { may_call: true });
    let message = run.apply_reply(text_reply("four"), mint).unwrap();
    assert_eq!(message, Message::Assistant { content: "four".into(), reasoning: String::new(), calls: Vec::new() });
    assert_eq!(
        run.next_action(),
        NextAction::Finished(&RunEnd::Completed { stop: StopReason::End, content: "four".into() })
    );
    assert_eq!((run.steps(), run.usage().input_tokens), (1, 10));
}

#[test]
fn calls_and_their_results_come_into_the_conversation_together() {
    let mut run = run(3);
    assert_eq!(run.apply_reply(call_reply(&["look", "send"]), mint), None);
    let [request, response] = run.apply_results(results(&run)).unwrap();
    let Message::Assistant { content, reasoning, calls } = request else { panic!("{request:?}") };
    assert_eq!(reasoning, "hm");
    let Message::Tool { results } = response else { panic!("{response:?}") };
    assert_eq!(content, "let me see");
    let ids = |ids: &mut dyn Iterator<Item = &SmolStr>| ids.cloned().collect::<Vec<_>>();
    assert_eq!(ids(&mut calls.iter().map(|call| &call.id)), ids(&mut results.iter().map(|result| &result.id)));
    assert_eq!(run.completed_calls().len(), 2);
    assert_eq!(run.next_action(), NextAction::AskModel { may_call: true });
}

#[test]
fn the_last_step_may_not_call_and_a_model_that_does_not_listen_fails_the_run() {
    let mut run = run(2);
    run.apply_reply(call_reply(&["look"]), mint);
    run.apply_results(results(&run));
    assert_eq!(run.next_action(), NextAction::AskModel { may_call: false });
    let message = run.apply_reply(call_reply(&["look"]), mint).unwrap();
    assert_eq!(
        message,
        Message::Assistant { content: "let me see".into(), reasoning: String::new(), calls: Vec::new() }
    );
    let NextAction::Finished(RunEnd::Failed(error)) = run.next_action() else { panic!("{:?}", run.next_action()) };
    assert_eq!(error.code, "max_steps");
}

#[test]
fn a_run_ends_when_its_tokens_or_its_time_are_used_up() {
    let code = |run: &Run| match run.next_action() {
        NextAction::Finished(RunEnd::Failed(error)) => error.code.to_string(),
        other => panic!("{other:?}"),
    };
    let mut late = run(9);
    late.enforce_bounds(Timestamp::from_millis(8_999));
    assert_eq!(late.next_action(), NextAction::AskModel { may_call: true });
    late.enforce_bounds(Timestamp::from_millis(9_000));
    assert_eq!(code(&late), "time_budget");

    let mut expensive = run(99);
    for _ in 0..10 {
        expensive.enforce_bounds(Timestamp::from_millis(2_000));
        expensive.apply_reply(call_reply(&["look"]), mint);
        expensive.apply_results(results(&expensive));
    }
    expensive.enforce_bounds(Timestamp::from_millis(2_000));
    assert_eq!(code(&expensive), "token_budget");
}

#[test]
fn a_run_is_not_cancelled_between_a_call_and_its_result() {
    let mut run = run(3);
    run.apply_reply(call_reply(&["send"]), mint);
    run.cancel();
    assert!(
        matches!(run.next_action(), NextAction::ExecuteCalls(_)),
        "the call may have started, so its result must be applied first"
    );
    run.apply_results(results(&run));
    run.cancel();
    assert_eq!(run.next_action(), NextAction::Finished(&RunEnd::Cancelled));
    run.fail(RunError::new("max_steps", "too late"));
    assert_eq!(run.next_action(), NextAction::Finished(&RunEnd::Cancelled));
}

#[test]
fn a_run_that_was_written_down_goes_on_where_it_was() {
    let mut first = run(5);
    first.apply_reply(call_reply(&["look", "send"]), mint);
    let text = serde_json::to_string(&first).unwrap();
    let mut second: Run = serde_json::from_str(&text).unwrap();
    assert_eq!(first, second);
    second.apply_results(results(&first));
    let text = serde_json::to_string(&second).unwrap();
    let third: Run = serde_json::from_str(&text).unwrap();
    assert_eq!(third.next_action(), NextAction::AskModel { may_call: true });
}
