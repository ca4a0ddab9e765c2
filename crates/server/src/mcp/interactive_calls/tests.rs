//! Questions of a running tool, answered over several requests.

use serde_json::json;
use toolhub_core::{
    CallContext, ErrorKind, NoArguments, Sealer, ToolError, ToolHub,
    ids::{Caller, Tenant, ThreadId},
    tool,
};

use super::*;
use crate::scope::{Principal, Scopes};

fn question(message: &str) -> InputRequest {
    InputRequest::new(InputKind::Form, json!({ "message": message }))
}

/// Asks twice, the second time for two things at once, and returns the answers or why there are none.
async fn ask(_: NoArguments, cx: CallContext) -> Result<Value, ToolError> {
    let ask = async |message: &str| {
        let answer = cx.request_input(question(message)).await;
        answer.unwrap_or_else(|error| json!(error.to_string()))
    };
    let first = ask("one").await;
    let (second, third) = futures_util::join!(ask("two"), ask("three"));
    Ok(json!([first, second, third]))
}

async fn hub() -> ToolHub {
    let forever = |_: NoArguments, cx: CallContext| async move {
        let _ = cx.request_input(question("one")).await;
        std::future::pending::<Result<(), ToolError>>().await
    };
    let plain = |_: NoArguments| async { Ok::<_, ToolError>("plain") };
    ToolHub::builder().tools([tool("ask", ask), tool("forever", forever), tool("plain", plain)]).build().await.unwrap()
}

/// The call of `ask` by this caller.
fn key(tenant: &str, caller: &str) -> ResumeKey {
    key_of((tenant, caller), None, "ask", &json!({}))
}

fn key_of((tenant, caller): (&str, &str), thread: Option<&str>, tool: &str, arguments: &Value) -> ResumeKey {
    let (tenant, caller) = (Tenant::new(tenant).unwrap(), Caller::new(caller).unwrap());
    let principal = Principal { tenant, caller, scopes: Scopes::default(), login: None };
    let thread = thread.map(|thread| ThreadId::new(thread).unwrap());
    ResumeKey::new(&principal, thread.as_ref(), tool, arguments)
}

fn start(hub: &ToolHub, tool: &str) -> InteractiveCall {
    InteractiveCall::start(hub.call(tool, json!({})), vec![InputKind::Form], hub.clock())
}

/// What the tool asks for, by key.
#[track_caller]
fn messages(step: &CallStep) -> Vec<(String, String)> {
    let CallStep::InputRequired(requests) = step else { panic!("{step:?}") };
    let message = |request: &InputRequest| request.params["message"].as_str().unwrap().to_owned();
    requests.iter().map(|(key, request)| (key.clone(), message(request))).collect()
}

#[track_caller]
fn outcome(step: CallStep) -> Outcome {
    match step {
        CallStep::Ended(outcome) => *outcome,
        step @ CallStep::InputRequired(_) => panic!("{step:?}"),
    }
}

fn answers(answers: &[(&str, &str)]) -> Map<String, Value> {
    answers.iter().map(|(key, answer)| ((*key).to_owned(), json!(answer))).collect()
}

/// Resumes a call: gives it its answers and waits for its next step.
async fn resume(
    suspended: &SuspendedCalls,
    id: &str,
    key: &ResumeKey,
    answers: Map<String, Value>,
) -> Result<(InteractiveCall, CallStep), ResumeError> {
    let mut call = suspended.take(id, key)?;
    call.answer(answers);
    let step = call.next().await;
    Ok((call, step))
}

#[tokio::test(start_paused = true)]
async fn a_call_is_resumed_with_each_answer_until_it_ends() {
    let hub = hub().await;
    let (suspended, ann) = (SuspendedCalls::new(&hub, &CancellationToken::new()), key("main", "ann"));
    let mut call = start(&hub, "ask");
    let step = call.next().await;
    assert_eq!(messages(&step), [("q1".into(), "one".into())]);
    let id = suspended.park(ann.clone(), call).ok().unwrap();
    let (call, step) = resume(&suspended, &id, &ann, answers(&[("q1", "a"), ("odd", "x")])).await.unwrap();
    assert_eq!(messages(&step), [("q2".into(), "two".into()), ("q3".into(), "three".into())], "in one round trip");
    let again = resume(&suspended, &id, &ann, answers(&[("q1", "z")])).await;
    assert_eq!(again.err(), Some(ResumeError::NotFound), "an id is used once");
    let id = suspended.park(ann.clone(), call).ok().unwrap();
    let (call, step) = resume(&suspended, &id, &ann, answers(&[("q3", "c")])).await.unwrap();
    assert_eq!(messages(&step), [("q2".into(), "two".into())], "what was not answered is asked again");
    let id = suspended.park(ann.clone(), call).ok().unwrap();
    let (_, step) = resume(&suspended, &id, &ann, answers(&[("q2", "b")])).await.unwrap();
    assert_eq!(outcome(step).output, json!(["a", "b", "c"]));
    assert_eq!(suspended.len(), 0);
    assert_eq!(outcome(start(&hub, "plain").next().await).output, json!("plain"));
}

