//! Changes of tools and settings while calls run: atomic, and limited to what they name.

use std::{sync::Arc, time::Duration};

use toolhub::{
    Answer, ApprovalError, ApprovalOutcome, BuildError, HubChange, StatusScope, ToolName,
    events::{EventKind, Subscription},
    ids::{Caller, Tenant, ThreadId},
    prelude::*,
    status::{StatusSettings, ToolStatus},
    testing::{AssertOutcome, EventRecorder, ScriptStep, scripted},
};
use toolhub_testkit::soak;

use crate::gated_tool::{GatedTool, wait_until};

const MINUTE: Duration = Duration::from_secs(60);

fn rate_limit_policy(calls: u32) -> Policy {
    Policy { rate_limits: Some(vec![RateLimit::per_minute(calls)]), ..Policy::default() }
}

fn name(text: &str) -> ToolName {
    ToolName::new(text).unwrap()
}

fn scripted_tool(name: &str) -> ToolBuilder {
    scripted(name, []).0
}

async fn hub(tools: impl IntoIterator<Item = ToolBuilder>) -> ToolHub {
    ToolHub::builder().tools(tools).build().await.unwrap()
}

#[tokio::test]
async fn a_change_is_made_as_a_whole_or_not_at_all() {
    let hub = hub([scripted_tool("stays"), scripted_tool("goes")]).await;
    let before = hub.tools();
    let wrong = [
        HubChange::replacing_policies().remove("goes").put(scripted_tool("new").after("nobody")),
        HubChange::replacing_policies().remove("goes").put(scripted_tool("new")).put(scripted_tool("new")),
        HubChange::replacing_policies().remove("goes").put(scripted_tool("not a name")),
        HubChange::replacing_policies()
            .remove("goes")
            .policy("*", Policy { max_concurrency: Some(0), ..Policy::default() }),
        HubChange::replacing_policies().remove("goes").rule(Rule::deny("")).status(StatusSettings::default()),
    ];
    for change in wrong {
        hub.apply(change).await.unwrap_err();
        assert!(Arc::ptr_eq(&before, &hub.tools()), "nothing has changed");
    }
    let change = HubChange::replacing_policies()
        .remove("goes")
        .remove("never there")
        .put(scripted_tool("new").after("stays"))
        .put(scripted_tool("stays"));
    let changed = hub.apply(change).await.unwrap();
    let names = |list: &[ToolName]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!((names(&changed.added), names(&changed.removed)), (vec!["new".into()], vec!["goes".into()]));
    assert_eq!((names(&changed.replaced), names(&changed.adjusted)), (vec!["stays".into()], vec![]));
    assert!(hub.get("goes").is_none() && hub.get("new").is_some());
}

