//! Requests of one node to another: `ask_node`.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use toolhub::{
    NodeRequestError,
    backend::{Backend, Scan, Scope, Table},
};

use super::*;

/// Two nodes. The second answers `slow` after ten seconds, and counts how often it began to.
struct Pair {
    memory: Arc<SharedMemory>,
    asking: ToolHub,
    answering: ToolHub,
    connections: [Arc<FaultyStore>; 2],
    begun: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl Pair {
    async fn start() -> Self {
        let memory = Arc::default();
        let ((asking, one), (answering, other)) = (node(&memory, "a").await, node(&memory, "b").await);
        let (begun, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (begun.clone(), ended.clone());
        answering.on_node_request("slow", move |body| {
            let (begun, ended) = counts.clone();
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(10 * SECOND).await;
                ended.fetch_add(1, Ordering::SeqCst);
                json!({"echo": body})
            }
        });
        tokio::time::sleep(SECOND).await;
        Self { memory, asking, answering, connections: [one, other], begun, ended }
    }

    async fn ask(&self, kind: &'static str) -> Result<Value, NodeRequestError> {
        self.asking.ask_node(self.answering.node_id(), kind, json!({"n": 1})).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_answers_what_another_asks_and_says_what_it_cannot_answer() {
    let pair = Pair::start().await;
    pair.answering.on_node_request("panics", |_| async { panic!("planted") });
    assert_eq!(pair.ask("slow").await.unwrap(), json!({"echo": {"n": 1}}));
    assert!(matches!(pair.ask("unknown").await, Err(NodeRequestError::Unsupported)));
    let failed = pair.ask("panics").await;
    assert!(matches!(&failed, Err(NodeRequestError::Failed(reason)) if reason.contains("panicked")), "{failed:?}");
    assert!(matches!(pair.asking.ask_node("nobody", "slow", Value::Null).await, Err(NodeRequestError::Gone)));
    tokio::time::sleep(SECOND).await;
    let rows = pair.memory.memory.scan(Scan::new(Table::Requests, Scope::All), pair.asking.now()).await.unwrap().rows;
    assert!(rows.is_empty(), "answered requests are removed: {rows:?}");
    let (asked, ()) = tokio::join!(pair.ask("slow"), async {
        tokio::time::sleep(SECOND).await;
        pair.answering.shutdown(Duration::ZERO).await;
    });
    assert!(matches!(asked, Err(NodeRequestError::Gone)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_asker_gives_up_is_cancelled() {
    let pair = Pair::start().await;
    assert!(tokio::time::timeout(SECOND, pair.ask("slow")).await.is_err());
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!([&pair.begun, &pair.ended].map(|count| count.load(Ordering::SeqCst)), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_while_delays_an_answer_and_repeats_nothing() {
    for cut in 0..2 {
        let pair = Pair::start().await;
        let (answer, ()) = tokio::join!(pair.ask("slow"), async {
            tokio::time::sleep(8 * SECOND).await;
            let connection = &pair.connections[cut];
            connection.unavailable.store(true, Ordering::Release);
            tokio::time::sleep(4 * SECOND).await;
            connection.unavailable.store(false, Ordering::Release);
        });
        assert_eq!(answer.unwrap(), json!({"echo": {"n": 1}}));
        assert_eq!(pair.begun.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn secrets_of_a_request_are_sealed_in_the_store() {
    let pair = Pair::start().await;
    let (seen, is_done) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let given = seen.clone();
    pair.answering.on_node_request("secret", move |body| {
        given.lock().unwrap().push(body);
        async {
            tokio::time::sleep(5 * SECOND).await;
            Value::Null
        }
    });
    let asked = pair.asking.ask_node(pair.answering.node_id(), "secret", json!({"password": "hunter2"}));
    let ((), ()) = tokio::join!(
        async {
            drop(asked.await);
            is_done.store(true, Ordering::SeqCst);
        },
        async {
            tokio::time::sleep(SECOND).await;
            let now = pair.asking.now();
            let rows = pair.memory.memory.scan(Scan::new(Table::Requests, Scope::All), now).await.unwrap().rows;
            assert!(!rows.is_empty() || is_done.load(Ordering::SeqCst));
            assert!(rows.iter().all(|(_, row)| !String::from_utf8_lossy(&row.value).contains("hunter2")), "{rows:?}");
        }
    );
    // The nodes of this store have no key in common.
    assert!(seen.lock().unwrap().iter().all(|body| *body == json!({"password": "hunter2"})));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_asker_dies_is_cancelled_and_its_row_removed() {
    let pair = Pair::start().await;
    pair.answering.on_node_request("long", |_| async {
        tokio::time::sleep(3_600 * SECOND).await;
        Value::Null
    });
    let rows = async || {
        let requests = Scan::new(Table::Requests, Scope::All);
        pair.memory.memory.scan(requests, pair.answering.now()).await.unwrap().rows.len()
    };
    let asked = async { tokio::time::timeout(60 * SECOND, pair.ask("long")).await };
    let dying = async {
        tokio::time::sleep(SECOND).await;
        assert_eq!(rows().await, 1);
        pair.connections[0].unavailable.store(true, Ordering::Release);
        tokio::time::sleep(25 * SECOND).await;
        assert_eq!(rows().await, 0, "its asker cannot withdraw it");
    };
    let _ = tokio::join!(asked, dying);
}
