//! A tool whose executor has a health check recovers without a call.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use toolhub::{
    BoxFuture, Definition, Executor, HubChange, Job, Reply, StatusScope,
    prelude::*,
    status::{StatusSettings, ToolStatus},
    testing::{AssertOutcome, TestClock},
};

/// A service that is down, with scripted health checks.
#[derive(Clone, Default)]
struct Service(Arc<Inner>);

#[derive(Default)]
struct Inner {
    calls: AtomicUsize,
    /// Scripted answers, the last one first; then healthy.
    answers: Mutex<Vec<Health>>,
    check_times: Mutex<Vec<Instant>>,
}

#[derive(Clone, Copy)]
enum Health {
    Unhealthy,
    Hangs,
    Panics,
}

impl Executor for Service {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        let fails = job.arguments["fails"].as_bool() == Some(true);
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            match fails {
                true => Err(ToolError::with_kind(ErrorKind::UpstreamUnreachable, "it is down")),
                false => Ok(Reply::from(json!("well"))),
            }
        })
    }

    fn health_check<'a>(&'a self, _: &'a Definition) -> Option<BoxFuture<'a, bool>> {
        Some(Box::pin(async {
            let checks = {
                let mut checks = self.0.check_times.lock().unwrap();
                checks.push(Instant::now());
                checks.len()
            };
            // A check loop without a pause would never let the time advance.
            let answer = if checks > 50 { Some(Health::Hangs) } else { self.0.answers.lock().unwrap().pop() };
            match answer {
                None => true,
                Some(Health::Unhealthy) => false,
                Some(Health::Hangs) => std::future::pending().await,
                Some(Health::Panics) => panic!("scripted panic"),
            }
        }))
    }
}

/// A hub whose only tool was just withheld.
async fn hub_with_withheld_tool(answers: &[Health]) -> (ToolHub, Service) {
    let service = Service::default();
    *service.0.answers.lock().unwrap() = answers.iter().rev().copied().collect();
    let tool = ToolBuilder::new("far", "far").executor(Arc::new(service.clone())).no_retry();
    let hub = ToolHub::builder().clock(TestClock::new()).tool(tool).build().await.unwrap();
    for _ in 0..3 {
        hub.call("far", json!({"fails": true})).await.assert_error(ErrorKind::UpstreamUnreachable);
    }
    assert_eq!(current_status(&hub).await, ToolStatus::Failed);
    (hub, service)
}

async fn current_status(hub: &ToolHub) -> ToolStatus {
    hub.tool_status("far", StatusScope::Shared).await.unwrap().status
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_well_again_comes_back_without_a_call() {
    let (hub, service) = hub_with_withheld_tool(&[Health::Unhealthy, Health::Panics, Health::Hangs]).await;
    let began = Instant::now();
    assert!(service.0.check_times.lock().unwrap().is_empty(), "a tool that just failed is not checked yet");
    tokio::time::sleep(Duration::from_secs(10 + 20 + 40)).await;
    assert_eq!(current_status(&hub).await, ToolStatus::Failed);
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(current_status(&hub).await, ToolStatus::Available);
    let checks: Vec<u64> = service.0.check_times.lock().unwrap().iter().map(|at| (*at - began).as_secs()).collect();
    // Ten seconds, then twice as long each time; the check that hung took ten more.
    assert_eq!(checks, [10, 30, 70, 160]);
    assert_eq!(service.0.calls.load(Ordering::Relaxed), 3, "no call was used as a probe");
    hub.call("far", json!({})).await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_works_is_never_checked_and_neither_is_one_under_an_operators_override() {
    let (hub, service) = hub_with_withheld_tool(&[]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(service.0.check_times.lock().unwrap().len(), 1);
    hub.set_tool_status("far", ToolStatus::Failed, Some("the key is wrong".into()), None, StatusScope::Shared)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(service.0.check_times.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_failures_no_longer_count_is_not_asked_without_a_pause() {
    let (hub, service) = hub_with_withheld_tool(&[]).await;
    hub.apply(HubChange::replacing_policies().status(StatusSettings { enabled: false, ..StatusSettings::default() }))
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let checks = service.0.check_times.lock().unwrap().len();
    assert!(checks <= 4, "{checks} checks in a minute");
}
