//! Calls that require an approval: requested once, decided once, used once.

use std::{sync::Arc, time::Duration};

use toolhub::{
    Answer, Approval, ApprovalError, ApprovalOutcome, ApprovalReuse, ApprovalState, GrantScope, Rule,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
    events::EventKind,
    ids::{ApprovalId, Caller, Tenant},
    prelude::*,
    testing::{AssertOutcome, EventRecorder, ScriptStep, ScriptedTool, TestClock, scripted},
};
use toolhub_testkit::soak;

use crate::faulty_store::FaultyStore;

const MINUTE: Duration = Duration::from_secs(60);

struct Shop {
    hub: ToolHub,
    script: ScriptedTool,
    tenant: Tenant,
}

fn boss() -> Caller {
    Caller::new("boss").unwrap()
}

async fn shop_with(store: Arc<dyn Backend>, change: impl FnOnce(ToolBuilder) -> ToolBuilder) -> Shop {
    let (order, script) = scripted("order", []);
    let schema = json!({"type": "object", "properties": {"qty": {"type": "integer", "minimum": 1}}});
    let order = change(order.parameters(schema).confirm());
    let (pay, _) = scripted("pay", []);
    let builder = ToolHub::builder().shared_store(store).clock(TestClock::new());
    let hub = builder.tool(order).tool(pay.confirm()).build().await.unwrap();
    Shop { hub, script, tenant: Tenant::default() }
}

async fn shop() -> Shop {
    shop_with(Arc::new(Memory::new()), |tool| tool).await
}

