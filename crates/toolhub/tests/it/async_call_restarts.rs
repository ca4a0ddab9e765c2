//! Accepted calls outlive their process, and a hub that shuts down loses none of them.

use std::{future::Future, path::PathBuf, time::Duration};

use futures_util::poll;
use toolhub::{
    ApprovalOutcome, ApprovalState, CallReceipt, Cancellation, Rule, Sqlite, Status,
    ids::Tenant,
    prelude::*,
    sqlite::Options,
    testing::{AssertOutcome, ScriptStep, ScriptedTool, scripted},
};
use toolhub_testkit::TempFolder;

use crate::{
    accepted_calls::{expect_waiting, record, resolve, wait_for_end},
    gated_tool::{GatedTool, wait_until},
};

/// A store on disk, deleted with the test.
pub(crate) struct TempStore(TempFolder);

impl TempStore {
    pub(crate) fn new() -> Self {
        Self(TempFolder::new())
    }

    /// The path of a file in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn open(&self) -> Sqlite {
        Sqlite::open(self.0.join("store.db"), Options::default()).unwrap()
    }

    pub(crate) async fn hub(&self, tools: impl IntoIterator<Item = ToolBuilder>) -> ToolHub {
        ToolHub::builder().store(self.open()).tools(tools).build().await.unwrap()
    }
}

/// Simulates one process: at its end, everything that still runs stops where it is.
pub(crate) fn simulate_process<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let done = runtime.block_on(work);
    runtime.shutdown_timeout(Duration::from_secs(10));
    done
}

fn pay() -> (ToolBuilder, ScriptedTool) {
    let (tool, script) = scripted("pay", [ScriptStep::Return(json!("paid"))]);
    (tool.confirm(), script)
}

