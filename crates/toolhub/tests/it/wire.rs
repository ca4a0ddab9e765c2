//! Serialized API types match their schemas exactly.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use schemars::{JsonSchema, generate::SchemaSettings};
use toolhub::{
    Answer, Approval, ApprovalOutcome, CallPage, CallQuery, CallRecord, ChangeSummary, ContextFilter, ContextInfo,
    ContextPage, Definition, Explanation, Grant, HistoryEntry, HubChange, InstanceInfo, JournalStats, OnExcess,
    RateScope, RecentStats, SnapshotRestore, StateEntry, StateStats, StateVersion, StatusScope, ThreadInfo, ToolStats,
    ToolStatusInfo,
    backend::Memory,
    events::{Event, EventKind, EventPage, MessageCall},
    ids::{CallId, RunId},
    prelude::*,
    status::{FailureWindow, StatusSettings, ToolStatus},
    testing::{AssertOutcome, EventRecorder, ScriptStep, scripted},
};

/// The schema of the serialized form, with every object closed: an unknown member is an error.
fn closed_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    close_objects(&mut schema, true);
    schema
}

fn close_objects(schema: &mut Value, alone: bool) {
    let Value::Object(members) = schema else { return };
    let pieces = ["oneOf", "anyOf", "allOf"];
    let joins = pieces.iter().any(|piece| members.contains_key(*piece));
    let has_members = members.contains_key("properties");
    for (name, inner) in members.iter_mut() {
        match (name.as_str(), inner) {
            // Parts of an `allOf` know only their own members.
            (piece, Value::Array(all)) if pieces.contains(&piece) => {
                all.iter_mut().for_each(|one| close_objects(one, alone && !has_members));
            }
            ("properties" | "$defs", Value::Object(all)) => all.values_mut().for_each(|one| close_objects(one, true)),
            ("items" | "additionalProperties", one) => close_objects(one, true),
            _ => {}
        }
    }
    if alone && has_members && !members.contains_key("additionalProperties") {
        let word = if joins { "unevaluatedProperties" } else { "additionalProperties" };
        members.insert(word.into(), false.into());
    }
}

#[track_caller]
fn check<T: JsonSchema + Serialize>(sample: &T) {
    let (schema, written) = (closed_schema::<T>(), serde_json::to_value(sample).unwrap());
    let validator = jsonschema::draft202012::options().should_validate_formats(true).build(&schema).unwrap();
    let wrong: Vec<String> =
        validator.iter_errors(&written).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{written:#} does not match its schema: {wrong:#?}\n{schema:#}");
}

#[derive(Default, Serialize, Deserialize)]
struct Count(u64);
impl ToolState for Count {
    const NAME: &'static str = "count";
}

async fn count(_: NoArguments, mut count: State<Count>, cx: CallContext) -> Result<u64, ToolError> {
    cx.progress("counting");
    count.0 += 1;
    Ok(count.0)
}

#[derive(Deserialize, JsonSchema)]
struct RepeatArguments {
    words: String,
}

struct NoopInstance;
impl Instance for NoopInstance {
    type Arguments = NoArguments;
    type Output = ();
    async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<(), ToolError> {
        Ok(())
    }
}

async fn hub() -> ToolHub {
    let sick = scripted("sick", vec![ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamError, "500")); 3]).0;
    let rate = RateLimit {
        scope: RateScope::Thread,
        on_excess: OnExcess::Wait { at_most: Duration::from_secs(1) },
        ..RateLimit::per_minute(100)
    };
    let long = tool("long", |say: RepeatArguments| async move { Ok::<_, ToolError>(say.words.repeat(100)) });
    let builder = ToolHub::builder().shared_store(Arc::new(Memory::new())).tools([
        tool("count", count)
            .tag("numbers")
            .version("1")
            .metadata("owner", "ann")
            .output::<u64>()
            .timeout(Duration::from_secs(5)),
        tool("late", |_: NoArguments| async { Ok::<_, ToolError>(()) })
            .after_sequence(["count"])
            .within(Duration::from_secs(60))
            .after_any(["count", "sick"]),
        long.text_limit(10).read_only().rate_limit(rate).cache(Duration::from_secs(1)),
        scripted("ask", []).0.confirm().origin("shop", "ask"),
        instance("line", |_: CallContext| std::future::ready(Ok(NoopInstance))).description("A line."),
        sick,
    ]);
    let window = FailureWindow { failure_rate: 0.5, window: Duration::from_secs(60), minimum_calls: 10 };
    let status = StatusSettings { failure_window: Some(window), ..StatusSettings::default() };
    builder.status(status).rule(Rule::deny("never_*").reason("no")).build().await.unwrap()
}

