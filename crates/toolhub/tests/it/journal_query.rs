//! Queries of the journal: filters, pages, and cursors that stay valid.

use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use toolhub::{
    CallPage, CallQuery, CallQueryError, Status, ToolName,
    backend::{Backend, Change, Memory, Table, Write},
    clock::Clock,
    ids::CallId,
    prelude::*,
    testing::{AssertOutcome, ScriptStep, TestClock, scripted},
};

use crate::{
    intercepted_store::{CommitAction, InterceptedStore},
    journal::RestartableStore,
};

fn default_tenant() -> Tenant {
    Tenant::default()
}

fn ids(page: &CallPage) -> Vec<CallId> {
    page.calls.iter().map(|call| call.id).collect()
}

fn query_with_limit(limit: usize) -> CallQuery {
    CallQuery { limit, ..CallQuery::default() }
}

/// All pages of a query, one after the other; `between` runs after each.
async fn all_pages(hub: &ToolHub, query: &CallQuery, mut between: impl AsyncFnMut()) -> Vec<Vec<CallId>> {
    let (mut query, mut pages) = (query.clone(), Vec::new());
    loop {
        let page = hub.calls(&default_tenant(), &query).await.unwrap();
        pages.push(ids(&page));
        between().await;
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => return pages,
        }
    }
}

fn tools() -> [ToolBuilder; 2] {
    [scripted("write", []).0, scripted("read", []).0.read_only()]
}

#[tokio::test]
async fn pages_neither_repeat_nor_miss_a_call_while_others_are_added_and_go_on_after_a_restart() {
    for shelf in RestartableStore::all_kinds() {
        let hub = shelf.hub_builder().await.tools(tools()).build().await.unwrap();
        let mut call_ids = Vec::new();
        for n in 0..25 {
            let name = ["write", "read"][n % 2];
            let call = hub.call(name, json!({"n": n}));
            let call = if n % 3 == 0 { call.thread("t") } else { call };
            call_ids.push(call.await.id);
            // Ids of the same millisecond have no order.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        call_ids.reverse();
        let add = async || {
            hub.call("write", json!({})).await.assert_success();
        };
        let pages = all_pages(&hub, &query_with_limit(10), add).await;
        assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [10, 10, 5]);
        assert_eq!(pages.concat(), call_ids);

        let page = hub.calls(&default_tenant(), &query_with_limit(4)).await.unwrap();
        hub.shutdown(Duration::ZERO).await;
        drop(hub);
        let hub = shelf.hub_builder().await.build().await.unwrap();
        let next =
            hub.calls(&default_tenant(), &CallQuery { cursor: page.next, ..query_with_limit(1_000) }).await.unwrap();
        assert_eq!(next.next, None);
        assert_eq!(ids(&next), call_ids[1..], "three calls were added between the pages");
    }
}

