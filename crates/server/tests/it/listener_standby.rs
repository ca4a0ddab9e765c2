//! Liveness while tools block all workers of the runtime.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use serde_json::json;
use tokio::time::Instant;
use toolhub_core::{PollWatch, ToolHub, ToolName, backend::Memory, dynamic};
use toolhub_server::Server;

use crate::support_listener::{TEST_TIMEOUT, settings};

/// Sends a request on a blocking socket, because the runtime of the test is blocked too.
fn request(address: SocketAddr, path: &str) -> TcpStream {
    let mut tcp = TcpStream::connect(address).unwrap();
    tcp.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    write!(tcp, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    tcp
}

fn response(mut tcp: TcpStream) -> String {
    let mut text = String::new();
    tcp.read_to_string(&mut text).unwrap();
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn livez_is_answered_while_every_worker_is_blocked_and_the_tool_is_named() {
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let entered = Arc::new(AtomicUsize::new(0));
    let count = entered.clone();
    let any = json!({"type": "object"});
    let stuck = dynamic("stuck", any, move |_, _| {
        let (blocked, entered) = (blocked.clone(), count.clone());
        async move {
            entered.fetch_add(1, SeqCst);
            let _ = blocked.lock().unwrap_or_else(PoisonError::into_inner).recv();
            Ok(json!("done"))
        }
    });
    let store = Arc::new(Memory::default());
    let hub = ToolHub::builder().store(store.clone()).tool(stuck).build().await.unwrap();
    let bound = Server::new(hub.clone(), store, settings()).bind().await.unwrap();
    let (address, served) = (bound.address(), tokio::spawn(bound.serve(std::future::pending())));
    assert!(response(request(address, "/livez")).starts_with("HTTP/1.1 200"), "before");

    let calls: Vec<_> = (0..2).map(|_| hub.call("stuck", json!({})).start()).collect();
    while entered.load(SeqCst) < 2 {
        std::thread::yield_now();
    }
    let mut watch = PollWatch::default();
    assert!(hub.blocking_polls(&mut watch).is_empty());
    assert_eq!(hub.blocking_polls(&mut watch), [ToolName::new("stuck").unwrap()]);
    let other = request(address, "/readyz");
    let times = [0; 3].map(|_| {
        let asked = Instant::now();
        let text = response(request(address, "/livez"));
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("ok\n"), "{text}");
        asked.elapsed()
    });
    // On a busy machine one of them may take longer.
    assert!(times.iter().any(|time| *time < Duration::from_millis(250)), "{times:?}");
    drop(release);
    for call in calls {
        assert!(call.await.is_success());
    }
    assert!(response(other).starts_with("HTTP/1.1 200"), "the other request is answered when workers are free");
    served.abort();
}
