//! Callers that need not wait as long as their calls do.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use toolhub::{
    Waiting,
    ids::CallId,
    prelude::*,
    testing::{TestClock, scripted},
};

const MOMENT: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn whoever_makes_a_step_hears_which_of_its_calls_wait_for_a_person() {
    let tools = [scripted("read", []).0.read_only(), scripted("ask", []).0.confirm()];
    let hub = ToolHub::builder().clock(TestClock::new()).tools(tools).build().await.unwrap();
    let ids: Vec<CallId> = (0..3).map(|_| CallId::mint(hub.now())).collect();
    let heard: Arc<Mutex<Vec<(CallId, Waiting)>>> = Arc::default();
    let waiting = tokio::spawn({
        let (hub, ids, heard) = (hub.clone(), ids.clone(), heard.clone());
        async move {
            let calls = ["read", "ask", "ask"].into_iter().zip(ids).enumerate();
            let calls =
                calls.map(|(n, (tool, id))| hub.call(tool, json!({"n": n})).thread("t1").with_id(id).detached());
            hub.batch(calls).when_waiting(move |call, what| heard.lock().unwrap().push((call, what))).await
        }
    });
    tokio::time::sleep(MOMENT).await;
    // A call that must run alone is asked about when it is its turn.
    let questions = || heard.lock().unwrap().clone();
    assert_eq!(questions().len(), 1);
    for (n, call) in [(1, ids[1]), (2, ids[2])] {
        let (told, Waiting::Person(question)) = *questions().last().unwrap() else { panic!("for a person") };
        assert_eq!((told, questions().len()), (call, n));
        assert_eq!(hub.approval(&Tenant::default(), question).await.unwrap().unwrap().call_id, call);
        let answer = Answer::new(ApprovalOutcome::ProceedOnce, Caller::new("boss").unwrap());
        hub.resolve_approval(&Tenant::default(), question, answer).await.unwrap();
        tokio::time::sleep(MOMENT).await;
    }
    let ends = waiting.await.unwrap();
    assert_eq!(ends.iter().map(|end| end.id).collect::<Vec<_>>(), ids);
    assert!(ends.iter().all(Outcome::is_success));
    assert_eq!(questions().len(), 2);
}
