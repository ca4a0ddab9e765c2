//! The binary with its default limits, under a client with one `tools:call` key that wants its memory and its time.
//!
//! Other clients are served meanwhile. With `TOOLHUB_SOAK` set, the attacks are longer, and each prints the worst latency of the
//! others and the peak memory of the process.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    thread,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use toolhub_testkit::soak;

use super::hostile::{Latencies, Target};

/// A little less than `server.body_limit`.
const MAX_BODY: usize = 1_990_000;
/// A little less than `server.json_values`.
const MAX_VALUES: usize = 99_000;
/// The limit of a response of a service and of the output of a program.
const MAX_OUTPUT: usize = 8 << 20;

const TOOLS: &str = r#"
[tools.ask]
command = "true"
confirm = true
description = "Waits for approval."
parameters = { type = "object" }
[tools.flood]
command = "sh"
args = ["-c", "yes '[0],' | head -c 8000000"]
description = "Prints much."
[tools.notes]
builtin = "notes"
[[policy]]
tool = "flood"
decision = "allow"
"#;

/// What a hostile client sends, again and again.
struct Attack {
    name: &'static str,
    requests: Vec<Vec<u8>>,
}

impl Attack {
    fn new(name: &'static str, target: &Target, requests: &[(&str, &str, String)]) -> Self {
        let key = &target.hostile_key;
        let request = |(what, headers, body): &(&str, &str, String)| {
            let head =
                format!("{what} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\nconnection: close\r\n");
            let length = body.len();
            format!("{head}{headers}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
                .into_bytes()
        };
        Self { name, requests: requests.iter().map(request).collect() }
    }

    /// Sends each request this many times on as many connections at once as there are clients, while others are served.
    async fn run(self, target: &Target, (clients, rounds): (usize, usize)) {
        let (requests, address, mut worst) = (Arc::new(self.requests), target.address(), Latencies::default());
        let hostile: Vec<_> = (0..clients)
            .map(|_| {
                let requests = requests.clone();
                tokio::spawn(async move {
                    let (mut answers, mut buffer) = (0, vec![0; 64 << 10]);
                    for request in requests.iter().cycle().take(rounds * requests.len()) {
                        let Ok(mut tcp) = TcpStream::connect(address).await else { continue };
                        // The server may answer and close before it has read everything.
                        let _ = tcp.write_all(request).await;
                        let mut is_answered = false;
                        while let Ok(1..) = tcp.read(&mut buffer).await {
                            is_answered = true;
                        }
                        answers += usize::from(is_answered);
                    }
                    answers
                })
            })
            .collect();
        while !hostile.iter().all(tokio::task::JoinHandle::is_finished) {
            target.check_others(&mut worst).await;
        }
        let mut answers = 0;
        for task in hostile {
            answers += task.await.expect("the client ends");
        }
        assert!(answers > 0, "{} reached the server", self.name);
        target.check_others(&mut worst).await;
        target.report(self.name, &worst);
    }
}

/// JSON of this many objects in a list.
fn objects(count: usize) -> String {
    format!("[{}{{}}]", "{},".repeat(count))
}

/// A service that answers every request with these bytes.
fn serve_always(response: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    let response = Arc::new(response);
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let response = response.clone();
            thread::spawn(move || {
                let _ = client.set_read_timeout(Some(Duration::from_secs(5)));
                let _ = client.read(&mut [0; 4096]);
                let _ = client.write_all(&response);
            });
        }
    });
    port
}

fn response(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}");
    [format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_at_the_limits_of_size_and_width_take_bounded_memory() {
    let target = Target::start(TOOLS);
    let calculate = "POST /api/v1/tools/calculator/calls";
    let body = |arguments: &str| format!("{{\"arguments\":{{\"expression\":{arguments}}}}}");
    let requests = [
        (calculate, "", body(&format!("[0{}]", ",0".repeat(MAX_BODY / 2)))),
        (calculate, "", body(&objects(MAX_VALUES))),
        (calculate, "", body(&format!("{}{}", "[".repeat(MAX_BODY / 2), "]".repeat(MAX_BODY / 2)))),
        (calculate, "", body(&format!("\"{}1\"", "1+".repeat(MAX_BODY / 2 - 100)))),
        (calculate, "", body(&format!("\"{}\"", "(".repeat(9_999)))),
    ];
    Attack::new("bodies at the limits", &target, &requests).run(&target, (16, soak(2, 100))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_take_bounded_memory() {
    let target = Target::start(TOOLS);
    let ask = "POST /api/v1/tools/ask/calls";
    let prefer = "prefer: respond-async\r\n";
    let (wide, long) = (objects(MAX_VALUES), format!("\"{}\"", "x".repeat(MAX_BODY)));
    let body =
        |n: usize| format!("{{\"arguments\":{{\"n\":{n},\"x\":{}}}}}", if n.is_multiple_of(2) { &wide } else { &long });
    let requests: Vec<_> = (0..soak(12, 120)).map(|n| (ask, prefer, body(n))).collect();
    Attack::new("calls that wait for approval", &target, &requests).run(&target, (soak(4, 16), 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_large_calls_take_bounded_memory() {
    let target = Target::start(TOOLS);
    let note = |n: usize| format!("{{\"arguments\":{{\"add\":\"{}\"}},\"threadId\":\"t{n}\"}}", "x".repeat(900_000));
    let notes: Vec<_> = (0..8).map(|n| ("POST /api/v1/tools/notes/calls", "", note(n))).collect();
    Attack::new("large calls", &target, &notes).run(&target, (2, soak(1, 40))).await;
    let page =
        [("GET /api/v1/calls?limit=500", "", String::new()), ("GET /api/v1/approvals?limit=500", "", String::new())];
    Attack::new("pages of large calls", &target, &page).run(&target, (16, soak(3, 100))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_of_services_and_programs_take_bounded_memory() {
    let wide = format!("[[0]{}]", ",[0]".repeat(MAX_OUTPUT / 4 - 4));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(wide.as_bytes()).expect("it is compressed");
    let gzip = gzip.finish().expect("it is compressed");
    assert!(gzip.len() < 64 << 10);
    let mut config = TOOLS.to_owned();
    for (name, bomb) in
        [("wide", response("", wide.as_bytes())), ("gzip", response("content-encoding: gzip\r\n", &gzip))]
    {
        let port = serve_always(bomb);
        config += &format!(
            "[tools.{name}]\nurl = \"http://127.0.0.1:{port}/\"\nallow_hosts = [\"127.0.0.1\"]\ndescription = \"A service.\"\n"
        );
    }
    let target = Target::start(&config);
    let call = |tool: &str| format!("POST /api/v1/tools/{tool}/calls");
    let calls = ["wide", "gzip", "flood"].map(call);
    let requests: Vec<_> = calls.iter().map(|call| (call.as_str(), "", "{\"arguments\":{}}".to_owned())).collect();
    Attack::new("bombs of services and programs", &target, &requests).run(&target, (16, soak(2, 60))).await;
}
