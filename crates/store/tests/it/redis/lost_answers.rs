//! A batch whose answer is lost is sent again and happens once; without any answer its outcome is unknown.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolhub_storage::{
    backend::{Backend, StoreError},
    testing::history::History,
};
use toolhub_store::redis::{Address, Options};
use toolhub_testkit::RedisServer;

use super::fixtures::{commit_when_back, open, options};
use crate::fixtures::{commit, get, put};

/// Forwards connections to a server, and cuts a connection instead of forwarding the answer to a commit, as often as it is told.
struct Proxy {
    port: u16,
    cuts: Arc<AtomicUsize>,
}

impl Proxy {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, cuts) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let cuts_of_proxy = cuts.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let cuts = cuts_of_proxy.clone();
                std::thread::spawn(move || forward(client, server, &cuts));
            }
        });
        Self { port, cuts }
    }

    fn options(&self) -> Options {
        Options::new(Address::parse(&format!("redis://127.0.0.1:{}", self.port)).unwrap())
    }

    /// The answers to the next commits are lost with their connections.
    fn cut(&self, times: usize) {
        self.cuts.store(times, Ordering::SeqCst);
    }
}

fn forward(client: TcpStream, server: TcpStream, cuts: &AtomicUsize) {
    let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let (mut requests, mut to_server) = (client, server);
    let back = std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut to_client);
        let _ = to_client.shutdown(std::net::Shutdown::Both);
    });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = requests.read(&mut buffer) {
        let request = &buffer[..length];
        // Only commits publish changes.
        let is_commit = request.windows(7).any(|word| word == b"PUBLISH");
        let is_cut =
            is_commit && cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_cut {
            // The client hears nothing more; the server executes the request all the same.
            let _ = requests.shutdown(std::net::Shutdown::Both);
        }
        if to_server.write_all(request).is_err() || is_cut {
            break;
        }
    }
    let _ = to_server.shutdown(std::net::Shutdown::Write);
    let _ = back.join();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_whose_answer_was_lost_happens_once() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let store = open(proxy.options());
    for round in 1..=20 {
        proxy.cut(usize::try_from(round % 3).unwrap());
        let stored = commit(&*store, "t", vec![put("n", round.to_string().as_bytes())]).await;
        assert_eq!(stored, Ok(vec![round]), "each batch raises the version by one");
    }
    // A refusal, too, is the same when it is asked for again.
    let mut absent = put("n", b"late");
    absent.expect = toolhub_storage::backend::Expect::Absent;
    proxy.cut(2);
    let refused = commit(&*store, "t", vec![absent]).await;
    assert!(matches!(refused, Err(StoreError::Conflict { found: Some(20), .. })), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_increment_is_lost_or_applied_twice_while_connections_are_cut() {
    let server = RedisServer::start();
    let (proxy, history) = (Arc::new(Proxy::start(server.port())), History::new());
    let store = history.record(open(proxy.options()));
    commit(&*store, "t", vec![put("n", b"0")]).await.unwrap();
    let adding = (0..8).map(|_| {
        let (store, proxy) = (store.clone(), proxy.clone());
        tokio::spawn(async move {
            let mut added = 0;
            while added < 15 {
                let row = get(&*store, "t", "n").await.unwrap().unwrap();
                let n: u64 = String::from_utf8_lossy(&row.value).parse().unwrap();
                let mut next = put("n", (n + 1).to_string().as_bytes());
                next.expect = toolhub_storage::backend::Expect::Same(row.version);
                match commit(&*store, "t", vec![next]).await {
                    Ok(_) => added += 1,
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => panic!("a valid commit failed: {error}"),
                }
                if added % 5 == 2 {
                    proxy.cut(1);
                }
            }
        })
    });
    for task in adding.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let row = get(&*store, "t", "n").await.unwrap().unwrap();
    assert_eq!((&*row.value, row.version.number), (&b"120"[..], 121));
    history.assert_promises_kept();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_has_lost_nothing_it_acknowledged() {
    let mut server = RedisServer::start();
    let store = open(options(&server));
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        let writer = {
            let store = store.clone();
            tokio::spawn(async move {
                let mut stored = Vec::new();
                for n in 0..200 {
                    let id = format!("{round}-{n}");
                    commit_when_back(&store, &format!("t{}", n % 5), vec![put(&id, b"1")]).await.unwrap();
                    stored.push((n % 5, id));
                }
                stored
            })
        };
        tokio::task::yield_now().await;
        server.restart();
        acknowledged.extend(writer.await.unwrap());
    }
    for (thread, id) in acknowledged {
        assert!(get(&*store, &format!("t{thread}"), &id).await.unwrap().is_some(), "{id} was acknowledged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_answer_the_outcome_is_unknown_and_without_a_server_nothing_is_written() {
    let mut server = RedisServer::start();
    let store = open(options(&server).operation_timeout(Duration::from_millis(500)));
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    server.pause();
    let frozen = commit(&*store, "t", vec![put("b", b"1")]).await;
    assert!(matches!(frozen, Err(StoreError::Unknown(_))), "{frozen:?}");
    assert!(matches!(get(&*store, "t", "a").await, Err(StoreError::Unavailable(_))));
    server.resume();
    server.kill();
    // The first one may have been sent on the dead connection.
    let _ = commit(&*store, "t", vec![put("c", b"1")]).await;
    let dead = commit(&*store, "t", vec![put("d", b"1")]).await;
    assert!(matches!(dead, Err(StoreError::Unavailable(_))), "{dead:?}");
    server.restart();
    let stored = commit_when_back(&store, "t", vec![put("e", b"1")]).await;
    assert!(stored.is_ok(), "{stored:?}");
    assert!(stored.unwrap()[0] > 1, "a server that was started again gives no version out twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_away_operations_fail_at_once() {
    let mut server = RedisServer::start();
    let store = open(options(&server).operation_timeout(Duration::from_secs(3600)));
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    server.kill();
    let attempts = async {
        // A read that was sent on the dead connection waits to learn its answer; the others must not.
        for _ in 0..20 {
            let store = store.clone();
            let read = tokio::spawn(async move { get(&*store, "t", "a").await });
            let read = tokio::time::timeout(Duration::from_secs(3), read).await;
            assert!(matches!(read, Err(_) | Ok(Ok(Err(StoreError::Unavailable(_))))), "{read:?}");
        }
        get(&*store, "t", "a").await
    };
    let last = tokio::time::timeout(Duration::from_secs(30), attempts).await.expect("none waits for its deadline");
    assert!(matches!(last, Err(StoreError::Unavailable(_))), "{last:?}");
    server.restart();
    commit_when_back(&store, "t", vec![put("a", b"2")]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_refuses_what_makes_it_grow_and_takes_removals() {
    let server = RedisServer::start();
    let store = open(options(&server).operation_timeout(Duration::from_secs(3600)));
    commit(&*store, "t", vec![put("a", b"1"), put("b", b"1")]).await.unwrap();
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "1"]), "OK");
    let refused = commit(&*store, "t", vec![put("c", b"1")]);
    let refused = tokio::time::timeout(Duration::from_secs(60), refused).await.expect("it is not tried again");
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "nothing was written: {refused:?}");
    let mut removal = put("a", b"");
    removal.change = toolhub_storage::backend::Change::Remove;
    assert_eq!(commit(&*store, "t", vec![removal]).await, Ok(vec![0]));
    assert!(get(&*store, "t", "b").await.unwrap().is_some(), "it serves reads");
    assert_eq!(server.cli(&["CONFIG", "SET", "maxmemory", "0"]), "OK");
    commit(&*store, "t", vec![put("c", b"1")]).await.unwrap();
    assert!(store.write_error().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_script_cache_is_no_error() {
    let server = RedisServer::start();
    let store = open(options(&server));
    commit(&*store, "t", vec![put("a", b"1")]).await.unwrap();
    assert_eq!(server.cli(&["SCRIPT", "FLUSH"]), "OK");
    assert_eq!(commit(&*store, "t", vec![put("a", b"2")]).await, Ok(vec![2]));
}