impl Shop {
    fn order(&self, qty: i64) -> toolhub::CallRequest<'_> {
        self.hub.call("order", json!({"qty": qty})).thread("t1")
    }

    /// Waits for the one pending approval.
    async fn pending_approval(&self) -> Approval {
        self.pending_approvals(1).await.pop().unwrap()
    }

    async fn pending_approvals(&self, many: usize) -> Vec<Approval> {
        for _ in 0..100_000 {
            let open = self.hub.approvals(&self.tenant, Some(ApprovalState::Pending)).await.unwrap();
            if open.len() == many {
                return open;
            }
            tokio::task::yield_now().await;
        }
        panic!("there are never {many} pending approvals");
    }

    async fn answer(&self, id: ApprovalId, answer: Answer) -> Result<Approval, ApprovalError> {
        self.hub.resolve_approval(&self.tenant, id, answer).await
    }

    async fn resolve(&self, id: ApprovalId, outcome: ApprovalOutcome) {
        self.answer(id, Answer::new(outcome, boss())).await.unwrap();
    }

    fn executed_arguments(&self) -> Vec<Value> {
        self.script.recorded_arguments()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_yes_and_is_made_once() {
    let shop = shop().await;
    let mut events = EventRecorder::new(&shop.hub);
    let call = shop.order(2).start();
    let pending = shop.pending_approval().await;
    assert_eq!((pending.tool.as_str(), pending.call_id, &pending.arguments), ("order", call.id(), &json!({"qty": 2})));
    assert!(shop.executed_arguments().is_empty(), "nothing runs before the decision");
    shop.resolve(pending.id, ApprovalOutcome::ProceedOnce).await;
    let outcome = call.await;
    outcome.assert_success();
    assert_eq!(outcome.approval, Some(pending.id));
    assert_eq!(shop.executed_arguments().len(), 1);
    let used = shop.hub.approval(&shop.tenant, pending.id).await.unwrap().unwrap();
    assert_eq!((used.state, used.used_by), (ApprovalState::Used, Some(outcome.id)));
    let names = events.names();
    let place = |name| names.iter().position(|other| *other == name).unwrap();
    assert!(place("approval.requested") < place("approval.resolved"), "{names:?}");
    assert!(place("approval.resolved") < place("tool.execution.started"), "{names:?}");
    // The approval was for one call.
    let repeated = shop.order(2).no_wait().await;
    repeated.assert_error(ErrorKind::ApprovalRequired);
    assert_eq!(shop.executed_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_no_reaches_the_model_in_the_persons_words() {
    let shop = shop().await;
    let call = shop.order(2).start();
    let pending = shop.pending_approval().await;
    shop.answer(pending.id, Answer::denied("the till is closed", boss())).await.unwrap();
    let outcome = call.await;
    outcome.assert_effect(Effect::None).assert_error(ErrorKind::ApprovalDenied);
    assert!(outcome.model_text().contains("the till is closed"), "{}", outcome.model_text());
    assert!(shop.executed_arguments().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nobody_answers_for_fifteen_minutes_which_is_a_no() {
    let shop = shop().await;
    let mut events = EventRecorder::new(&shop.hub);
    let began = tokio::time::Instant::now();
    shop.order(2).await.assert_effect(Effect::None).assert_error(ErrorKind::ApprovalTimeout);
    assert_eq!(began.elapsed(), 15 * MINUTE);
    let all = shop.hub.approvals(&shop.tenant, None).await.unwrap();
    assert_eq!(all[0].state, ApprovalState::TimedOut);
    let late = shop.answer(all[0].id, Answer::new(ApprovalOutcome::ProceedOnce, boss())).await;
    assert!(matches!(late, Err(ApprovalError::Resolved(ApprovalState::TimedOut))), "{late:?}");
    assert!(shop.executed_arguments().is_empty());
    let resolved =
        events.events().iter().filter(|event| matches!(event.kind, EventKind::ApprovalResolved { .. })).count();
    assert_eq!(resolved, 1);
}

#[tokio::test(start_paused = true)]
async fn edited_arguments_are_validated_again_used_and_told_to_the_model() {
    let shop = shop().await;
    let call = shop.order(20).start();
    let pending = shop.pending_approval().await;
    let wrong = shop.answer(pending.id, Answer::edited(json!({"qty": 0}), boss())).await;
    assert!(matches!(&wrong, Err(ApprovalError::Arguments { problems, .. }) if problems.len() == 1), "{wrong:?}");
    let mut mixed = Answer::edited(json!({"qty": 1}), boss());
    mixed.outcome = ApprovalOutcome::ProceedOnce;
    assert!(matches!(shop.answer(pending.id, mixed).await, Err(ApprovalError::Answer(_))));
    shop.answer(pending.id, Answer::edited(json!({"qty": 2}), boss())).await.unwrap();
    let outcome = call.await;
    outcome.assert_success();
    assert_eq!(shop.executed_arguments(), [json!({"qty": 2})]);
    assert!(outcome.model_text().contains("changed the arguments"), "{}", outcome.model_text());
    let record = shop.hub.call_record(&shop.tenant, outcome.id).await.unwrap().unwrap();
    assert_eq!(record.arguments, json!({"qty": 2}), "the journal has the executed arguments");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_cannot_wait_is_told_so_and_the_same_call_made_again_goes_on() {
    let shop = shop().await;
    let first = shop.order(2).no_wait().await;
    first.assert_effect(Effect::None).assert_error(ErrorKind::ApprovalRequired);
    let id = first.error.as_ref().unwrap().approval().unwrap();
    assert!(first.model_text().contains(&id.to_string()));
    let second = shop.order(2).no_wait().await;
    assert_eq!(second.error.unwrap().approval(), Some(id), "a pending approval is not requested twice");
    shop.resolve(id, ApprovalOutcome::ProceedOnce).await;
    shop.order(3).no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    shop.hub.call("order", json!({"qty": 2})).thread("t2").no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    shop.order(2).caller(boss()).no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    assert!(shop.executed_arguments().is_empty(), "an approval is for this call, this thread and this caller");
    shop.order(2).no_wait().await.assert_success();
    shop.order(2).no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    assert_eq!(shop.executed_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_no_is_told_once_and_then_the_question_may_be_asked_again() {
    let shop = shop().await;
    let id = shop.order(2).no_wait().await.error.unwrap().approval().unwrap();
    shop.resolve(id, ApprovalOutcome::Cancel).await;
    shop.order(2).no_wait().await.assert_error(ErrorKind::ApprovalDenied);
    let repeated = shop.order(2).no_wait().await;
    repeated.assert_error(ErrorKind::ApprovalRequired);
    assert_ne!(repeated.error.unwrap().approval(), Some(id));
}

#[tokio::test(start_paused = true)]
async fn a_call_may_keep_its_approval_apart_from_those_of_identical_calls() {
    let shop = shop().await;
    let call = |reuse| shop.order(2).no_wait().reuse_approvals(reuse);
    let ask = async |reuse| call(reuse).await.error.unwrap().approval().unwrap();
    let one = ask(ApprovalReuse::Answered).await;
    let other = ask(ApprovalReuse::Answered).await;
    assert_ne!(one, other, "each has a request of its own");
    assert_eq!(ask(ApprovalReuse::Only(one)).await, one);
    // A reserved answer is left to the call that names it.
    let reservation = shop.hub.reserve_approval(one);
    assert_eq!(reservation.id(), one);
    shop.resolve(one, ApprovalOutcome::ProceedOnce).await;
    assert_eq!(ask(ApprovalReuse::Only(other)).await, other);
    assert_ne!(ask(ApprovalReuse::Answered).await, one);
    shop.order(2).no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    let done = call(ApprovalReuse::Only(one)).await;
    done.assert_success();
    assert_eq!(done.approval, Some(one));
    // A denial counts for the call that names it, whatever was granted since.
    shop.resolve(other, ApprovalOutcome::Cancel).await;
    let third = ask(ApprovalReuse::Only(one)).await;
    shop.resolve(third, ApprovalOutcome::ProceedAlways).await;
    call(ApprovalReuse::Only(other)).await.assert_error(ErrorKind::ApprovalDenied);
    call(ApprovalReuse::Answered).await.assert_success();
    assert_eq!(shop.executed_arguments().len(), 2);
    drop(reservation);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_used_by_an_identical_call_once_its_reservation_ends() {
    let shop = shop().await;
    let call = || shop.order(2).no_wait().reuse_approvals(ApprovalReuse::Answered);
    let id = call().await.error.unwrap().approval().unwrap();
    let reservation = shop.hub.reserve_approval(id);
    shop.resolve(id, ApprovalOutcome::ProceedOnce).await;
    call().await.assert_error(ErrorKind::ApprovalRequired);
    drop(reservation);
    call().await.assert_success();
    // A repetition with the same idempotency key is the same call, and has the same request.
    let keyed = async || call().idempotency_key("k").await.error.unwrap().approval();
    assert_eq!(keyed().await, keyed().await);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_thread_can_be_approved_too() {
    let shop = shop().await;
    let call = || shop.hub.call("order", json!({"qty": 1})).no_wait();
    let id = call().await.error.unwrap().approval().unwrap();
    let refused = shop.answer(id, Answer::new(ApprovalOutcome::ProceedAlways, boss())).await;
    assert!(matches!(refused, Err(ApprovalError::Answer(text)) if text.contains("no thread")));
    shop.resolve(id, ApprovalOutcome::ProceedOnce).await;
    call().await.assert_success();
    call().await.assert_error(ErrorKind::ApprovalRequired);
    assert_eq!(shop.executed_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_yes_that_nobody_uses_runs_out() {
    let shop = shop_with(Arc::new(Memory::new()), |tool| tool.approval_timeout(MINUTE)).await;
    let id = shop.order(2).no_wait().await.error.unwrap().approval().unwrap();
    tokio::time::sleep(MINUTE / 2).await;
    shop.resolve(id, ApprovalOutcome::ProceedOnce).await;
    tokio::time::sleep(MINUTE).await;
    shop.order(2).no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    assert!(shop.executed_arguments().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_yes_runs_out_while_its_call_waits_for_its_turn_too() {
    let rate = RateLimit::per_hour(1).wait(120 * MINUTE);
    let shop = shop_with(Arc::new(Memory::new()), |tool| tool.rate_limit(rate)).await;
    for (qty, kind) in [(1, None), (2, Some(ErrorKind::ApprovalTimeout))] {
        let call = shop.order(qty).start();
        shop.resolve(shop.pending_approval().await.id, ApprovalOutcome::ProceedOnce).await;
        assert_eq!(call.await.error_kind(), kind);
    }
    assert_eq!(shop.executed_arguments(), [json!({"qty": 1})]);
}

#[tokio::test(start_paused = true)]
async fn a_yes_can_be_used_in_its_time_however_short_calls_are_remembered() {
    let (order, script) = scripted("order", []);
    let builder = ToolHub::builder().clock(TestClock::new()).call_retention(Duration::ZERO);
    let hub = builder.tool(order.confirm()).build().await.unwrap();
    let shop = Shop { hub, script, tenant: Tenant::default() };
    let pending = shop.order(1).no_wait().await.error.unwrap().approval().unwrap();
    tokio::time::sleep(14 * MINUTE).await;
    shop.resolve(pending, ApprovalOutcome::ProceedOnce).await;
    tokio::time::sleep(14 * MINUTE).await;
    shop.order(1).no_wait().await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_keeps_no_call_waiting() {
    let (clock, (order, script)) = (TestClock::new(), scripted("order", []));
    let hub = ToolHub::builder().clock(clock.clone()).tool(order.confirm()).build().await.unwrap();
    let shop = Shop { hub, script, tenant: Tenant::default() };
    let began = tokio::time::Instant::now();
    let call = shop.order(1).start();
    let pending = shop.pending_approval().await;
    tokio::time::sleep(MINUTE).await;
    clock.jump(-365 * 24 * 3_600_000);
    call.await.assert_error(ErrorKind::ApprovalTimeout);
    assert_eq!(began.elapsed().as_secs(), 15 * 60);
    let late = shop.answer(pending.id, Answer::new(ApprovalOutcome::ProceedOnce, boss())).await.unwrap_err();
    assert!(matches!(late, ApprovalError::Resolved(ApprovalState::TimedOut)), "{late}");
    assert_eq!(late.to_string(), "the approval expired unanswered; make the call again");
}

#[tokio::test(start_paused = true)]
async fn a_call_made_again_finds_the_question_that_nobody_waits_for() {
    let shop = shop().await;
    let pending = shop.order(1).no_wait().await.error.unwrap().approval().unwrap();
    let (repeated, more) = (shop.order(1).start(), shop.order(1).start());
    let open = shop.pending_approvals(2).await;
    // One of the two waits for the first approval, the other requests its own.
    assert!(open.iter().any(|question| question.id == pending));
    for question in open {
        shop.resolve(question.id, ApprovalOutcome::ProceedOnce).await;
    }
    repeated.await.assert_success();
    more.await.assert_success();
    assert!(shop.hub.approvals(&shop.tenant, Some(ApprovalState::Approved)).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn identical_calls_made_at_once_each_have_their_own_question() {
    let shop = shop_with(Arc::new(FaultyStore::default()), |tool| tool).await;
    let calls: Vec<_> = (0..5).map(|_| shop.order(1).start()).collect();
    for question in shop.pending_approvals(5).await {
        shop.resolve(question.id, ApprovalOutcome::ProceedOnce).await;
    }
    for call in calls {
        call.await.assert_success();
    }
    assert_eq!(shop.executed_arguments().len(), 5);
}

/// A store without change notifications that can fail to store grants.
#[derive(Default)]
struct GrantFailingStore(Memory);

impl Backend for GrantFailingStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        self.0.load(keys, now)
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        if batch.writes.iter().any(|write| write.table == Table::Grants) {
            return Box::pin(async { Err(StoreError::Unavailable("scripted failure".into())) });
        }
        self.0.commit(batch, now)
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.0.scan(scan, now)
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.0.sweep(most, now)
    }

    fn watch(&self, _: Table) -> Watcher {
        Box::pin(futures_util::stream::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_yes_holds_at_once_though_its_always_could_not_be_kept() {
    let shop = shop_with(Arc::new(GrantFailingStore::default()), |tool| tool).await;
    let mut events = EventRecorder::new(&shop.hub);
    let began = tokio::time::Instant::now();
    let call = shop.order(1).start();
    let pending = shop.pending_approval().await;
    tokio::time::sleep(MINUTE).await;
    let always = Answer::new(ApprovalOutcome::ProceedAlwaysTool, boss());
    assert!(matches!(shop.answer(pending.id, always).await, Err(ApprovalError::Store(_))));
    call.await.assert_success();
    assert_eq!(began.elapsed(), MINUTE, "the call polls before its timeout");
    assert!(events.names().contains(&"approval.resolved"));
    assert!(shop.hub.grants(&shop.tenant).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_times_a_yes_or_a_question_that_is_too_old_starts_nothing() {
    let shop = shop_with(Arc::new(Memory::new()), |tool| tool.approval_timeout(MINUTE)).await;
    for round in 1..=1_000 {
        let id = shop.order(round).no_wait().await.error.unwrap().approval().unwrap();
        if round % 2 == 0 {
            shop.resolve(id, ApprovalOutcome::ProceedOnce).await;
        }
        tokio::time::sleep(MINUTE).await;
        let late = shop.answer(id, Answer::new(ApprovalOutcome::ProceedOnce, boss())).await;
        assert!(matches!(late, Err(ApprovalError::Resolved(ApprovalState::TimedOut))), "{late:?}");
        shop.order(round).no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    }
    assert!(shop.executed_arguments().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_model_that_asks_the_same_over_and_over_is_turned_away() {
    let shop = shop().await;
    let calls: Vec<_> = (0..40).map(|_| shop.order(2).start()).collect();
    let pending = shop.pending_approvals(32).await;
    for question in &pending {
        shop.resolve(question.id, ApprovalOutcome::Cancel).await;
    }
    let mut turned_away = 0;
    for call in calls {
        turned_away += usize::from(call.await.error_kind() == Some(ErrorKind::Overloaded));
    }
    assert_eq!((pending.len(), turned_away), (32, 8));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_takes_its_question_back() {
    let shop = shop().await;
    let call = shop.order(2).start();
    let pending = shop.pending_approval().await;
    call.cancel();
    call.await.assert_effect(Effect::None).assert_error(ErrorKind::Cancelled);
    let late = shop.answer(pending.id, Answer::new(ApprovalOutcome::ProceedOnce, boss())).await;
    assert!(matches!(late, Err(ApprovalError::Resolved(ApprovalState::Withdrawn))), "{late:?}");
    // A dropped caller has cancelled as well.
    let waiting = tokio::spawn({
        let hub = shop.hub.clone();
        async move { hub.call("order", json!({"qty": 5})).thread("t1").await }
    });
    shop.pending_approval().await;
    waiting.abort();
    shop.pending_approvals(0).await;
    assert!(shop.executed_arguments().is_empty());
}

#[tokio::test(start_paused = true)]
async fn always_is_for_this_tool_in_this_thread_and_for_nothing_else() {
    let shop = shop().await;
    let [first, sibling, other] = [
        shop.order(1).start(),
        shop.hub.call("pay", json!({})).thread("t1").start(),
        shop.hub.call("order", json!({"qty": 1})).thread("t2").start(),
    ];
    let pending = shop.pending_approvals(3).await;
    let of = |call: &toolhub::CallHandle| pending.iter().find(|pending| pending.call_id == call.id()).unwrap().id;
    shop.resolve(of(&first), ApprovalOutcome::ProceedAlways).await;
    first.await.assert_success();
    shop.order(7).await.assert_success();
    assert_eq!(shop.pending_approvals(2).await.len(), 2, "the other tool and the other thread still wait");
    for call in [&sibling, &other] {
        shop.resolve(of(call), ApprovalOutcome::Cancel).await;
    }
    sibling.await.assert_error(ErrorKind::ApprovalDenied);
    other.await.assert_error(ErrorKind::ApprovalDenied);

    let grants = shop.hub.grants(&shop.tenant).await.unwrap();
    assert!(matches!(&grants[..], [grant] if matches!(&grant.covers, GrantScope::Thread { .. })), "{grants:?}");
    shop.hub.revoke_grant(&shop.tenant, &grants[0].id).await.unwrap();
    shop.order(8).no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    let revoked = shop.hub.revoke_grant(&shop.tenant, &grants[0].id).await;
    assert!(matches!(revoked, Err(ApprovalError::UnknownGrant(_))));
}

#[tokio::test(start_paused = true)]
async fn a_revoked_grant_leaves_no_unused_yes() {
    let shop = shop().await;
    let ask = async |qty| shop.order(qty).no_wait().await.error.unwrap().approval().unwrap();
    let (always, once) = (ask(1).await, ask(2).await);
    shop.resolve(once, ApprovalOutcome::ProceedOnce).await;
    for outcome in [ApprovalOutcome::ProceedAlwaysTool, ApprovalOutcome::ProceedAlways] {
        let id = if outcome == ApprovalOutcome::ProceedAlways { ask(3).await } else { always };
        shop.resolve(id, outcome).await;
        shop.order(1).no_wait().await.assert_success();
        let grants = shop.hub.grants(&shop.tenant).await.unwrap();
        shop.hub.revoke_grant(&shop.tenant, &grants[0].id).await.unwrap();
        for qty in [1, 3] {
            shop.order(qty).no_wait().await.assert_error(ErrorKind::ApprovalRequired);
        }
    }
    shop.order(2).no_wait().await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn always_for_the_tool_holds_in_every_thread_until_the_tool_changes() {
    let shop = shop().await;
    let id = shop.order(1).no_wait().await.error.unwrap().approval().unwrap();
    shop.resolve(id, ApprovalOutcome::ProceedAlwaysTool).await;
    for thread in ["t1", "t2"] {
        shop.hub.call("order", json!({"qty": 3})).thread(thread).no_wait().await.assert_success();
    }
    shop.hub.call("pay", json!({})).thread("t1").no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    let stranger = Tenant::new("stranger").unwrap();
    let foreign = shop.order(3).tenant(stranger.clone()).no_wait().await;
    foreign.assert_error(ErrorKind::ApprovalRequired);
    let of_stranger = foreign.error.unwrap().approval().unwrap();
    assert!(
        shop.hub.approval(&shop.tenant, of_stranger).await.unwrap().is_none(),
        "approvals of other tenants do not exist"
    );

    shop.hub.unregister("order").await;
    let (changed, _) = scripted("order", []);
    shop.hub.register(changed.description("now with another meaning").confirm()).unwrap();
    shop.order(3).no_wait().await.assert_error(ErrorKind::ApprovalRequired);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_changed_after_the_question_must_be_asked_about_again() {
    let shop = shop().await;
    let id = shop.order(1).no_wait().await.error.unwrap().approval().unwrap();
    shop.hub.unregister("order").await;
    let (changed, script) = scripted("order", []);
    shop.hub.register(changed.description("now with another meaning").confirm()).unwrap();
    let refused = shop.answer(id, Answer::new(ApprovalOutcome::ProceedOnce, boss())).await;
    assert!(matches!(refused, Err(ApprovalError::ToolChanged(_))), "{refused:?}");
    shop.answer(id, Answer::denied("no", boss())).await.unwrap();
    assert!(script.recorded_arguments().is_empty());
}

#[tokio::test(start_paused = true)]
async fn always_for_the_server_covers_its_tools_as_they_are() {
    let imported = |name: &str| {
        let (tool, script) = scripted(name, []);
        (tool.origin("shop-server", name), script)
    };
    let ((buy, _), (sell, _), (look, _)) = (imported("buy"), imported("sell"), imported("look"));
    let hub = ToolHub::builder().clock(TestClock::new()).tools([buy, sell, look.read_only()]).build().await.unwrap();
    let call = |tool: &'static str| hub.call(tool, json!({})).thread("t1").no_wait();
    call("look").await.assert_success();
    let id = call("buy").await.error.unwrap().approval().unwrap();
    call("sell").await.assert_error(ErrorKind::ApprovalRequired);
    let answer = Answer::new(ApprovalOutcome::ProceedAlwaysServer, boss());
    hub.resolve_approval(&Tenant::default(), id, answer).await.unwrap();
    call("buy").await.assert_success();
    call("sell").await.assert_success();
    let (new, _) = imported("new");
    hub.register(new).unwrap();
    call("new").await.assert_error(ErrorKind::ApprovalRequired);
    let (trusted, _) = imported("trusted");
    hub.register(trusted.trusted()).unwrap();
    call("trusted").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn rules_deny_first_then_ask_then_allow_and_no_grant_lifts_a_deny() {
    let (pay, script) = scripted("pay", []);
    let hub = ToolHub::builder()
        .clock(TestClock::new())
        .tool(pay)
        .rule(Rule::allow("*"))
        .rule(Rule::ask("p*").when("/amount", r"^\d{3}$").reason("large sums").approval_timeout(MINUTE))
        .rule(Rule::ask("p*").when("/amount", r"^\d{4}$"))
        .rule(Rule::deny("pay").when("/amount", r"^\d{5,}").reason("too much"))
        .build()
        .await
        .unwrap();
    let pay = |amount: u64| hub.call("pay", json!({"amount": amount})).thread("t1").no_wait();
    pay(10).await.assert_success();
    let pending = pay(100).await.error.unwrap().approval().unwrap();
    let question = hub.approval(&Tenant::default(), pending).await.unwrap().unwrap();
    assert_eq!(question.reason.as_deref(), Some("large sums"));
    assert_eq!(question.expires_at.since(question.asked_at), MINUTE);
    let denied = pay(100_000).await;
    denied.assert_effect(Effect::None).assert_error(ErrorKind::Forbidden);
    assert!(denied.error.unwrap().operator.contains("too much"));
    let edited =
        hub.resolve_approval(&Tenant::default(), pending, Answer::edited(json!({"amount": 99_999}), boss())).await;
    assert!(matches!(edited, Err(ApprovalError::Forbidden(why)) if why == "too much"));
    hub.resolve_approval(&Tenant::default(), pending, Answer::new(ApprovalOutcome::ProceedAlwaysTool, boss()))
        .await
        .unwrap();
    pay(200).await.assert_success();
    pay(2_000).await.assert_error(ErrorKind::ApprovalRequired);
    pay(100_000).await.assert_error(ErrorKind::Forbidden);
    assert_eq!(script.recorded_arguments(), [json!({"amount": 10}), json!({"amount": 200})]);
}

#[test]
fn a_question_outlives_its_process_and_the_answer_is_used_by_the_next_one() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let first = runtime();
    let pending = first.block_on(async {
        let shop = shop_with(store.clone(), |tool| tool).await;
        // Not dropped, which would cancel it: the process simply ends.
        std::mem::forget(shop.order(2).start());
        shop.pending_approval().await.id
    });
    drop(first);
    runtime().block_on(async {
        let shop = shop_with(store, |tool| tool).await;
        assert_eq!(shop.pending_approval().await.id, pending);
        shop.resolve(pending, ApprovalOutcome::ProceedOnce).await;
        let outcome = shop.order(2).await;
        outcome.assert_success();
        assert_eq!((outcome.approval, shop.executed_arguments().len()), (Some(pending), 1));
        shop.order(2).no_wait().await.assert_error(ErrorKind::ApprovalRequired);
    });
}

#[tokio::test(start_paused = true)]
async fn an_answer_on_one_node_wakes_a_call_on_another() {
    let store: Arc<dyn Backend> = Arc::new(Memory::new());
    let (one, two) = (shop_with(store.clone(), |tool| tool).await, shop_with(store, |tool| tool).await);
    let call = one.order(2).start();
    let pending = two.pending_approval().await;
    let began = tokio::time::Instant::now();
    two.resolve(pending.id, ApprovalOutcome::ProceedOnce).await;
    call.await.assert_success();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!((one.executed_arguments().len(), two.executed_arguments().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_key_waits_for_the_same_answer_and_the_tool_runs_once() {
    let shop = shop().await;
    let keyed = || shop.order(2).idempotency_key("k1").start();
    let (first, second) = (keyed(), keyed());
    let pending = shop.pending_approval().await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(shop.pending_approval().await.id, pending.id, "one key, one approval");
    shop.resolve(pending.id, ApprovalOutcome::ProceedOnce).await;
    let ends = [first.await, second.await];
    assert_eq!(ends.iter().filter(|end| end.is_success()).count(), 1, "{ends:?}");
    assert_eq!(shop.executed_arguments().len(), 1);
    let replayed = keyed().await;
    assert!(replayed.replayed && replayed.is_success());
}

#[tokio::test(start_paused = true)]
async fn a_repeated_key_is_told_that_the_call_it_repeats_is_running() {
    let shop = shop().await;
    shop.script.push_step(ScriptStep::Wait(MINUTE));
    let keyed = || shop.order(2).idempotency_key("k1").start();
    let (first, second) = (keyed(), keyed());
    let pending = shop.pending_approval().await;
    tokio::time::sleep(MINUTE).await;
    shop.resolve(pending.id, ApprovalOutcome::ProceedOnce).await;
    second.await.assert_error(ErrorKind::IdempotencyInProgress);
    first.await.assert_error(ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_ends_its_own_call_and_not_another_that_waits_for_the_same_answer() {
    let shop = shop().await;
    let keyed = || shop.order(2).idempotency_key("k1").start();
    let (first, second) = (keyed(), keyed());
    let pending = shop.pending_approval().await;
    tokio::time::sleep(MINUTE).await;
    first.cancel();
    first.await.assert_error(ErrorKind::Cancelled);
    tokio::time::sleep(MINUTE).await;
    let second_approval = shop.pending_approval().await;
    assert_ne!(second_approval.id, pending.id, "the approval was withdrawn, so the other call has its own");
    shop.resolve(second_approval.id, ApprovalOutcome::ProceedOnce).await;
    second.await.assert_success();
    assert_eq!(shop.executed_arguments().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn raced_replayed_altered_foreign_and_late_a_yes_is_used_at_most_once() {
    let (order, script) = scripted("order", []);
    let hub = ToolHub::builder().tool(order.confirm()).build().await.unwrap();
    let tenant = Tenant::default();
    let rounds: usize = soak(200, 1_000);
    for round in 0..rounds {
        let call = |change: &'static str| {
            let qty = if change == "altered" { round + 1_000_000 } else { round };
            let request = hub.call("order", json!({"qty": qty})).thread("t1").no_wait();
            let foreign = Caller::new("foreign").unwrap();
            if change == "foreign" { request.caller(foreign) } else { request }
        };
        let id = call("plain").await.error.unwrap().approval().unwrap();
        let before = script.recorded_arguments().len();
        for change in ["plain", "altered", "foreign"] {
            call(change).await.assert_error(ErrorKind::ApprovalRequired);
        }
        let answers = [ApprovalOutcome::ProceedOnce, ApprovalOutcome::ProceedOnce, ApprovalOutcome::Cancel];
        let answers = answers.map(|outcome| {
            let (hub, tenant) = (hub.clone(), tenant.clone());
            tokio::spawn(async move { hub.resolve_approval(&tenant, id, Answer::new(outcome, boss())).await.is_ok() })
        });
        let calls: Vec<_> = (0..6)
            .map(|at| {
                let hub = hub.clone();
                let qty = if at == 5 { round + 1_000_000 } else { round };
                tokio::spawn(async move { hub.call("order", json!({"qty": qty})).thread("t1").no_wait().await })
            })
            .collect();
        let mut accepted = 0;
        for answer in answers {
            accepted += usize::from(answer.await.unwrap());
        }
        assert_eq!(accepted, 1, "exactly one decision counts");
        for racing in calls {
            racing.await.unwrap();
        }
        let approved = hub.approval(&tenant, id).await.unwrap().unwrap();
        if approved.state == ApprovalState::Approved {
            call("plain").await.assert_success();
        }
        call("plain").await;
        let executed = script.recorded_arguments().len() - before;
        let allowed = usize::from(approved.answer.unwrap().outcome == ApprovalOutcome::ProceedOnce);
        assert_eq!(executed, allowed, "round {round}");
        script.clear();
    }
}
