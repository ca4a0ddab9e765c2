use serde_json::json;

use super::*;

fn run(steps: u32) -> Run {
    let now = Timestamp::from_millis(1_000);
    Run::new(RunId::mint(now), now, Bounds { steps, tokens: Some(100), until: Some(Timestamp::from_millis(9_000)) })
}

fn mint() -> CallId {
    CallId::mint(Timestamp::from_millis(2_000))
}

fn says(text: &str) -> Reply {
    Reply { text: text.into(), usage: Usage { input_tokens: 10, output_tokens: 1 }, ..Reply::default() }
}

fn asks(tools: &[&str]) -> Reply {
    let call = |(at, tool): (usize, &&str)| AskedCall {
        id: format!("m{at}").into(),
        tool: (*tool).into(),
        arguments: json!({}),
        malformed: None,
        extra: None,
    };
    Reply {
        calls: tools.iter().enumerate().map(call).collect(),
        stop: Stop::Calls,
        reasoning: "hm".into(),
        ..says("let me see")
    }
}

/// What came of the calls a run asks for now.
fn results(run: &Run) -> Vec<(CallResult, Status)> {
    let Todo::Call(calls) = run.todo() else { panic!("no calls are asked for: {:?}", run.todo()) };
    let result = |call: &Planned| CallResult {
        id: call.asked.id.clone(),
        call_id: Some(call.id),
        tool: call.asked.tool.clone(),
        text: "done".into(),
        is_error: false,
        pictures: Vec::new(),
    };
    calls.iter().map(|call| (result(call), Status::Success)).collect()
}

#[test]
fn an_answer_without_calls_ends_the_run() {
    let mut run = run(3);
    assert_eq!(run.todo(), Todo::Ask { may_call: true });
    let said = run.answered(says("four"), mint).unwrap();
    assert_eq!(said, Message::Assistant { content: "four".into(), reasoning: String::new(), calls: Vec::new() });
    assert_eq!(run.todo(), Todo::Nothing(&End::Completed { stop: Stop::End, content: "four".into() }));
    assert_eq!((run.steps(), run.usage().input_tokens), (1, 10));
}

#[test]
fn calls_and_their_results_come_into_the_conversation_together() {
    let mut run = run(3);
    assert_eq!(run.answered(asks(&["look", "send"]), mint), None);
    let [asked, told] = run.called(results(&run)).unwrap();
    let Message::Assistant { content, reasoning, calls } = asked else { panic!("{asked:?}") };
    assert_eq!(reasoning, "hm");
    let Message::Tool { results } = told else { panic!("{told:?}") };
    assert_eq!(content, "let me see");
    let ids = |ids: &mut dyn Iterator<Item = &SmolStr>| ids.cloned().collect::<Vec<_>>();
    assert_eq!(ids(&mut calls.iter().map(|call| &call.id)), ids(&mut results.iter().map(|result| &result.id)));
    assert_eq!(run.made().len(), 2);
    assert_eq!(run.todo(), Todo::Ask { may_call: true });
}

#[test]
fn the_last_step_may_not_call_and_a_model_that_does_not_listen_fails_the_run() {
    let mut run = run(2);
    run.answered(asks(&["look"]), mint);
    run.called(results(&run));
    assert_eq!(run.todo(), Todo::Ask { may_call: false });
    let said = run.answered(asks(&["look"]), mint).unwrap();
    assert_eq!(said, Message::Assistant { content: "let me see".into(), reasoning: String::new(), calls: Vec::new() });
    let Todo::Nothing(End::Failed(error)) = run.todo() else { panic!("{:?}", run.todo()) };
    assert_eq!(error.code, "max_steps");
}

#[test]
fn a_run_ends_when_its_tokens_or_its_time_are_used_up() {
    let code = |run: &Run| match run.todo() {
        Todo::Nothing(End::Failed(error)) => error.code.to_string(),
        other => panic!("{other:?}"),
    };
    let mut late = run(9);
    late.look_at_bounds(Timestamp::from_millis(8_999));
    assert_eq!(late.todo(), Todo::Ask { may_call: true });
    late.look_at_bounds(Timestamp::from_millis(9_000));
    assert_eq!(code(&late), "time_budget");

    let mut dear = run(99);
    for _ in 0..10 {
        dear.look_at_bounds(Timestamp::from_millis(2_000));
        dear.answered(asks(&["look"]), mint);
        dear.called(results(&dear));
    }
    dear.look_at_bounds(Timestamp::from_millis(2_000));
    assert_eq!(code(&dear), "token_budget");
}

#[test]
fn a_run_is_not_cancelled_between_a_call_and_its_result() {
    let mut run = run(3);
    run.answered(asks(&["send"]), mint);
    run.cancel();
    assert!(matches!(run.todo(), Todo::Call(_)), "the call may have begun; its result is owed");
    run.called(results(&run));
    run.cancel();
    assert_eq!(run.todo(), Todo::Nothing(&End::Cancelled));
    run.fail(RunError::new("max_steps", "too late"));
    assert_eq!(run.todo(), Todo::Nothing(&End::Cancelled));
}

#[test]
fn a_run_that_was_written_down_goes_on_where_it_was() {
    let mut first = run(5);
    first.answered(asks(&["look", "send"]), mint);
    let text = serde_json::to_string(&first).unwrap();
    let mut second: Run = serde_json::from_str(&text).unwrap();
    assert_eq!(first, second);
    second.called(results(&first));
    let text = serde_json::to_string(&second).unwrap();
    let third: Run = serde_json::from_str(&text).unwrap();
    assert_eq!(third.todo(), Todo::Ask { may_call: true });
}
