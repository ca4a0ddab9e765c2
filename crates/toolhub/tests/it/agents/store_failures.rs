//! Runs on stores that fail in the middle of a step.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use toolhub::{
    backend::{Batch, Change, Expect, Table, Write},
    ids::{IdempotencyKey, ThreadId},
    prelude::*,
    testing::scripted,
};
use toolhub_agent::{AgentDefinition, AgentService, Message, RunRecord, RunStatus, UserMessage};

use super::{ScriptedModel, calls_reply, text_reply};
use crate::intercepted_store::{CommitAction, InterceptedStore};

fn default_tenant() -> Tenant {
    Tenant::default()
}

fn thread() -> ThreadId {
    ThreadId::new("t").unwrap()
}

/// The open run that a batch writes; `None` if it writes none.
fn open_run(batch: &Batch) -> Option<Value> {
    let write = batch.writes.iter().find(|write| write.table == Table::Runs && write.id == Table::OPEN_RUN)?;
    match &write.change {
        Change::Put { value, .. } => Some(serde_json::from_slice(value).unwrap()),
        _ => Some(Value::Null),
    }
}

/// A store that applies these actions to the commits of runs, counted from 0: message, reply with calls, results, end.
fn intercept_run_commits(
    action: impl Fn(&InterceptedStore, usize) -> CommitAction + Send + Sync + 'static,
) -> Arc<InterceptedStore> {
    let store = Arc::new(InterceptedStore::default());
    let (weak, at) = (Arc::downgrade(&store), AtomicUsize::new(0));
    store.before_commits(move |batch| {
        let action = match (open_run(batch), weak.upgrade()) {
            (Some(_), Some(store)) => action(&store, at.fetch_add(1, Ordering::AcqRel)),
            _ => CommitAction::Apply,
        };
        Box::pin(async move { action })
    });
    store
}

async fn service(store: &Arc<InterceptedStore>, tool: ToolBuilder, model: &Arc<ScriptedModel>) -> AgentService {
    let hub = ToolHub::builder().store(store.clone()).tool(tool).build().await.unwrap();
    let service = AgentService::new(&hub);
    service.define("default", AgentDefinition::new(model.clone()));
    service
}

async fn roles(service: &AgentService) -> Vec<&'static str> {
    let messages = service.messages(&default_tenant(), &thread(), 100, None).await.unwrap();
    let role = |message: &Message| match message {
        Message::User { .. } => "user",
        Message::Assistant { .. } => "assistant",
        Message::Tool { .. } => "tool",
        _ => "?",
    };
    messages.iter().map(|kept| role(&kept.message)).collect()
}

/// Pays a bill on this store, and checks that everything is stored and executed once.
async fn check_pays_once(store: Arc<InterceptedStore>) {
    let (pay, paying) = scripted("pay", []);
    let pay_it = || calls_reply([("pay", json!({"sum": 5}))]);
    // The model may be asked again if its reply was not stored; it would pay again if it did not get the result.
    let model = ScriptedModel::new([pay_it(), text_reply("Paid."), text_reply("Paid.")]);
    let service = service(&store, pay, &model).await;
    let mut run = service.send(&default_tenant(), &thread(), "Pay").await.unwrap();
    let end = run.wait_ended().await;
    assert_eq!((end.status, end.content.as_str()), (RunStatus::Completed, "Paid."));
    assert_eq!(paying.recorded_arguments().len(), 1);
    assert_eq!(roles(&service).await, ["user", "assistant", "tool", "assistant"]);
}

