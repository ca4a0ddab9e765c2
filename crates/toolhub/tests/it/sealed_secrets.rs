//! Secrets that a record must hold for a time lie sealed in the store, and are lost with its key file alone.

use std::{fs, os::unix::fs::PermissionsExt as _, sync::Arc};

use toolhub::{
    Answer, ApprovalOutcome, ApprovalState, CallRequest,
    ids::ThreadId,
    prelude::*,
    testing::{AssertOutcome, ScriptedTool, scripted},
};
use toolhub_agent::{AgentDefinition, AgentService};

use crate::{
    accepted_calls::{expect_waiting, record, resolve, wait_for_end},
    agents::{ScriptedModel, calls_reply, text_reply},
    async_call_restarts::{TempStore, simulate_process},
};

const SECRET: &str = "hunter2-of-the-caller";

fn pay() -> (ToolBuilder, ScriptedTool) {
    let (tool, script) = scripted("pay", []);
    (tool.confirm(), script)
}

/// What may happen to the key file while no process runs.
#[derive(Debug, Clone, Copy)]
enum KeyFate {
    Kept,
    Lost,
    Damaged,
    Replaced,
}

impl TempStore {
    fn suffer(&self, fate: KeyFate) {
        let file = self.path("store.db.key");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        match fate {
            KeyFate::Kept => {}
            KeyFate::Lost => fs::remove_file(file).unwrap(),
            KeyFate::Damaged => fs::write(file, b"half").unwrap(),
            KeyFate::Replaced => fs::write(file, [7; 32]).unwrap(),
        }
    }

    /// Whether a file of the store contains the text.
    fn contains(&self, text: &str) -> bool {
        let files = fs::read_dir(self.path("")).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
        files.into_iter().any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
    }
}

#[test]
fn a_waiting_call_goes_on_with_its_secrets_as_long_as_the_store_has_its_key() {
    for fate in [KeyFate::Kept, KeyFate::Lost, KeyFate::Damaged, KeyFate::Replaced] {
        let disk = TempStore::new();
        let secrets = json!({"api_key": SECRET, "list": [{"password": SECRET}], "city": "Ulm"});
        let (secret_call, plain_call) = simulate_process(async {
            let hub = disk.hub([pay().0]).await;
            let wait = async |request: CallRequest<'_>| expect_waiting(request.until_approval().await);
            (wait(hub.call("pay", secrets.clone())).await, wait(hub.call("pay", json!({"city": "Ulm"}))).await)
        });
        assert!(disk.contains("Ulm") && !disk.contains(SECRET));
        disk.suffer(fate);
        simulate_process(async {
            let (tool, script) = pay();
            let hub = disk.hub([tool]).await;
            resolve(&hub, plain_call.1, ApprovalOutcome::ProceedOnce).await;
            wait_for_end(&hub, plain_call.0).await.outcome.unwrap().assert_success();
            if let KeyFate::Kept = fate {
                let shown = record(&hub, secret_call.0).await.arguments;
                assert_eq!(shown["api_key"], "[redacted]");
                resolve(&hub, secret_call.1, ApprovalOutcome::ProceedOnce).await;
                wait_for_end(&hub, secret_call.0).await.outcome.unwrap().assert_success();
                assert_eq!(script.recorded_arguments(), [json!({"city": "Ulm"}), secrets.clone()]);
                return;
            }
            let ended = wait_for_end(&hub, secret_call.0).await;
            let outcome = ended.outcome.unwrap();
            outcome.assert_error(ErrorKind::Interrupted);
            assert_eq!(outcome.effect, Effect::None, "{fate:?}");
            let reason = outcome.error.unwrap().operator;
            assert!(reason.contains("key file"), "{reason}");
            assert_eq!((&ended.arguments["api_key"], &ended.arguments["city"]), (&json!("[redacted]"), &json!("Ulm")));
            assert_eq!(script.recorded_arguments(), [json!({"city": "Ulm"})]);
        });
        assert!(!disk.contains(SECRET), "{fate:?}");
    }
}