#[test]
fn a_call_that_waits_for_a_person_waits_on_after_a_restart_and_runs_after_the_yes() {
    type RequestModifier = fn(toolhub::CallRequest<'_>) -> toolhub::CallRequest<'_>;
    let ways: [(&str, RequestModifier); 3] = [
        ("thread", |call| call.thread("t1")),
        ("no-thread", |call| call),
        ("keyed", |call| call.thread("t1").idempotency_key("k")),
    ];
    for (name, prepare) in ways {
        for detached in [false, true] {
            let disk = TempStore::new();
            let (call, approval) = simulate_process(async {
                let hub = disk.hub([pay().0]).await;
                let request = prepare(hub.call("pay", json!({"sum": 5})));
                if detached {
                    expect_waiting(request.detached().start().accepted().await)
                } else {
                    expect_waiting(request.until_approval().await)
                }
            });
            // A second crash while it waits changes nothing.
            simulate_process(async {
                let hub = disk.hub([pay().0]).await;
                let open = record(&hub, call).await;
                assert_eq!((open.status, open.approval), (Status::AwaitingApproval, Some(approval)), "{name}");
            });
            simulate_process(async {
                let (tool, script) = pay();
                let hub = disk.hub([tool]).await;
                assert_eq!(hub.running_calls(), 1, "the call waits without a caller");
                resolve(&hub, approval, ApprovalOutcome::ProceedOnce).await;
                let closed = wait_for_end(&hub, call).await;
                assert_eq!((closed.status, closed.approval), (Status::Success, Some(approval)), "{name}");
                assert_eq!((closed.arguments, closed.outcome.unwrap().output), (json!({"sum": 5}), json!("paid")));
                assert_eq!(script.recorded_arguments().len(), 1);
                if name == "keyed" {
                    assert!(prepare(hub.call("pay", json!({"sum": 5}))).await.replayed);
                }
            });
        }
    }
}

#[test]
fn a_thread_counts_a_call_once_however_many_processes_it_waits_in() {
    let disk = TempStore::new();
    let (thread, tenant) = (ThreadId::new("t1").unwrap(), Tenant::default());
    let (call, approval) = simulate_process(async {
        let hub = disk.hub([pay().0]).await;
        let waiting = expect_waiting(hub.call("pay", json!({})).thread("t1").until_approval().await);
        hub.shutdown(Duration::from_secs(5)).await;
        waiting
    });
    for _ in 0..3 {
        simulate_process(async {
            let hub = disk.hub([pay().0]).await;
            assert_eq!(hub.running_calls(), 1);
            hub.shutdown(Duration::from_secs(5)).await;
        });
    }
    simulate_process(async {
        let hub = disk.hub([pay().0]).await;
        resolve(&hub, approval, ApprovalOutcome::ProceedOnce).await;
        wait_for_end(&hub, call).await;
        assert_eq!(hub.thread(&tenant, &thread).await.unwrap().unwrap().calls, 1);
        hub.open_session("pay", &tenant, &thread).await.unwrap();
        assert_eq!(hub.thread(&tenant, &thread).await.unwrap().unwrap().calls, 1, "recovery does not count as a call");
    });
}

#[test]
fn an_answer_from_before_the_restart_counts() {
    let outcomes = [(ApprovalOutcome::ProceedOnce, Status::Success), (ApprovalOutcome::Cancel, Status::Error)];
    for (outcome, status) in outcomes {
        let disk = TempStore::new();
        // Two identical calls: each has its own decision.
        let (calls, approvals): (Vec<_>, Vec<_>) = simulate_process(async {
            let hub = disk.hub([pay().0]).await;
            let ask = || async { expect_waiting(hub.call("pay", json!({})).thread("t1").until_approval().await) };
            [ask().await, ask().await].into_iter().unzip()
        });
        // Decide on a hub without the tool, so that no hub continues the calls; an approval needs the tool to be
        // registered.
        let held_until_now = simulate_process(async {
            let gate = GatedTool::new();
            let blocked = ToolHub::builder().store(disk.open()).max_concurrency(1);
            let hub = blocked.tools([pay().0, gate.tool("gate").read_only()]).build().await.unwrap();
            // Read-only, so that it runs here and not in a task: the end of the process does not release its slot.
            let caller = hub.clone();
            let mut held = Box::pin(async move { caller.call("gate", json!({})).await });
            while gate.running() == 0 {
                assert!(poll!(&mut held).is_pending());
                tokio::task::yield_now().await;
            }
            resolve(&hub, approvals[1], outcome).await;
            if outcome == ApprovalOutcome::ProceedOnce {
                wait_until(|| hub.queued_calls() == 1).await;
            }
            [held]
        });
        drop(held_until_now);
        simulate_process(async {
            let (tool, script) = pay();
            let hub = disk.hub([tool]).await;
            assert_eq!(wait_for_end(&hub, calls[1]).await.status, status);
            assert_eq!(record(&hub, calls[0]).await.status, Status::AwaitingApproval);
            assert_eq!(script.recorded_arguments().len(), usize::from(status == Status::Success));
        });
    }
}

#[test]
fn a_question_that_ran_out_while_nobody_was_there_ends_its_call() {
    let disk = TempStore::new();
    let (call, approval) = simulate_process(async {
        let hub = disk.hub([pay().0.approval_timeout(Duration::from_millis(300))]).await;
        expect_waiting(hub.call("pay", json!({})).until_approval().await)
    });
    simulate_process(async { tokio::time::sleep(Duration::from_millis(400)).await });
    simulate_process(async {
        let hub = disk.hub([pay().0]).await;
        let closed = wait_for_end(&hub, call).await;
        assert_eq!(closed.outcome.unwrap().error_kind(), Some(ErrorKind::ApprovalTimeout));
        let question = hub.approval(&Tenant::default(), approval).await.unwrap().unwrap();
        assert_eq!(question.state, ApprovalState::TimedOut);
    });
}

#[test]
fn a_call_whose_tool_or_rules_changed_goes_by_what_holds_now() {
    let disk = TempStore::new();
    let ask = || {
        simulate_process(async {
            let hub = disk.hub([pay().0]).await;
            expect_waiting(hub.call("pay", json!({})).thread("t1").until_approval().await)
        })
    };
    let (call, approval) = ask();
    simulate_process(async {
        // The definition changed: a new approval is requested, and the old one cannot be decided.
        let hub = disk.hub([pay().0.description("now it pays twice")]).await;
        let pending = loop {
            let pending = record(&hub, call).await.approval;
            if pending != Some(approval) {
                break pending.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let old = hub.approval(&Tenant::default(), approval).await.unwrap().unwrap();
        assert_eq!(old.state, ApprovalState::Withdrawn);
        while hub.approval(&Tenant::default(), pending).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        resolve(&hub, pending, ApprovalOutcome::ProceedOnce).await;
        assert_eq!(wait_for_end(&hub, call).await.status, Status::Success);
    });
    let (call, _) = ask();
    simulate_process(async {
        let builder = ToolHub::builder().store(disk.open()).rule(Rule::deny("pay"));
        let hub = builder.tool(pay().0).build().await.unwrap();
        let closed = wait_for_end(&hub, call).await;
        assert_eq!(closed.outcome.unwrap().error_kind(), Some(ErrorKind::Forbidden));
    });
    let (call, _) = ask();
    simulate_process(async {
        let hub = disk.hub([]).await;
        let closed = wait_for_end(&hub, call).await.outcome.unwrap();
        closed.assert_effect(Effect::None).assert_error(ErrorKind::Interrupted);
    });
}

#[test]
fn a_call_that_waited_for_its_turn_runs_after_a_restart_and_one_that_ran_does_not() {
    let disk = TempStore::new();
    let calls = simulate_process(async {
        let busy = GatedTool::new();
        let hub = disk.hub([busy.tool("slow").max_concurrency(1)]).await;
        let mut calls = Vec::new();
        for _ in 0..2 {
            let mut running = hub.call("slow", json!({})).detached().start();
            assert!(matches!(running.accepted().await, CallReceipt::Accepted { .. }));
            calls.push(running.id());
            // It is recorded before it enters the queue; the second must not be quicker.
            wait_until(|| busy.running() == 1).await;
        }
        wait_until(|| hub.queued_calls() == 1).await;
        let mut awaited = hub.call("slow", json!({})).start();
        calls.push(awaited.id());
        wait_until(|| hub.queued_calls() == 2).await;
        assert!(tokio::time::timeout(Duration::ZERO, awaited.outcome()).await.is_err());
        calls
    });
    simulate_process(async {
        let (tool, script) = scripted("slow", []);
        let hub = disk.hub([tool]).await;
        let first = wait_for_end(&hub, calls[0]).await.outcome.unwrap();
        first.assert_effect(Effect::Unknown).assert_error(ErrorKind::Interrupted);
        assert_eq!(wait_for_end(&hub, calls[1]).await.status, Status::Success);
        assert_eq!(hub.call_record(&Tenant::default(), calls[2]).await.unwrap(), None, "it ended with its caller");
        assert_eq!(script.recorded_arguments().len(), 1);
    });
}

#[test]
fn a_call_that_went_on_can_be_cancelled() {
    let disk = TempStore::new();
    let (call, _) = simulate_process(async {
        let hub = disk.hub([pay().0]).await;
        expect_waiting(hub.call("pay", json!({})).until_approval().await)
    });
    simulate_process(async {
        let hub = disk.hub([pay().0]).await;
        let tenant = Tenant::default();
        assert_eq!(hub.cancel_call(&tenant, call).await, Ok(Cancellation::Requested));
        assert_eq!(wait_for_end(&hub, call).await.status, Status::Cancelled);
        // Its record is written a moment before it has left.
        while hub.running_calls() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(hub.cancel_call(&tenant, call).await, Ok(Cancellation::AlreadyEnded(Status::Cancelled)));
    });
}

#[test]
fn a_hub_that_goes_down_takes_no_calls_leaves_those_that_wait_and_lets_the_others_end() {
    let disk = TempStore::new();
    let (call, waiting, usable) = simulate_process(async {
        let busy = GatedTool::new();
        let hub = disk.hub([pay().0, busy.tool("slow"), scripted("look", []).0.read_only()]).await;
        let (call, _) = expect_waiting(hub.call("pay", json!({})).thread("t1").until_approval().await);
        let slow = hub.call("slow", json!({})).start();
        // This one has a caller who waits for the approval.
        let waiting = hub.call("pay", json!({"sum": 7})).thread("t2").start();
        wait_until(|| busy.running() == 1).await;
        let tenant = Tenant::default();
        let usable = loop {
            let pending = hub.approvals(&tenant, Some(ApprovalState::Pending)).await.unwrap();
            match pending.iter().find(|approval| approval.call_id == waiting.id()) {
                Some(approval) => break approval.id,
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        let id = waiting.id();
        hub.call("look", json!({})).await.assert_success();
        let going = tokio::spawn({
            let hub = hub.clone();
            async move { hub.shutdown(Duration::from_millis(200)).await }
        });
        while hub.call("look", json!({})).await.is_success() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for tool in ["look", "slow", "pay"] {
            let refused = hub.call(tool, json!({})).until_approval().await.into_outcome().unwrap();
            refused.assert_effect(Effect::None).assert_error(ErrorKind::ShuttingDown);
            assert!(refused.error.unwrap().retryable);
        }
        busy.release(1);
        slow.await.assert_success();
        going.await.unwrap();
        waiting.await.assert_effect(Effect::None).assert_error(ErrorKind::Interrupted);
        assert_eq!(record(&hub, call).await.status, Status::AwaitingApproval);
        (call, id, usable)
    });
    simulate_process(async {
        let (tool, script) = pay();
        let hub = disk.hub([tool, scripted("look", []).0.read_only()]).await;
        let looked = toolhub::CallQuery {
            tool: Some(toolhub::ToolName::new("look").unwrap()),
            status: Some(Status::Success),
            ..Default::default()
        };
        assert!(
            !hub.calls(&Tenant::default(), &looked).await.unwrap().calls.is_empty(),
            "buffered records are written"
        );
        let pending = record(&hub, call).await.approval.unwrap();
        resolve(&hub, pending, ApprovalOutcome::ProceedOnce).await;
        assert_eq!(wait_for_end(&hub, call).await.status, Status::Success);
        // The other one has ended, and the same call made again consumes its approval.
        assert_eq!(hub.call_record(&Tenant::default(), waiting).await.unwrap(), None);
        resolve(&hub, usable, ApprovalOutcome::ProceedOnce).await;
        hub.call("pay", json!({"sum": 7})).thread("t2").await.assert_success();
        assert_eq!(script.recorded_arguments().len(), 2);
    });
}