#[tokio::test(start_paused = true)]
async fn a_suspended_call_is_resumed_by_the_same_call_of_the_same_caller_only() {
    let hub = hub().await;
    let (suspended, ann) = (SuspendedCalls::new(&hub, &CancellationToken::new()), key("main", "ann"));
    let mut call = start(&hub, "ask");
    call.next().await;
    let id = suspended.park(ann.clone(), call).ok().unwrap();
    let others = [
        key("main", "bob"),
        key("other", "ann"),
        key_of(("main", "ann"), None, "plain", &json!({})),
        key_of(("main", "ann"), None, "ask", &json!({"a": 1})),
        key_of(("main", "ann"), Some("t"), "ask", &json!({})),
    ];
    for other in others {
        let refused = resume(&suspended, &id, &other, answers(&[("q1", "x")])).await;
        assert_eq!(refused.err(), Some(ResumeError::NotFound));
    }
    let (_, step) = resume(&suspended, &id, &ann, answers(&[("q1", "a")])).await.unwrap();
    assert_eq!(messages(&step).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_answered_in_two_minutes_is_declined_and_the_call_goes_on() {
    let hub = hub().await;
    let (suspended, ann) = (SuspendedCalls::new(&hub, &CancellationToken::new()), key("main", "ann"));
    let mut call = start(&hub, "ask");
    let id = call.handle().id();
    call.next().await;
    let parked = suspended.park(ann.clone(), call).ok().unwrap();
    tokio::time::sleep(INPUT_TIMEOUT - Duration::from_secs(2)).await;
    assert_eq!(suspended.len(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(resume(&suspended, &parked, &ann, Map::new()).await.err(), Some(ResumeError::NotFound));
    let ended = hub.call_record(&Tenant::default(), id).await.unwrap().unwrap().outcome.unwrap();
    let declined = "the caller declined the input request";
    assert_eq!(ended.output, json!([declined, declined, declined]));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_while_it_is_suspended_gives_its_outcome_to_the_next_request() {
    let hub = hub().await;
    let (suspended, ann) = (SuspendedCalls::new(&hub, &CancellationToken::new()), key("main", "ann"));
    let mut call = start(&hub, "forever");
    call.next().await;
    call.handle().cancel();
    let id = suspended.park(ann.clone(), call).ok().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, step) = resume(&suspended, &id, &ann, Map::new()).await.unwrap();
    assert_eq!(outcome(step).error_kind(), Some(ErrorKind::Cancelled));
}

#[tokio::test(start_paused = true)]
async fn there_is_a_bound_and_each_tenant_has_a_share() {
    let hub = hub().await;
    let suspended = SuspendedCalls::new(&hub, &CancellationToken::new());
    let park = async |tenant: &str| {
        let mut call = start(&hub, "ask");
        call.next().await;
        suspended.park(key(tenant, "ann"), call)
    };
    for _ in 0..1_000 {
        park("a").await.ok().unwrap();
    }
    let mut refused = park("a").await.err().unwrap();
    refused.decline_all();
    assert!(matches!(refused.next().await, CallStep::InputRequired(_)), "it goes on, and may ask again");
    for _ in 0..50 {
        park("b").await.ok().unwrap();
    }
    assert!(park("b").await.is_err());
    assert_eq!(suspended.len(), 1_050);
}

#[tokio::test(start_paused = true)]
async fn ids_cannot_be_guessed_and_a_resumed_call_leaves_no_timer() {
    let hub = hub().await;
    let (suspended, ann) = (SuspendedCalls::new(&hub, &CancellationToken::new()), key("main", "ann"));
    let mut call = start(&hub, "ask");
    call.next().await;
    let tasks = tokio::runtime::Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..100 {
        let id = suspended.park(ann.clone(), call).ok().unwrap();
        assert!(Sealer::is_token(&id) && !id.contains(hub.node_id()) && seen.insert(id.clone()), "{id}");
        call = suspended.take(&id, &ann).unwrap();
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(tasks.num_alive_tasks() <= before, "{} tasks, {before} before", tasks.num_alive_tasks());
}