#[tokio::test(start_paused = true)]
async fn results_that_were_not_written_down_are_not_forgotten_while_the_store_is_gone() {
    check_pays_once(intercept_run_commits(|store, at| {
        if at != 2 {
            return CommitAction::Apply;
        }
        store.failing_loads.store(1, Ordering::Release);
        CommitAction::Unavailable
    }))
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_answer_was_lost_is_not_made_twice() {
    for lost in 1..4 {
        check_pays_once(intercept_run_commits(
            move |_, at| if at == lost { CommitAction::LoseAck } else { CommitAction::Apply },
        ))
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_gone_for_long_delays_a_run_and_does_not_leave_it_open() {
    check_pays_once(intercept_run_commits(|_, at| {
        if (2..40).contains(&at) { CommitAction::Unavailable } else { CommitAction::Apply }
    }))
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_call_begins_before_it_is_written_down_that_it_was_asked_for() {
    let store = Arc::new(InterceptedStore::default());
    let order: Arc<Mutex<Vec<&str>>> = Arc::default();
    let (weak, seen, failed) = (Arc::downgrade(&store), order.clone(), AtomicUsize::new(0));
    store.before_commits(move |batch| {
        let mut action = CommitAction::Apply;
        let is_calling = open_run(batch).is_some_and(|open| open["run"]["phase"]["phase"] == "calling");
        if is_calling && failed.fetch_add(1, Ordering::AcqRel) == 0 {
            weak.upgrade().unwrap().failing_loads.store(1, Ordering::Release);
            action = CommitAction::Unavailable;
        } else if is_calling {
            seen.lock().unwrap().push("asked for");
        } else if batch.writes.iter().any(|write| write.table == Table::OpenCalls) {
            seen.lock().unwrap().push("begun");
        }
        Box::pin(async move { action })
    });
    let (pay, paying) = scripted("pay", []);
    let pay_it = || calls_reply([("pay", json!({"sum": 5}))]);
    let model = ScriptedModel::new([pay_it(), pay_it(), text_reply("Paid.")]);
    let service = service(&store, pay, &model).await;
    service.send(&default_tenant(), &thread(), "Pay").await.unwrap().wait_ended().await;
    assert_eq!(order.lock().unwrap().first(), Some(&"asked for"));
    assert_eq!(paying.recorded_arguments().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_can_never_be_written_down_ends_the_run_and_not_the_thread() {
    for never in [1, 2, 3] {
        let (pay, _) = scripted("pay", []);
        let model = ScriptedModel::new([
            calls_reply([("pay", json!({}))]),
            text_reply("Paid."),
            text_reply("Hello."),
            text_reply("Hello."),
        ]);
        let store =
            intercept_run_commits(move |_, at| if at == never { CommitAction::Reject } else { CommitAction::Apply });
        let service = service(&store, pay, &model).await;
        let end = service.send(&default_tenant(), &thread(), "Pay").await.unwrap().wait_ended().await;
        assert_eq!(end.error.expect("it failed").code, "store_unavailable");
        let roles = roles(&service).await;
        assert_eq!(roles.contains(&"tool"), roles.contains(&"assistant"), "{roles:?}");
        let next = service.send(&default_tenant(), &thread(), "Hello").await.unwrap().wait_ended().await;
        assert_eq!(next.status, RunStatus::Completed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_answer_was_lost_is_answered_and_is_one_message() {
    let (pay, _) = scripted("pay", []);
    let model = ScriptedModel::new([text_reply("Hello."), text_reply("Hello.")]);
    let store = intercept_run_commits(|_, at| if at == 0 { CommitAction::LoseAck } else { CommitAction::Apply });
    let service = service(&store, pay, &model).await;
    let message = || UserMessage { key: Some(IdempotencyKey::new("k").unwrap()), ..UserMessage::from("Hi") };
    let run = match service.send(&default_tenant(), &thread(), message()).await {
        Ok(run) => run,
        Err(_) => service.send(&default_tenant(), &thread(), message()).await.unwrap(),
    };
    assert_eq!(wait_for_end(&service, &run.record()).await.content, "Hello.");
    assert_eq!(roles(&service).await, ["user", "assistant"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_goes_on_although_whoever_sent_it_went_away_meanwhile() {
    let (pay, _) = scripted("pay", []);
    let model = ScriptedModel::new([text_reply("Hello.")]);
    let store = Arc::new(crate::faulty_store::FaultyStore::default());
    let hub = ToolHub::builder().store(store.clone()).tool(pay).build().await.unwrap();
    let service = AgentService::new(&hub);
    service.define("default", AgentDefinition::new(model));
    hub.touch_thread(&default_tenant(), &thread()).await.unwrap();
    store.writes_late.store(true, Ordering::Release);
    let (main_, t) = (default_tenant(), thread());
    let sent = service.send(&main_, &t, "Hi");
    assert!(tokio::time::timeout(std::time::Duration::from_millis(2), sent).await.is_err(), "it is being written");
    let run = loop {
        match service.runs(&default_tenant(), &thread(), 1, None).await.unwrap().pop() {
            Some(run) => break run,
            None => tokio::time::sleep(std::time::Duration::from_millis(1)).await,
        }
    };
    assert_eq!(wait_for_end(&service, &run).await.content, "Hello.");
}

#[tokio::test(start_paused = true)]
async fn a_conversation_with_a_message_that_cannot_be_read_does_not_hold_its_thread_for_ever() {
    let (pay, _) = scripted("pay", []);
    let model = ScriptedModel::new([text_reply("Hello.")]);
    let store: Arc<InterceptedStore> = Arc::default();
    let service = service(&store, pay, &model).await;
    service.send(&default_tenant(), &thread(), "Hi").await.unwrap().wait_ended().await;
    let change = Change::Put { value: b"{}".to_vec().into(), schema: 1, expires: None };
    let mut batch = Batch::new(toolhub::backend::Partition::for_thread(default_tenant(), thread()));
    batch.writes.push(Write {
        table: Table::Messages,
        id: "000000000001".into(),
        expect: Expect::Any,
        change,
        durability: toolhub::backend::Durability::KillSafe,
    });
    service.hub().store().commit(batch, service.hub().now()).await.unwrap();
    let end = service.send(&default_tenant(), &thread(), "And?").await.unwrap().wait_ended().await;
    assert_eq!(end.error.expect("it failed").code, "store_unavailable");
    assert!(service.send(&default_tenant(), &thread(), "And?").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn two_who_make_the_same_call_at_once_both_hear_what_came_of_it() {
    let store: Arc<InterceptedStore> = Arc::default();
    let (pay, paying) = scripted("pay", []);
    let first = service(
        &store,
        pay,
        &ScriptedModel::new([calls_reply([("pay", json!({}))]), text_reply("Paid."), text_reply("Paid.")]),
    )
    .await;
    let (pay, paying_there) = scripted("pay", []);
    let second = service(&store, pay, &ScriptedModel::new([text_reply("Paid."), text_reply("Paid.")])).await;
    let (other, once) = (second.clone(), AtomicUsize::new(0));
    store.before_commits(move |batch| {
        let opens = batch.writes.iter().any(|write| write.table == Table::OpenCalls);
        let other = other.clone();
        let first_time = opens && once.fetch_add(1, Ordering::AcqRel) == 0;
        Box::pin(async move {
            if first_time {
                // Just before the call begins, another service takes over its run.
                other.send(&default_tenant(), &thread(), "Pay").await.unwrap_err();
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            }
            CommitAction::Apply
        })
    });
    let run = first.send(&default_tenant(), &thread(), "Pay").await.unwrap();
    wait_for_end(&second, &run.record()).await;
    let messages = second.messages(&default_tenant(), &thread(), 10, None).await.unwrap();
    let Message::Tool { results } = &messages[2].message else { panic!("{messages:?}") };
    assert!(!results[0].is_error, "{}", results[0].text);
    assert_eq!((messages.len(), paying.recorded_arguments().len() + paying_there.recorded_arguments().len()), (4, 1));
}

/// Waits for the end of a run, known only by its id.
async fn wait_for_end(service: &AgentService, run: &RunRecord) -> RunRecord {
    let ended = async {
        loop {
            let record = service.run(&default_tenant(), run.id).await.unwrap().unwrap();
            if record.status.is_end() {
                return record;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), ended).await.expect("the run was not continued")
}