#[tokio::test]
async fn calls_their_ends_and_their_questions_are_as_their_schemas_say() {
    let hub = hub().await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    let call = |tool: &str, arguments: Value| hub.call(tool.to_owned(), arguments).thread("t1").model_call("m1");
    let outcomes = [
        call("count", json!({})).idempotency_key("k").await,
        call("count", json!({})).idempotency_key("k").await,
        call("long", json!({"words": "much text"})).await,
        call("long", json!({"word": "much text"})).await,
        call("cuont", json!({})).await,
        call("sick", json!({})).await,
        call("ask", json!({})).no_wait().await,
        hub.call("late", json!({})).thread("t2").await,
        hub.call("line", json!({})).thread("t1").await,
    ];
    assert!(!outcomes[2].content.is_empty() && outcomes[3].error.is_some());
    outcomes.iter().for_each(check);
    for error in outcomes.iter().filter_map(|outcome| outcome.error.as_ref()) {
        check::<CallError>(error);
        let read: CallError = serde_json::from_value(serde_json::to_value(error).unwrap()).unwrap();
        assert_eq!(read, *error);
    }
    let receipt = hub.call("ask", json!({"sum": 5})).thread("t1").until_approval().await;
    let toolhub::CallReceipt::AwaitingApproval { call, approval, .. } = receipt else { panic!("no approval pending") };
    let record = hub.call_record(&tenant, call).await.unwrap().unwrap();
    check::<CallRecord>(&record);
    check::<Approval>(&hub.approval(&tenant, approval).await.unwrap().unwrap());
    let answer = Answer::new(ApprovalOutcome::ProceedAlwaysServer, Caller::new("boss").unwrap());
    check::<Approval>(&hub.resolve_approval(&tenant, approval, answer).await.unwrap());
    let page: CallPage = hub.calls(&tenant, &CallQuery::default()).await.unwrap();
    assert!(page.calls.len() >= 5);
    check(&page);
    let grants = hub.grants(&tenant).await.unwrap();
    assert_eq!(grants.len(), 1);
    grants.iter().for_each(check::<Grant>);
    check::<JournalStats>(&hub.journal_stats());
    check::<InstanceInfo>(&hub.thread_context(&tenant, &thread).info("line").unwrap());
    check::<ThreadInfo>(&hub.thread(&tenant, &thread).await.unwrap().unwrap());
}

#[tokio::test]
async fn tools_and_what_is_known_of_them_are_as_their_schemas_say() {
    let hub = hub().await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    for _ in 0..3 {
        hub.call("sick", json!({})).thread("t1").await.assert_error(ErrorKind::UpstreamError);
    }
    hub.set_tool_status("count", ToolStatus::Maintenance, Some("paint".into()), None, StatusScope::Shared)
        .await
        .unwrap();
    for tool in hub.list(&ToolFilter::default()) {
        check::<Definition>(&tool.definition);
        check(tool.limits());
        check::<Explanation>(&hub.explain(&tool.definition.name, &tenant, &thread).await.unwrap());
        check::<ToolStatusInfo>(&hub.tool_status(&tool.definition.name, StatusScope::Shared).await.unwrap());
        check::<ToolStats>(&hub.tool_stats(&tool.definition.name).unwrap());
        let hour = Duration::from_secs(3600);
        check::<RecentStats>(&hub.recent_stats(&tool.definition.name, hour).await.unwrap().unwrap());
    }
    check(&Rule::ask("a*").when("/sum", "^9").reason("much"));
    check(&StatusSettings::default());
    check::<SnapshotRestore>(&hub.deserialize_tool_states(&tenant, &thread, "nonsense").await.unwrap());
    let changed: ChangeSummary = hub.apply(HubChange::replacing_policies().remove("sick")).await.unwrap();
    check(&changed);
}

