//! Arguments with secret names reach the tool and nothing else.

use std::sync::{Arc, Mutex};

use toolhub::{
    Answer, Approval, ApprovalError, ApprovalOutcome, CallQuery, CallReceipt,
    backend::{Backend, Memory, Scan, Scope, Table},
    clock::Timestamp,
    dynamic,
    prelude::*,
    testing::{AssertOutcome, EventRecorder, scripted},
};
use toolhub_agent::{AgentBuilder, AgentService};

use crate::agents::{ScriptedModel, calls_reply, text_reply};

const SECRET: &str = "hunter2";

/// Everything the store has in these tables, as text.
async fn dump_tables(store: &Memory, tables: impl IntoIterator<Item = Table>) -> String {
    let mut all = String::new();
    for table in tables {
        let page = store.scan(Scan::new(table, Scope::All).limit(1_000), Timestamp::default()).await.unwrap();
        for (key, row) in page.rows {
            all.push_str(&format!("{table} {} {}\n", key.id, String::from_utf8_lossy(&row.value)));
        }
    }
    all
}

#[derive(Default, Serialize, Deserialize)]
struct Count(u64);
impl ToolState for Count {
    const NAME: &'static str = "count";
}

#[derive(Deserialize, JsonSchema)]
struct Login {
    #[serde(rename = "api_key")]
    key: String,
    #[serde(rename = "Pin")]
    pin: String,
}

async fn login(login: Login, mut count: State<Count>) -> Result<bool, ToolError> {
    count.0 += 1;
    Ok(login.key == SECRET && login.pin == SECRET)
}

#[tokio::test]
async fn secrets_reach_the_tool_and_neither_records_nor_listeners() {
    let store = Arc::new(Memory::new());
    let (look, looked) = scripted("look", []);
    let (ask, script) = scripted("ask", []);
    let tools = [tool("login", login), look.read_only(), ask.confirm()];
    let builder = ToolHub::builder().shared_store(store.clone()).redact(["*pin*"]);
    let hub = builder.tools(tools).build().await.unwrap();
    let mut events = EventRecorder::new(&hub);
    let tenant = Tenant::default();
    let secrets = json!({"api_key": SECRET, "Pin": SECRET, "list": [{"accessToken": SECRET}], "city": "Ulm"});
    let plain = json!({"api_key": SECRET, "Pin": SECRET});

    let done = hub.call("login", plain.clone()).thread("t1").idempotency_key("k").await;
    assert_eq!(done.assert_success(), &json!(true));
    assert!(hub.call("login", plain).thread("t1").idempotency_key("k").await.replayed, "a key matches its arguments");
    hub.call("look", secrets.clone()).await.assert_success();
    let wrong = hub.call("login", json!({"api_key": {"is": SECRET}, "Pin": SECRET})).await;
    wrong.assert_error(ErrorKind::ArgumentsInvalid);
    let CallReceipt::AwaitingApproval { call, approval, .. } =
        hub.call("ask", secrets.clone()).thread("t1").until_approval().await
    else {
        panic!("no approval pending")
    };
    // While it may still run its record must have them, sealed; readers of the record see none.
    let open = dump_tables(&store, Table::ALL).await;
    assert!(open.contains("sealed:") && !open.contains(SECRET), "{open}");
    let shown = hub.call_record(&tenant, call).await.unwrap().unwrap().arguments;
    assert_eq!(shown["city"], "Ulm");
    let question = hub.approval(&tenant, approval).await.unwrap().unwrap();
    assert_eq!(question.arguments, shown);
    assert!(!shown.to_string().contains(SECRET), "{shown}");
    let answer = Answer::new(ApprovalOutcome::ProceedOnce, Caller::new("boss").unwrap());
    hub.resolve_approval(&tenant, approval, answer).await.unwrap();
    while hub.call_record(&tenant, call).await.unwrap().unwrap().outcome.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!((looked.recorded_arguments(), script.recorded_arguments()), (vec![secrets.clone()], vec![secrets]));

    let calls = hub.calls(&tenant, &CallQuery::default()).await.unwrap().calls;
    assert_eq!(calls.len(), 3);
    hub.events_since(&tenant, 0).await.unwrap();
    let everything = dump_tables(&store, Table::ALL).await;
    assert!(everything.contains("[redacted]") && everything.contains("Ulm"));
    assert!(!everything.contains(SECRET), "{everything}");
    let published: Vec<String> = events.events().iter().map(|event| serde_json::to_string(&**event).unwrap()).collect();
    assert!(published.len() > 8 && !published.join("\n").contains(SECRET), "{published:#?}");
}

