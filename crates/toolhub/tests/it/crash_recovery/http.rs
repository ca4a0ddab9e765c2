//! The same over HTTP: the process that is killed serves, and those who order live on in this one.
//!
//! An order that got no answer is made again with its key, in the next life. Where the answer was on its way when the
//! process died, it is the kept one; where the tool was running, it is `interrupted`; never is the order paid twice.

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

/// Not a test but the process that is killed; it does nothing unless it is told its folder.
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

/// One life of the server: the process, and where it listens.
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
    // Whatever it says later must not fill its pipe.
    thread::spawn(move || lines.for_each(drop));
    (child, port)
}

/// Makes one order; `None` where the connection broke before the answer was here.
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
        let begun = head.len();
        if line.read_line(&mut head).ok()? == 0 {
            return None;
        }
        let header = head[begun..].to_ascii_lowercase();
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

/// What all writers were told, over all lives.
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

/// Orders until the connection breaks; answers which order was left without an answer.
fn send_orders(port: u16, writer: usize, life: usize, left: Option<String>, told: &Responses) -> Option<String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok();
    let Some(stream) = stream else { return left };
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut line = BufReader::new(stream);
    let fresh = (0..).map(|number| format!("{writer}-{life}-{number}"));
    for key in left.into_iter().chain(fresh) {
        match send_order(&mut line, writer, &key) {
            Some((status, answer)) => told.record(&key, status, &answer),
            None => return Some(key),
        }
    }
    None
}

#[tokio::test]
async fn a_killed_server_has_lost_nothing_it_answered_and_done_nothing_twice() {
    let folder = TempFolder::new();
    let kills = soak(30, 300);
    let told = Responses::default();
    let mut left: Vec<Option<String>> = vec![None; WRITERS];
    for life in 0..kills {
        let (mut child, port) = spawn_server(&folder);
        let enough = told.answers.load(Ordering::Relaxed) + fastrand::usize(1..60);
        left = thread::scope(|scope| {
            let writers: Vec<_> = std::mem::take(&mut left)
                .into_iter()
                .enumerate()
                .map(|(writer, left)| {
                    scope.spawn({
                        let told = &told;
                        move || send_orders(port, writer, life, left, told)
                    })
                })
                .collect();
            while told.answers.load(Ordering::Relaxed) < enough && writers.iter().any(|writer| !writer.is_finished()) {
                thread::park_timeout(Duration::from_micros(300));
            }
            child.kill().unwrap();
            child.wait().unwrap();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        if life % 10 == 9 || life + 1 == kills {
            let (paid, interrupted) = (told.paid.lock().unwrap().clone(), told.interrupted.lock().unwrap().clone());
            verify_store(folder.path(), &paid, &interrupted).await;
        }
    }
    let (paid, interrupted) = (told.paid.lock().unwrap().len(), told.interrupted.lock().unwrap().len());
    println!("{kills} kills over HTTP, {paid} paid, {interrupted} interrupted");
    assert!(paid >= kills / 2, "the writers were hardly served: {paid}");
}