#[test]
fn a_secret_that_an_approver_wrote_is_sealed_until_a_call_uses_it() {
    for fate in [KeyFate::Kept, KeyFate::Lost] {
        let (disk, given) = (TempStore::new(), json!({"city": "Ulm"}));
        let edited = json!({"city": "Ulm", "api_key": SECRET});
        let approval = simulate_process(async {
            let hub = disk.hub([pay().0]).await;
            let refused = hub.call("pay", given.clone()).thread("t").no_wait().await;
            let approval = refused.error.unwrap().approval().unwrap();
            let answer = Answer::edited(edited.clone(), Caller::default());
            hub.resolve_approval(&Tenant::default(), approval, answer).await.unwrap();
            approval
        });
        assert!(!disk.contains(SECRET));
        disk.suffer(fate);
        simulate_process(async {
            let (tool, script) = pay();
            let hub = disk.hub([tool]).await;
            let found = hub.approval(&Tenant::default(), approval).await.unwrap().unwrap();
            let again = hub.call("pay", given.clone()).thread("t").no_wait().await;
            if let KeyFate::Kept = fate {
                assert_eq!(found.state, ApprovalState::Approved);
                again.assert_success();
                assert_eq!(script.recorded_arguments(), std::slice::from_ref(&edited));
            } else {
                assert_ne!(found.state, ApprovalState::Approved);
                again.assert_error(ErrorKind::ApprovalRequired);
            }
        });
    }
}

#[test]
fn a_conversation_keeps_what_the_model_gave_in_secret_sealed() {
    for fate in [KeyFate::Kept, KeyFate::Lost] {
        let disk = TempStore::new();
        let (tenant, thread) = (Tenant::default(), ThreadId::new("t").unwrap());
        let define = |hub: &ToolHub, model: &Arc<ScriptedModel>| {
            let service = AgentService::new(hub);
            service.define("default", AgentDefinition::new(model.clone()));
            service
        };
        let secrets = json!({"api_key": SECRET, "city": "Ulm"});
        simulate_process(async {
            let (look, looked) = scripted("look", []);
            let hub = disk.hub([look]).await;
            let model = ScriptedModel::new([calls_reply([("look", secrets.clone())]), text_reply("Seen.")]);
            let service = define(&hub, &model);
            let run = service.send(&tenant, &thread, "Look").await.unwrap().id();
            while !service.run(&tenant, run).await.unwrap().unwrap().status.is_end() {
                tokio::task::yield_now().await;
            }
            assert_eq!(looked.recorded_arguments(), std::slice::from_ref(&secrets));
            assert!(format!("{:?}", model.prompts()[1].messages).contains(SECRET));
        });
        assert!(disk.contains("Ulm") && !disk.contains(SECRET));
        disk.suffer(fate);
        simulate_process(async {
            let hub = disk.hub([scripted("look", []).0]).await;
            let model = ScriptedModel::new([text_reply("Yes.")]);
            let service = define(&hub, &model);
            let run = service.send(&tenant, &thread, "Still there?").await.unwrap().id();
            while !service.run(&tenant, run).await.unwrap().unwrap().status.is_end() {
                tokio::task::yield_now().await;
            }
            let seen = format!("{:?}", model.prompts()[0].messages);
            let expected = if let KeyFate::Kept = fate { SECRET } else { "[redacted]" };
            assert!(seen.contains(expected) && !seen.contains("sealed:"), "{seen}");
            let shown = serde_json::to_string(&service.messages(&tenant, &thread, 10, None).await.unwrap()).unwrap();
            assert!(shown.contains("[redacted]") && !shown.contains("sealed:") && !shown.contains(SECRET), "{shown}");
        });
    }
}

#[test]
fn a_planned_call_of_a_run_is_not_made_without_its_secrets() {
    let disk = TempStore::new();
    let (tenant, thread) = (Tenant::default(), ThreadId::new("t").unwrap());
    let start = |hub: &ToolHub, model: Arc<ScriptedModel>| {
        let service = AgentService::new(hub);
        service.define("default", AgentDefinition::new(model));
        service
    };
    let run = simulate_process(async {
        let hub = disk.hub([pay().0]).await;
        let model = ScriptedModel::new([calls_reply([("pay", json!({"api_key": SECRET}))])]);
        let service = start(&hub, model);
        let run = service.send(&tenant, &thread, "Pay").await.unwrap().id();
        while service.run(&tenant, run).await.unwrap().unwrap().calls.iter().all(|call| call.approval.is_none()) {
            tokio::task::yield_now().await;
        }
        run
    });
    assert!(!disk.contains(SECRET));
    disk.suffer(KeyFate::Lost);
    simulate_process(async {
        let (tool, script) = pay();
        let hub = disk.hub([tool]).await;
        let model = ScriptedModel::new([text_reply("Not paid.")]);
        let service = start(&hub, model.clone());
        service.resume().await.unwrap();
        while !service.run(&tenant, run).await.unwrap().unwrap().status.is_end() {
            tokio::task::yield_now().await;
        }
        assert_eq!(script.recorded_arguments(), [json!(null); 0]);
        let seen = format!("{:?}", model.prompts()[0].messages);
        assert!(seen.contains("is_error: true") && seen.contains("[redacted]"), "{seen}");
    });
}