#[tokio::test]
async fn calls_are_found_by_tool_thread_caller_and_status() {
    for shelf in RestartableStore::all_kinds() {
        let (slow, script) = scripted("slow", [ScriptStep::Hang]);
        let (fails, _) = scripted("fails", [ScriptStep::Fail(ToolError::new("no"))]);
        let hub = shelf.hub_builder().await.tools(tools()).tool(slow).tool(fails).build().await.unwrap();
        let ann = Caller::new("ann").unwrap();
        let write = hub.call("write", json!({})).thread("t").await.id;
        let read = hub.call("read", json!({})).thread("t").caller(ann.clone()).await.id;
        let failed = hub.call("fails", json!({})).await.id;
        let open = hub.call("slow", json!({})).thread("t").start();
        while script.recorded_arguments().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ask = async |query: CallQuery| {
            let mut found = ids(&hub.calls(&default_tenant(), &query).await.unwrap());
            found.sort_unstable();
            found
        };
        let sorted = |mut ids: Vec<CallId>| {
            ids.sort_unstable();
            ids
        };
        let any = CallQuery::default;
        let tool = |name: &str| Some(ToolName::new(name).unwrap());
        assert_eq!(ask(any()).await, sorted(vec![write, read, failed, open.id()]));
        assert_eq!(ask(CallQuery { tool: tool("read"), ..any() }).await, [read]);
        assert_eq!(ask(CallQuery { tool: tool("nobody"), ..any() }).await, []);
        let thread = Some(ThreadId::new("t").unwrap());
        let in_thread = CallQuery { thread, ..any() };
        assert_eq!(ask(in_thread.clone()).await, sorted(vec![write, read, open.id()]));
        assert_eq!(ask(CallQuery { tool: tool("write"), ..in_thread.clone() }).await, [write]);
        assert_eq!(ask(CallQuery { caller: Some(ann), ..any() }).await, [read]);
        let status = |status| CallQuery { status: Some(status), ..any() };
        assert_eq!(ask(status(Status::Executing)).await, [open.id()]);
        assert_eq!(ask(status(Status::Error)).await, [failed]);
        assert_eq!(ask(status(Status::Success)).await, sorted(vec![write, read]));
        assert_eq!(ask(status(Status::Cancelled)).await, []);
        let record = hub.call_record(&default_tenant(), open.id()).await.unwrap().unwrap();
        assert_eq!((record.status, record.outcome), (Status::Executing, None));
        open.cancel();
        let ended = open.await.id;
        assert_eq!(ask(status(Status::Executing)).await, []);
        assert_eq!(ask(status(Status::Cancelled)).await, [ended]);
        let foreign = Tenant::new("other").unwrap();
        assert_eq!(hub.calls(&foreign, &any()).await.unwrap(), CallPage::default());
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_found_by_the_time_they_arrived() {
    let clock = TestClock::new();
    let hub = ToolHub::builder().store(Memory::new()).clock(clock.clone()).tools(tools()).build().await.unwrap();
    let (mut call_ids, began) = (Vec::new(), clock.now());
    for n in 0..10 {
        call_ids.push(hub.call(["write", "read"][n % 2], json!({})).await.id);
        clock.advance(Duration::from_secs(1)).await;
    }
    call_ids.reverse();
    let at = |seconds| Some(began + Duration::from_secs(seconds));
    let ask = async |from, until, limit| {
        all_pages(&hub, &CallQuery { from, until, ..query_with_limit(limit) }, async || ()).await.concat()
    };
    assert_eq!(ask(at(2), at(5), 100).await, call_ids[5..8]);
    assert_eq!(ask(at(2), at(5), 1).await, call_ids[5..8]);
    assert_eq!(ask(at(8), None, 100).await, call_ids[..2]);
    assert_eq!(ask(None, at(3), 2).await, call_ids[7..]);
    assert_eq!(ask(at(5), at(5), 100).await, []);
    assert_eq!(ask(None, None, 3).await, call_ids);
}

#[tokio::test]
async fn a_rare_call_is_on_the_first_page() {
    let hub = ToolHub::builder().shared_store(Arc::new(Memory::new())).tools(tools()).build().await.unwrap();
    let rare = hub.call("write", json!({})).await.id;
    tokio::time::sleep(Duration::from_millis(2)).await;
    for _ in 0..5_000 {
        hub.call("read", json!({})).thread("t").await.assert_success();
    }
    let query = CallQuery { tool: Some(ToolName::new("write").unwrap()), ..CallQuery::default() };
    let pages = all_pages(&hub, &query, async || ()).await;
    assert_eq!(pages, [vec![rare]], "the first page has it, however many other calls are in between");
    let everything = all_pages(&hub, &query_with_limit(1_000), async || ()).await;
    assert_eq!(everything.iter().map(Vec::len).collect::<Vec<_>>(), [1_000, 1_000, 1_000, 1_000, 1_000, 1]);
}

#[tokio::test]
async fn a_cursor_that_is_none_is_refused() {
    let hub = ToolHub::builder().build().await.unwrap();
    for text in ["", "2", "call_x"] {
        let query = CallQuery { cursor: Some(text.into()), ..CallQuery::default() };
        assert_eq!(hub.calls(&default_tenant(), &query).await, Err(CallQueryError::InvalidCursor));
    }
}

#[tokio::test]
async fn what_is_rare_is_looked_for_in_few_steps() {
    let store: Arc<InterceptedStore> = Arc::default();
    let (pay, _) = scripted("pay", [ScriptStep::Fail(ToolError::new("no money"))]);
    let hub = ToolHub::builder().shared_store(store.clone()).tool(pay).build().await.unwrap();
    let failed = hub.call("pay", json!({})).await;
    // Ids of the same millisecond have no order.
    tokio::time::sleep(Duration::from_millis(2)).await;
    for _ in 0..300 {
        hub.call("pay", json!({})).await.assert_success();
    }
    let before = store.scans.load(Ordering::Relaxed);
    let query = CallQuery { status: Some(Status::Error), ..query_with_limit(1) };
    assert_eq!(ids(&hub.calls(&default_tenant(), &query).await.unwrap()), [failed.id]);
    let scans = store.scans.load(Ordering::Relaxed) - before;
    assert!(scans < 20, "{scans} pages were read");
}

#[tokio::test]
async fn a_page_ends_at_the_size_of_its_records_and_the_next_one_goes_on() {
    let hub = ToolHub::builder().tools(tools()).build().await.unwrap();
    let long = json!({"text": "x".repeat(900_000)});
    let wide = json!({"list": (0..15_000).map(|_| json!({"a": 0})).collect::<Vec<_>>()});
    let mut call_ids = Vec::new();
    for arguments in [vec![long; 7], vec![wide; 5], vec![json!({}); 7]].concat() {
        call_ids.push(hub.call("write", arguments).thread("t").await.id);
        // Ids of the same millisecond have no order.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    call_ids.reverse();
    for thread in [None, Some("t")] {
        let query = CallQuery { thread: thread.map(|id| ThreadId::new(id).unwrap()), ..query_with_limit(500) };
        let pages = all_pages(&hub, &query, async || {}).await;
        assert_eq!(pages.concat(), call_ids, "{thread:?}");
        // Seven small ones and the first wide ones; the other wide ones and the first long ones; the rest.
        let sizes: Vec<usize> = pages.iter().map(Vec::len).collect();
        assert!(sizes.len() >= 3 && sizes.iter().all(|size| (1..=12).contains(size)), "{sizes:?}");
    }
}

#[tokio::test]
async fn a_call_that_the_journal_has_closed_is_not_listed_as_running_although_its_hub_does_not_know_yet() {
    let store = Arc::new(InterceptedStore::default());
    let hub = ToolHub::builder().shared_store(store.clone()).tools(tools()).build().await.unwrap();
    let (memory, lister, pages) = (store.memory.clone(), hub.clone(), Arc::new(Mutex::new(Vec::new())));
    let listed = pages.clone();
    store.before_commits(move |batch| {
        let is_record = |write: &Write| write.table == Table::Calls && write.change != Change::Keep;
        let closes = batch.writes.iter().any(is_record);
        let (batch, memory, hub, listed) = (batch.clone(), memory.clone(), lister.clone(), listed.clone());
        Box::pin(async move {
            if !closes {
                return CommitAction::Apply;
            }
            // The call has left the open ones and runs on, as it seems to this hub.
            let now = hub.now();
            if memory.commit(batch, now).await.is_ok() {
                let executing = CallQuery { status: Some(Status::Executing), ..query_with_limit(10) };
                for query in [executing, query_with_limit(10)] {
                    let page = hub.calls(&default_tenant(), &query).await.unwrap();
                    listed.lock().unwrap().push(page);
                }
            }
            CommitAction::LoseAck
        })
    });
    let call = hub.call("write", json!({"a": 1})).await;
    let pages = pages.lock().unwrap();
    assert!(pages[0].calls.is_empty());
    assert_eq!(ids(&pages[1]), [call.id]);
    assert_eq!((pages[1].calls[0].status, &pages[1].calls[0].arguments), (Status::Success, &json!({"a": 1})));
}