#[tokio::test]
async fn every_problem_with_what_is_said_is_named_at_once() {
    let nonsense = || Policy { max_concurrency: Some(0), ..Policy::default() };
    let change = HubChange::replacing_policies().default_policy(nonsense()).policy("a*", nonsense());
    let BuildError::Policy(problems) = hub([]).await.apply(change).await.unwrap_err() else { panic!("another error") };
    assert_eq!(problems.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn tools_that_are_not_named_get_the_new_limits_and_rules_and_are_the_same_otherwise() {
    let builder = ToolHub::builder().tools([
        scripted_tool("mild"),
        scripted_tool("wild"),
        scripted_tool("other").cache(MINUTE).read_only(),
    ]);
    let hub = builder.policy("wild", rate_limit_policy(1)).build().await.unwrap();
    hub.call("wild", json!({})).await.assert_success();
    hub.call("wild", json!({})).await.assert_error(ErrorKind::RateLimited);
    hub.call("other", json!({})).await.assert_success();
    let other = hub.get("other").unwrap();

    let changed = hub
        .apply(HubChange::replacing_policies().policy("wild", rate_limit_policy(2)).rule(Rule::deny("mild")))
        .await
        .unwrap();
    assert_eq!(changed.adjusted, [name("mild"), name("wild")]);
    hub.call("mild", json!({})).await.assert_error(ErrorKind::Forbidden);
    assert!(Arc::ptr_eq(&other, &hub.get("other").unwrap()), "tools that are not named stay");
    assert!(hub.call("other", json!({})).await.cached, "its cached results stay");

    // Earlier policies are replaced, and policies for tools registered later apply to them.
    hub.apply(HubChange::replacing_policies().policy("late", rate_limit_policy(1))).await.unwrap();
    hub.call("mild", json!({})).await.assert_success();
    hub.register(scripted_tool("late")).unwrap();
    hub.call("late", json!({})).await.assert_success();
    hub.call("late", json!({})).await.assert_error(ErrorKind::RateLimited);
    // A change of tools alone keeps the policies.
    hub.apply(HubChange::tools_only().put(scripted_tool("late"))).await.unwrap();
    hub.call("late", json!({})).await.assert_error(ErrorKind::RateLimited);
    assert_eq!(hub.get("late").unwrap().limits().rate_limits.len(), 1);
}

struct CountingInstance(Arc<std::sync::Mutex<Vec<&'static str>>>, u32);

impl Instance for CountingInstance {
    type Arguments = NoArguments;
    type Output = u32;

    async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<u32, ToolError> {
        self.1 += 1;
        Ok(self.1)
    }

    async fn close(self) {
        self.0.lock().unwrap().push("closed");
    }
}

#[tokio::test]
async fn instances_outlive_other_limits_and_are_closed_with_their_tool() {
    let log = Arc::<std::sync::Mutex<Vec<&str>>>::default();
    let line = || {
        let log = log.clone();
        instance("line", move |_: CallContext| std::future::ready(Ok(CountingInstance(log.clone(), 0))))
            .description("A line.")
    };
    let hub = hub([line()]).await;
    let dial = || async { hub.call("line", json!({})).thread("t1").await.assert_success().clone() };
    assert_eq!(dial().await, 1);
    let changed = hub.apply(HubChange::replacing_policies().policy("*", rate_limit_policy(1_000))).await.unwrap();
    assert_eq!(changed.adjusted.len(), 1);
    assert_eq!((dial().await, log.lock().unwrap().len()), (json!(2), 0), "the same instance");
    hub.apply(HubChange::replacing_policies().put(line())).await.unwrap();
    assert_eq!((dial().await, log.lock().unwrap().len()), (json!(1), 1));
    hub.apply(HubChange::replacing_policies().remove("line")).await.unwrap();
    assert_eq!(log.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_call_that_runs_goes_on_with_the_tool_it_began_with() {
    let busy = GatedTool::new();
    let hub = hub([busy.tool("it").max_concurrency(1)]).await;
    let running = hub.call("it", json!({})).start();
    wait_until(|| busy.running() == 1).await;
    let queued = hub.call("it", json!({})).start();
    wait_until(|| hub.queued_calls() == 1).await;
    let (successor, script) = scripted("it", [ScriptStep::Return(json!("new"))]);
    hub.apply(HubChange::replacing_policies().put(successor.max_concurrency(1))).await.unwrap();
    let later = hub.call("it", json!({})).start();
    wait_until(|| hub.queued_calls() == 2).await;
    busy.release(2);
    assert_eq!((running.await.output, queued.await.output), (json!(null), json!(null)), "both use the old tool");
    assert_eq!((later.await.output, script.recorded_arguments().len()), (json!("new"), 1));
}

#[tokio::test]
async fn status_settings_hold_for_what_tools_have_done_before_too() {
    let fail = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "500"));
    let hub = hub([scripted("sick", [fail(), fail(), fail(), fail()]).0]).await;
    for _ in 0..3 {
        hub.call("sick", json!({})).await.assert_error(ErrorKind::UpstreamError);
    }
    hub.call("sick", json!({})).await.assert_error(ErrorKind::ToolFailedStatus);
    let mut events = EventRecorder::new(&hub);
    hub.apply(HubChange::replacing_policies().status(StatusSettings { enabled: false, ..StatusSettings::default() }))
        .await
        .unwrap();
    let shared = hub.tool_status("sick", StatusScope::Shared).await.unwrap();
    assert_eq!((shared.status, shared.consecutive_failures), (ToolStatus::Available, 3));
    assert!(events.names().contains(&"tool.status.changed"));
    hub.call("sick", json!({})).await.assert_error(ErrorKind::UpstreamError);
    hub.apply(HubChange::replacing_policies()).await.unwrap();
    hub.call("sick", json!({})).await.assert_success();
}

async fn next_event(events: &mut Subscription) -> EventKind {
    events.next().await.kind.clone()
}

#[tokio::test]
async fn listeners_hear_which_names_come_and_go_and_that_a_config_was_read() {
    let builder = ToolHub::builder().store(toolhub::backend::Memory::new());
    let hub =
        builder.tools([scripted_tool("stays"), scripted_tool("goes"), scripted_tool("changes")]).build().await.unwrap();
    let mut events = hub.subscribe();
    let change = HubChange::replacing_policies()
        .put(scripted_tool("comes"))
        .put(scripted_tool("changes"))
        .remove("goes")
        .policy("stays", rate_limit_policy(9));
    let changed = hub.apply(change).await.unwrap();
    hub.emit_config_reloaded(&changed, vec!["server.port".into()]);
    assert_eq!(next_event(&mut events).await, EventKind::ToolUnregistered { tool_name: name("goes") });
    assert_eq!(next_event(&mut events).await, EventKind::ToolRegistered { tool_name: name("comes") });
    let expected = EventKind::ConfigReloaded {
        added: vec![name("comes")],
        replaced: vec![name("changes")],
        removed: vec![name("goes")],
        adjusted: vec![name("stays")],
        needs_restart: vec!["server.port".into()],
    };
    assert_eq!(next_event(&mut events).await, expected);
    let stored = hub.events_since(&Tenant::default(), 0).await.unwrap().events;
    let stored: Vec<_> = stored.iter().map(|event| event.event.as_str()).collect();
    assert_eq!(stored, ["config.reloaded"]);
}

#[tokio::test]
async fn what_is_offered_follows_the_rules_of_the_day() {
    let hub = hub([scripted_tool("a"), scripted_tool("b")]).await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let offered = || async { hub.offer(&tenant, &thread).await.unwrap().tools().len() };
    assert_eq!(offered().await, 2);
    hub.apply(HubChange::replacing_policies().rule(Rule::deny("a"))).await.unwrap();
    assert_eq!(offered().await, 1);
    hub.apply(HubChange::replacing_policies()).await.unwrap();
    assert_eq!(offered().await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_everything_is_replaced_again_and_again() {
    let rounds = soak(50, 1_000);
    let hub = hub([scripted_tool("a"), scripted_tool("b").read_only()]).await;
    let callers: Vec<_> = (0..4)
        .map(|n| {
            let hub = hub.clone();
            tokio::spawn(async move {
                for _ in 0..rounds {
                    hub.call(["a", "b"][n % 2], json!({})).await.assert_success();
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    for round in 0..rounds {
        let change = if round % 3 == 0 {
            HubChange::replacing_policies()
        } else {
            HubChange::replacing_policies().policy("*", rate_limit_policy(1_000_000))
        };
        hub.apply(change.put(scripted_tool("a")).put(scripted_tool("b").read_only())).await.unwrap();
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(hub.tools().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn no_yes_is_taken_to_a_call_that_a_new_rule_denies() {
    let (ask, script) = scripted("ask", []);
    let hub = hub([ask.confirm()]).await;
    let receipt = hub.call("ask", json!({"sum": 5})).until_approval().await;
    let toolhub::CallReceipt::AwaitingApproval { approval, .. } = receipt else {
        panic!("no approval pending: {receipt:?}")
    };
    hub.apply(HubChange::replacing_policies().rule(Rule::deny("ask").when("/sum", "5"))).await.unwrap();
    let (tenant, boss) = (Tenant::default(), Caller::new("boss").unwrap());
    for outcome in [ApprovalOutcome::ProceedOnce, ApprovalOutcome::ProceedAlwaysTool] {
        let answered = hub.resolve_approval(&tenant, approval, Answer::new(outcome, boss.clone())).await;
        assert!(matches!(answered, Err(ApprovalError::Forbidden(_))), "{answered:?}");
    }
    assert_eq!((hub.grants(&tenant).await.unwrap().len(), script.recorded_arguments().len()), (0, 0));
    hub.resolve_approval(&tenant, approval, Answer::new(ApprovalOutcome::Cancel, boss)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn calls_by_an_old_list_do_not_give_a_new_limit_back() {
    let hub = ToolHub::builder().tool(scripted_tool("it")).policy("it", rate_limit_policy(100)).build().await.unwrap();
    let old = hub.tools();
    for limits in [
        vec![RateLimit::per_minute(100), RateLimit::per_hour(1)],
        vec![RateLimit::per_hour(1).each_caller(), RateLimit::per_minute(100)],
    ] {
        let policy = Policy { rate_limits: Some(limits), ..Policy::default() };
        hub.apply(HubChange::replacing_policies().policy("it", policy)).await.unwrap();
        hub.call("it", json!({})).await.assert_success();
        for _ in 0..2 {
            hub.call("it", json!({})).await.assert_error(ErrorKind::RateLimited);
            hub.call("it", json!({})).from_offer(&old).await.assert_success();
        }
    }
}
