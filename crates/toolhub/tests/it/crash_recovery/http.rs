//! The same over HTTP: the killed process is a server, and the clients live on in this process.
//!
//! An order without a response is repeated with its key after the restart. If the response was on its way when the
//! process died, the stored one is replayed; if the tool was running, the outcome is `interrupted`; the order is never
//! paid twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use toolhub::prelude::*;
use toolhub_server::{Server, Settings};
use toolhub_testkit::{TempFolder, soak};

use super::{FOLDER_VARIABLE, WRITERS, hub, open_store, print_line, verify_store, writer_thread};

/// Not a test but the process that is killed; it does nothing without the environment variables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test below, in a process of its own"]
async fn serves_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER_VARIABLE).map(std::path::PathBuf::from) else { return };
    let store = Arc::new(open_store(&folder));
    let hub = hub(&folder, store.clone()).await;
    let mut settings = Settings::default();
    settings.port = 0;
    let server = Server::new(hub, store, settings).bind().await.unwrap();
    print_line(&format!("port {}", server.address().port()));
    server.serve(std::future::pending()).await.unwrap();
}

/// One server process, and its port.
fn spawn_server(folder: &TempFolder) -> (Child, u16) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash_recovery::http::serves_until_it_is_killed", "--exact", "--ignored", "--nocapture"])
        .env(FOLDER_VARIABLE, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = loop {
        let line = lines.next().expect("the server ended before it listened").unwrap();
        if let Some((_, port)) = line.split_once("port ") {
            break port.parse().unwrap();
        }
    };
    // Drain its output, so that it never blocks on a full pipe.
    thread::spawn(move || lines.for_each(drop));
    (child, port)
}

/// Sends one order; `None` if the connection broke before the response arrived.
fn send_order(line: &mut BufReader<TcpStream>, writer: usize, key: &str) -> Option<(u16, Value)> {
    let body = json!({"arguments": {"order": key}, "threadId": writer_thread(writer)}).to_string();
    let length = body.len();
    let request = format!(
        "POST /api/v1/tools/pay/calls HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         idempotency-key: \"{key}\"\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    line.get_mut().write_all(request.as_bytes()).ok()?;
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let line_start = head.len();
        if line.read_line(&mut head).ok()? == 0 {
            return None;
        }
        let header = head[line_start..].to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if header.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    line.read_exact(&mut body).ok()?;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Some((status, serde_json::from_slice(&body).unwrap()))
}

/// The responses to all writers, over all processes.
#[derive(Default)]
struct Responses {
    paid: Mutex<BTreeMap<String, u64>>,
    interrupted: Mutex<BTreeSet<String>>,
    answers: AtomicUsize,
}

impl Responses {
    fn record(&self, key: &str, status: u16, answer: &Value) {
        assert_eq!(status, 200, "{key}: {answer}");
        match (answer["status"].as_str(), answer["error"]["code"].as_str()) {
            (Some("success"), _) => {
                let count = answer["output"].as_u64().unwrap();
                let before = self.paid.lock().unwrap().insert(key.into(), count);
                assert!(before.is_none(), "{key} was answered {before:?}, then {count}");
            }
            (_, Some("interrupted")) => assert!(self.interrupted.lock().unwrap().insert(key.into()), "{key} twice"),
            _ => panic!("{key}: {answer}"),
        }
        self.answers.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends orders until the connection breaks; returns the order that was left without a response.
fn send_orders(
    port: u16,
    writer: usize,
    life: usize,
    unanswered: Option<String>,
    responses: &Responses,
) -> Option<String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok();
    let Some(stream) = stream else { return unanswered };
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut line = BufReader::new(stream);
    let fresh = (0..).map(|number| format!("{writer}-{life}-{number}"));
    for key in unanswered.into_iter().chain(fresh) {
        match send_order(&mut line, writer, &key) {
            Some((status, answer)) => responses.record(&key, status, &answer),
            None => return Some(key),
        }
    }
    None
}

#[tokio::test]
async fn a_killed_server_has_lost_nothing_it_answered_and_done_nothing_twice() {
    let folder = TempFolder::new();
    let kills = soak(30, 300);
    let responses = Responses::default();
    let mut unanswered: Vec<Option<String>> = vec![None; WRITERS];
    for life in 0..kills {
        let (mut child, port) = spawn_server(&folder);
        let enough = responses.answers.load(Ordering::Relaxed) + fastrand::usize(1..60);
        unanswered = thread::scope(|scope| {
            let writers: Vec<_> = std::mem::take(&mut unanswered)
                .into_iter()
                .enumerate()
                .map(|(writer, unanswered)| {
                    scope.spawn({
                        let responses = &responses;
                        move || send_orders(port, writer, life, unanswered, responses)
                    })
                })
                .collect();
            while responses.answers.load(Ordering::Relaxed) < enough
                && writers.iter().any(|writer| !writer.is_finished())
            {
                thread::park_timeout(Duration::from_micros(300));
            }
            child.kill().unwrap();
            child.wait().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        if life % 10 == 9 || life + 1 == kills {
            let (paid, interrupted) =
                (responses.paid.lock().unwrap().clone(), responses.interrupted.lock().unwrap().clone());
            verify_store(folder.path(), &paid, &interrupted).await;
        }
    }
    let (paid, interrupted) = (responses.paid.lock().unwrap().len(), responses.interrupted.lock().unwrap().len());
    println!("{kills} kills over HTTP, {paid} paid, {interrupted} interrupted");
    assert!(paid >= kills / 2, "too few orders were served: {paid}");
}
