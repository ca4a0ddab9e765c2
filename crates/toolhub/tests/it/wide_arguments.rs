//! Arguments of many small values: as text they take little memory while their call waits, and one tenant's are bounded.

use std::time::Duration;

use toolhub::{
    Answer, ApprovalOutcome, CallHandle, HubBuilder,
    prelude::*,
    testing::{AssertOutcome, ScriptStep, ScriptedTool, TestClock, scripted},
};

use crate::alloc::allocated_bytes;

const HOUR: Duration = Duration::from_secs(3600);

/// About 10 MiB once parsed, and 130 KiB as text.
fn wide(id: usize) -> Value {
    json!({"id": id, "list": (0..15_000).map(|_| json!({"a": 0})).collect::<Vec<_>>()})
}

fn builder() -> (HubBuilder, ScriptedTool) {
    let steps = [ScriptStep::Wait(HOUR), ScriptStep::Return(json!(1)), ScriptStep::Return(json!(2))];
    let (queued, script) = scripted("queued", steps);
    let queued = queued.max_concurrency(1).timeout(2 * HOUR).queue_timeout(2 * HOUR);
    let builder = ToolHub::builder().clock(TestClock::new()).tool(queued);
    let builder =
        builder.tool(scripted("asks", []).0.confirm().approval_timeout(2 * HOUR)).tool(scripted("external", []).0);
    (builder, script)
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn arguments_are_text_while_their_call_waits_and_the_same_afterwards() {
    let (builder, script) = builder();
    let hub = builder.build().await.unwrap();
    let running = hub.call("queued", json!({})).start();
    settle().await;
    let held = |start: &dyn Fn() -> CallHandle| {
        let before = allocated_bytes();
        (before, start())
    };
    let starts: [(&str, &dyn Fn() -> CallHandle); 3] = [
        ("queued", &|| hub.call("queued", wide(1)).start()),
        ("asks", &|| hub.call("asks", wide(2)).detached().start()),
        ("external", &|| hub.call("external", wide(3)).external(2 * HOUR).start()),
    ];
    let mut waiting = Vec::new();
    for (name, start) in starts {
        let (before, call) = held(start);
        settle().await;
        let bytes = allocated_bytes() - before;
        // The call, the rows of the store, and what the allocator keeps; parsed once, the arguments are ten times that.
        assert!(bytes < 1_000_000, "a call of `{name}` holds {bytes} bytes");
        waiting.push(call);
    }
    let tenant = Tenant::default();
    let [queued, asks, external] = <[CallHandle; 3]>::try_from(waiting).ok().unwrap();
    let pending = hub.approvals(&tenant, None).await.unwrap();
    assert_eq!(pending[0].arguments, wide(2));
    let yes = Answer::new(ApprovalOutcome::ProceedOnce, toolhub::ids::Caller::default());
    hub.resolve_approval(&tenant, pending[0].id, yes).await.unwrap();
    asks.await.assert_success();
    assert_eq!(hub.external_arguments(&tenant, external.id()), Some(wide(3)));
    hub.report_external_result(&tenant, external.id(), Ok(json!(1))).await.unwrap();
    let external = external.await;
    assert_eq!(hub.call_record(&tenant, external.id).await.unwrap().unwrap().arguments, wide(3));
    running.await.assert_success();
    queued.await.assert_success();
    assert_eq!(script.recorded_arguments(), [json!({}), wide(1)]);
}

#[tokio::test(start_paused = true)]
async fn the_arguments_of_one_tenant_are_bounded_and_those_of_others_are_not_its_concern() {
    let (builder, _) = builder();
    let hub = builder.max_argument_memory(25 << 20).build().await.unwrap();
    let other = Tenant::new("other").unwrap();
    let external = |id| hub.call("external", wide(id)).external(HOUR);
    let (first, second) = (external(1).start(), external(2).start());
    settle().await;
    let refused = external(3).await;
    refused.assert_effect(Effect::None).assert_error(ErrorKind::Overloaded);
    let error = refused.error.as_ref().unwrap();
    assert!(error.operator.contains("25 MiB") && error.retry_after.is_some(), "{}", error.operator);
    hub.call("external", json!({})).await.assert_success();
    let foreign = external(4).tenant(other.clone()).start();
    settle().await;
    assert!(hub.external_arguments(&other, foreign.id()).is_some());
    hub.report_external_result(&Tenant::default(), first.id(), Ok(json!(1))).await.unwrap();
    first.await.assert_success();
    let third = external(5).start();
    settle().await;
    assert!(hub.external_arguments(&Tenant::default(), third.id()).is_some());
    for call in [second, third, foreign] {
        call.cancel();
        call.await.assert_error(ErrorKind::Cancelled);
    }
}