/// An odd number, which only its deserializer knows.
struct Odd;

impl<'de> Deserialize<'de> for Odd {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Err(serde::de::Error::custom(format!("`{text}` is no odd number")))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum Pay {
    Card {
        #[schemars(with = "String")]
        card_token: Odd,
    },
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Refused {
    #[schemars(with = "String")]
    api_key: Odd,
}

#[tokio::test]
async fn no_message_quotes_a_secret_that_fails_validation() {
    let schema = json!({
        "type": "object",
        "properties": {
            "api_key": {"type": "string", "pattern": "^key-"}, "pin_token": {"type": "integer", "minimum": 1000},
            "password": {"enum": ["hunter1"]}, "secret": {"type": "object", "additionalProperties": {"type": "integer"}},
            "my_token": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
            "city": {"type": "string"},
        },
    });
    let pay = dynamic("pay", schema, |_: Value, _: CallContext| async { Ok::<_, ToolError>(json!(null)) });
    let typed = tool("typed", async |_: Refused| Ok::<_, ToolError>(()));
    let untagged = tool("untagged", async |_: Pay| Ok::<_, ToolError>(()));
    let hub = ToolHub::builder().tools([pay, typed, untagged]).build().await.unwrap();
    let mut events = EventRecorder::new(&hub);
    for (tool, arguments, expected) in [
        ("pay", json!({"api_key": SECRET}), "api_key: must match the pattern ^key-"),
        ("pay", json!({"api_key": [SECRET]}), "api_key: expected a string"),
        ("pay", json!({"pin_token": 27}), "pin_token: must be at least 1000"),
        ("pay", json!({"password": SECRET}), "password: must be \"hunter1\""),
        ("pay", json!({"secret": {SECRET: SECRET}}), "secret: does not fit its schema"),
        ("pay", json!({"my_token": SECRET}), "my_token: expected integer or boolean"),
        ("typed", json!({"api_key": SECRET}), "api_key: is refused by the tool"),
        ("untagged", json!({"card_token": SECRET}), "arguments"),
    ] {
        let refused = hub.call(tool, arguments).await;
        refused.assert_error(ErrorKind::ArgumentsInvalid);
        let error = refused.error.clone().unwrap();
        let text = format!("{error:?} {}", refused.model_text());
        assert!(error.model.contains(expected), "{text}");
        assert!(!text.contains(SECRET) && !text.contains("27"), "{text}");
    }
    let open = hub.call("pay", json!({"city": 7, "api_key": "key-1"})).await;
    assert!(open.model_text().contains("city: expected a string, got the number 7"), "{open:?}");
    let published: Vec<String> = events.events().iter().map(|event| serde_json::to_string(&**event).unwrap()).collect();
    assert!(!published.join("\n").contains(SECRET), "{published:#?}");
}

#[tokio::test]
async fn a_secret_that_a_person_was_not_shown_and_left_alone_is_the_callers_own() {
    let (ask, script) = scripted("ask", []);
    let hub = ToolHub::builder().store(Memory::new()).tool(ask.confirm()).build().await.unwrap();
    let (tenant, boss) = (Tenant::default(), || Caller::new("boss").unwrap());
    let given = json!({"api_key": SECRET, "qty": 2});
    let CallReceipt::AwaitingApproval { call, approval, .. } = hub.call("ask", given).until_approval().await else {
        panic!("no approval pending")
    };
    let mut edited = hub.approval(&tenant, approval).await.unwrap().unwrap().arguments;
    assert_eq!(edited["api_key"], "[redacted]");
    edited["qty"] = 1.into();
    let mut moved = edited.clone();
    moved["other_key"] = json!({"api_key": "[redacted]"});
    let refused = hub.resolve_approval(&tenant, approval, Answer::edited(moved, boss())).await;
    assert!(matches!(refused, Err(ApprovalError::Answer(_))), "{refused:?}");
    hub.resolve_approval(&tenant, approval, Answer::edited(edited, boss())).await.unwrap();
    while hub.call_record(&tenant, call).await.unwrap().unwrap().outcome.is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(script.recorded_arguments(), [json!({"api_key": SECRET, "qty": 1})]);
    let record = hub.call_record(&tenant, call).await.unwrap().unwrap();
    assert_eq!(record.arguments, json!({"api_key": "[redacted]", "qty": 1}));
    assert!(!record.outcome.unwrap().model_text().contains(SECRET));
}

/// A tool whose secrets are a number and a text with a pattern, and the edit of a pending call of it.
async fn edit_approval(change: impl FnOnce(&mut Value), waits: bool) -> (Result<Approval, ApprovalError>, Vec<Value>) {
    let schema = json!({
        "type": "object",
        "properties": {
            "pin_token": {"type": "integer", "minimum": 1000},
            "api_key": {"type": "string", "pattern": "^key-[0-9]+$"},
            "qty": {"type": "integer"},
        },
        "required": ["pin_token", "api_key", "qty"],
        "if": {"properties": {"qty": {"minimum": 10}}},
        "then": {"properties": {"pin_token": {"minimum": 9000}}},
    });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let pay = dynamic("pay", schema, move |given: Value, _: CallContext| {
        notes.lock().unwrap().push(given);
        async { Ok::<_, ToolError>(json!("paid")) }
    });
    let hub = ToolHub::builder().store(Memory::new()).tool(pay.confirm()).build().await.unwrap();
    let tenant = Tenant::default();
    let given = json!({"pin_token": 4321, "api_key": "key-4321", "qty": 2});
    let call = || hub.call("pay", given.clone());
    let (call, approval) = if waits {
        let CallReceipt::AwaitingApproval { call, approval, .. } = call().until_approval().await else {
            panic!("no approval pending")
        };
        (Some(call), approval)
    } else {
        (None, call().no_wait().await.error.unwrap().approval().unwrap())
    };
    let mut arguments = hub.approval(&tenant, approval).await.unwrap().unwrap().arguments;
    assert_eq!(arguments, json!({"pin_token": "[redacted]", "api_key": "[redacted]", "qty": 2}));
    change(&mut arguments);
    let answered = hub.resolve_approval(&tenant, approval, Answer::edited(arguments, Caller::default())).await;
    if answered.is_ok() {
        match call {
            Some(call) => drop(hub.wait_for_call(&tenant, call).await.unwrap()),
            None => drop(hub.call("pay", given.clone()).no_wait().await),
        }
    }
    let seen = seen.lock().unwrap().clone();
    (answered, seen)
}

#[tokio::test]
async fn a_secret_of_any_form_need_not_be_typed_again_by_a_person_who_edits_something_else() {
    for waits in [true, false] {
        let (answered, seen) = edit_approval(|arguments| arguments["qty"] = 3.into(), waits).await;
        assert!(answered.is_ok(), "{answered:?}");
        assert_eq!(seen, [json!({"pin_token": 4321, "api_key": "key-4321", "qty": 3})]);
        let (answered, _) = edit_approval(|arguments| arguments["qty"] = 1.5.into(), waits).await;
        let Err(ApprovalError::Arguments { problems, .. }) = answered else { panic!("{answered:?}") };
        assert_eq!(problems.iter().map(|problem| problem.pointer.as_str()).collect::<Vec<_>>(), ["/qty"]);
    }
}

#[tokio::test]
async fn what_does_not_fit_with_a_secret_is_said_without_the_secret() {
    let (answered, seen) = edit_approval(|arguments| arguments["qty"] = 10.into(), true).await;
    let Err(ApprovalError::Arguments { problems, .. }) = answered else { panic!("{answered:?}") };
    assert!(!problems.is_empty() && !format!("{problems:?}").contains("4321"), "{problems:?}");
    assert_eq!(seen, [json!(null); 0]);
}

#[tokio::test]
async fn what_is_wrong_with_a_secret_that_a_person_wrote_is_told_to_that_person() {
    for waits in [true, false] {
        let (answered, _) = edit_approval(|arguments| arguments["api_key"] = "mine".into(), waits).await;
        let Err(ApprovalError::Arguments { problems, .. }) = answered else { panic!("{answered:?}") };
        assert_eq!(problems.iter().map(|problem| problem.pointer.as_str()).collect::<Vec<_>>(), ["/api_key"]);
        assert!(problems[0].detail.contains("^key-[0-9]+$"), "{problems:?}");
    }
}

#[tokio::test]
async fn a_rule_about_a_secret_is_held_against_the_secret_and_not_against_what_is_shown_of_it() {
    // The redacted value does not begin with a letter.
    let only_letters = || Rule::deny("ask").when("/api_key", "^[^a-z]");
    let tenant = Tenant::default();
    for waits in [true, false] {
        let (ask, script) = scripted("ask", []);
        let builder = ToolHub::builder().store(Memory::new()).rule(only_letters());
        let hub = builder.tool(ask.confirm()).build().await.unwrap();
        let call = || hub.call("ask", json!({"api_key": SECRET}));
        let (call_id, approval) = if waits {
            let CallReceipt::AwaitingApproval { call, approval, .. } = call().until_approval().await else {
                panic!("no approval pending")
            };
            (Some(call), approval)
        } else {
            (None, call().no_wait().await.error.unwrap().approval().unwrap())
        };
        let yes = Answer::new(ApprovalOutcome::ProceedOnce, Caller::default());
        hub.resolve_approval(&tenant, approval, yes).await.unwrap();
        match call_id {
            Some(call) => drop(hub.wait_for_call(&tenant, call).await.unwrap()),
            None => drop(call().no_wait().await.assert_success()),
        }
        assert_eq!(script.recorded_arguments(), [json!({"api_key": SECRET})]);
    }
}

#[tokio::test]
async fn secrets_that_a_person_put_in_reach_the_tool_and_nobody_else() {
    let store = Arc::new(Memory::new());
    let (ask, script) = scripted("ask", []);
    let hub = ToolHub::builder().shared_store(store.clone()).tool(ask.confirm()).build().await.unwrap();
    let tenant = Tenant::default();
    let CallReceipt::AwaitingApproval { call, approval, .. } = hub.call("ask", json!({})).until_approval().await else {
        panic!("no approval pending")
    };
    let edited = json!({"api_key": SECRET, "city": "Ulm"});
    let answer = Answer::edited(edited.clone(), Caller::new("boss").unwrap());
    hub.resolve_approval(&tenant, approval, answer).await.unwrap();
    let record = loop {
        let record = hub.call_record(&tenant, call).await.unwrap().unwrap();
        if record.outcome.is_some() {
            break serde_json::to_string(&record).unwrap();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(script.recorded_arguments(), [edited]);
    assert!(record.contains("A person changed the arguments") && record.contains("Ulm"), "{record}");
    assert!(!record.contains(SECRET), "{record}");
    let everything = dump_tables(&store, Table::ALL).await;
    assert!(!everything.contains(SECRET), "{everything}");
}

#[tokio::test]
async fn a_question_that_nobody_waits_for_keeps_no_secrets_and_can_be_answered() {
    let store = Arc::new(Memory::new());
    let (ask, script) = scripted("ask", []);
    let hub = ToolHub::builder().shared_store(store.clone()).tool(ask.confirm()).build().await.unwrap();
    let (tenant, secrets) = (Tenant::default(), json!({"api_key": SECRET, "city": "Ulm"}));
    let refused = hub.call("ask", secrets.clone()).thread("t").no_wait().await;
    let approval = refused.error.unwrap().approval().unwrap();
    let everything = dump_tables(&store, Table::ALL).await;
    assert!(everything.contains("Ulm") && !everything.contains(SECRET), "{everything}");
    let answer = Answer::new(ApprovalOutcome::ProceedOnce, Caller::new("boss").unwrap());
    hub.resolve_approval(&tenant, approval, answer).await.unwrap();
    hub.call("ask", json!({"api_key": "another", "city": "Ulm"}))
        .thread("t")
        .no_wait()
        .await
        .assert_error(ErrorKind::ApprovalRequired);
    hub.call("ask", secrets.clone()).thread("t").no_wait().await.assert_success();
    assert_eq!(script.recorded_arguments(), [secrets]);
}

#[tokio::test]
async fn a_name_that_is_no_pattern_is_refused() {
    let error = ToolHub::builder().redact([""]).build().await.unwrap_err();
    assert!(error.to_string().contains("secrets"), "{error}");
}

#[tokio::test]
async fn no_message_shows_malformed_arguments_that_name_a_secret() {
    let store = Arc::new(Memory::new());
    let (look, looked) = scripted("look", []);
    let hub = ToolHub::builder().shared_store(store.clone()).tool(look).build().await.unwrap();
    let mut broken = calls_reply([("look", json!({}))]).unwrap();
    broken.calls[0].malformed = Some(format!(r#"{{"api_key": "{SECRET}"#));
    let mut harmless = calls_reply([("look", json!({}))]).unwrap();
    harmless.calls[0].malformed = Some(r#"{"city": "Ulm"#.into());
    let model = ScriptedModel::new([Ok(broken), Ok(harmless), text_reply("Sorry.")]);
    let agent = AgentBuilder::new(model.clone()).build(&hub).await.unwrap();
    agent.invoke("Look").await.unwrap();
    assert_eq!(looked.recorded_arguments(), [json!(null); 0]);
    let stored = dump_tables(&store, Table::ALL).await;
    assert!(stored.contains("Ulm") && !stored.contains(SECRET), "{stored}");
    let messages = AgentService::new(&hub).messages(&Tenant::default(), agent.thread(), 10, None).await.unwrap();
    let shown = serde_json::to_string(&messages).unwrap();
    assert!(shown.contains("They began: {") && shown.contains("They began: [redacted]"), "{shown}");
    assert!(!shown.contains(SECRET) && !shown.contains("sealed:"), "{shown}");
}

#[tokio::test]
async fn whoever_looks_at_a_conversation_is_not_shown_what_its_calls_were_given_in_secret() {
    let (look, looked) = scripted("look", []);
    let hub = ToolHub::builder().tool(look.read_only()).redact(["*pin*"]).build().await.unwrap();
    let secrets = json!({"api_key": SECRET, "Pin": SECRET, "city": "Ulm"});
    let model = ScriptedModel::new([calls_reply([("look", secrets.clone())]), text_reply("Seen.")]);
    let agent = AgentBuilder::new(model.clone()).build(&hub).await.unwrap();
    agent.invoke("Look").await.unwrap();
    let service = AgentService::new(&hub);
    let shown = service.messages(&Tenant::default(), agent.thread(), 10, None).await.unwrap();
    let shown = serde_json::to_string(&shown).unwrap();
    assert!(!shown.contains(SECRET) && shown.contains("[redacted]") && shown.contains("Ulm"), "{shown}");
    let all = serde_json::to_string(&service.export(&Tenant::default(), agent.thread()).await.unwrap()).unwrap();
    assert!(!all.contains(SECRET), "{all}");
    // The tool got the secret, and the model gets its result.
    assert_eq!(looked.recorded_arguments(), [secrets]);
    assert!(format!("{:?}", model.prompts()[1].messages).contains(SECRET));
}