#[tokio::test]
async fn what_tools_remember_is_as_its_schemas_say() {
    let hub = hub().await;
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t1").unwrap());
    hub.call("count", json!({"token": "x"})).thread("t1").await.assert_success();
    let (state, context) = (hub.state(), hub.state().context(&StateName::new("notes").unwrap(), &thread));
    let data = json!({"a": 1}).as_object().unwrap().clone();
    state.set_state(&tenant, &context, StateKind::Business, data.clone().into(), None).await.unwrap();
    let ttl = Some(Duration::from_secs(60));
    state.set_state(&tenant, &context, StateKind::Cache, data.into(), ttl).await.unwrap();
    for kind in [StateKind::Business, StateKind::Cache] {
        check::<StateEntry>(&state.get_state(&tenant, &context, kind).await.unwrap().unwrap());
    }
    let counted = state.context(&StateName::new("count").unwrap(), &thread);
    check::<StateEntry>(&state.get_state(&tenant, &counted, StateKind::Session).await.unwrap().unwrap());
    for context in [&context, &counted] {
        check::<ContextInfo>(&state.get_context_info(&tenant, context).await.unwrap().unwrap());
        let history = state.history(&tenant, context, 100).await.unwrap();
        assert!(!history.is_empty());
        history.iter().for_each(check::<HistoryEntry>);
        let versions = state.versions(&tenant, context).await.unwrap();
        assert!(!versions.is_empty());
        versions.iter().for_each(check::<StateVersion>);
    }
    check::<ContextPage>(&state.list_contexts(&tenant, &ContextFilter::default(), None).await.unwrap());
    check::<StateStats>(&state.stats(&tenant).await.unwrap());
}

#[tokio::test]
async fn events_are_as_their_schema_says() {
    let hub = hub().await;
    let mut events = EventRecorder::new(&hub);
    let tenant = Tenant::default();
    for tool in ["count", "sick", "sick", "sick", "line", "nobody"] {
        hub.call(tool, json!({})).thread("t1").await;
    }
    hub.call("ask", json!({})).no_wait().await;
    assert!(!hub.export(Format::Mcp).is_empty());
    let changed = hub.apply(HubChange::replacing_policies().remove("sick").put(scripted("new", []).0)).await.unwrap();
    hub.emit_config_reloaded(&changed, vec!["server.port".into()]);
    let t1 = ThreadId::new("t1").unwrap();
    let (run_id, id) = (RunId::mint(hub.now()), CallId::mint(hub.now()));
    for news in [
        EventKind::RunStarted { run_id, agent: "default".into() },
        EventKind::MessageDelta { run_id, text: "It is".into(), again: false },
        EventKind::MessageDelta { run_id, text: "Let me".into(), again: true },
        EventKind::MessageCompleted {
            run_id,
            role: "assistant".into(),
            content: "Let me see.".into(),
            calls: vec![MessageCall { id, tool: "count".into(), arguments: json!({"password": "x"}) }],
        },
        EventKind::RunCompleted { run_id, status: "completed".into(), steps: 2, stop: Some("length".into()) },
        EventKind::RunCompleted { run_id, status: "cancelled".into(), steps: 2, stop: None },
        EventKind::RunFailed { run_id, steps: 1, code: "model_unreachable".into(), message: "no answer".into() },
    ] {
        hub.publish(&tenant, &t1, news);
    }
    hub.call("count", json!({})).thread("t1").run(run_id).await;
    hub.call("ask", json!({})).run(run_id).no_wait().await;
    hub.delete_thread(&tenant, &t1).await.unwrap();
    hub.clear().await;
    let published: Vec<Arc<Event>> = events.events().to_vec();
    let names: BTreeSet<_> = published.iter().map(|event| event.name()).collect();
    assert!(names.len() >= 18, "{names:?}");
    published.iter().for_each(|event| check::<Event>(event));
    let reset = serde_json::to_value(EventKind::StreamReset).unwrap();
    assert_eq!(reset, Value::Null);
    let page: EventPage = hub.events_since(&tenant, 0).await.unwrap();
    assert!(!page.events.is_empty());
    check(&page);
    // A wrong name and an additional member are detected.
    let mut wrong = serde_json::to_value(&*published[0]).unwrap();
    let validator = jsonschema::draft202012::new(&closed_schema::<Event>()).unwrap();
    assert!(validator.is_valid(&wrong));
    wrong["secret"] = json!(1);
    assert!(!validator.is_valid(&wrong));
}
