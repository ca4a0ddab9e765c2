//! Clients that make calls on all nodes, and write down what they are told.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::nodes::Nodes;
use crate::serve::{HttpConnection, connection::HttpResponse};

/// Much longer than a call with a key may take to get its answer.
const LIMIT: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(30);

/// The calls of one round, in threads of their own.
pub(super) struct Round {
    pub(super) threads: [String; 2],
    answers: Mutex<Vec<Answer>>,
    is_stopped: AtomicBool,
}

/// What a client was told about a call.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) tool: &'static str,
    pub(super) key: Option<String>,
    pub(super) thread: String,
    /// The id of the call.
    pub(super) call: String,
    pub(super) kind: AnswerKind,
}

#[derive(Debug, Clone)]
pub(super) enum AnswerKind {
    /// It ended, with this outcome.
    Ended(Value),
    /// It will go on without the client.
    Accepted,
    /// It has not run.
    Refused,
}

/// A call that a client makes.
struct Call<'a> {
    tool: &'static str,
    key: Option<String>,
    thread: &'a str,
    /// Whether the client does not wait for its end.
    is_detached: bool,
}

impl Round {
    pub(super) fn new(number: usize) -> Self {
        let threads = ["a", "b"].map(|thread| format!("round-{number}-{thread}"));
        Self { threads, answers: Mutex::default(), is_stopped: AtomicBool::new(false) }
    }

    /// Lets the clients finish their calls and end.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    pub(super) fn answers(&self) -> Vec<Answer> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until so many more calls of the first thread have ended, as their clients were told.
    pub(super) fn wait_for_more_outcomes(&self, count: usize) {
        let is_ended =
            |answer: &&Answer| answer.thread == self.threads[0] && matches!(answer.kind, AnswerKind::Ended(_));
        let ended = || self.answers().iter().filter(is_ended).count();
        let (started, wanted) = (Instant::now(), ended() + count);
        while ended() < wanted {
            assert!(started.elapsed() < LIMIT, "no more calls end in {}", self.threads[0]);
            thread::park_timeout(PAUSE);
        }
    }

    /// Starts a call on this node that goes on without its caller.
    pub(super) fn start_slow_call(&self, nodes: &Nodes, node: usize) {
        let call = Call { tool: "slow", key: None, thread: &self.threads[0], is_detached: true };
        Client::new(nodes, node).call_once(self, &call, node);
    }

    fn note(&self, call: &Call<'_>, kind: AnswerKind, id: &Value) {
        let (key, thread) = (call.key.clone(), call.thread.to_owned());
        let id = id.as_str().unwrap_or_else(|| panic!("an answer without a call: {kind:?}")).to_owned();
        let answer = Answer { tool: call.tool, key, thread, call: id, kind };
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
    }
}

/// Makes calls until the round is stopped, and at least one of each tool. Clients make calls with the same keys; each begins at another node.
pub(super) fn use_nodes(nodes: &Nodes, home: usize, round: &Round) {
    let mut client = Client::new(nodes, home);
    for number in 0.. {
        if number >= 4 && round.is_stopped() {
            return;
        }
        let key = |sort: &str| Some(format!("{}-{sort}-{number}", round.threads[0]));
        let thread = &round.threads[number % 2];
        let plain = |tool| Call { tool, key: None, thread, is_detached: false };
        let call = match number % 7 {
            0 => Call { key: key("quick"), ..plain("quick") },
            1 => Call { key: key("count"), ..plain("counter") },
            2 => plain("counter"),
            3 => Call { key: key("slow"), ..plain("slow") },
            4 => plain("quick"),
            5 => Call { is_detached: true, ..plain("quick") },
            _ => Call { key: key("detached"), is_detached: true, ..plain("slow") },
        };
        if call.key.is_some() { client.call_until_answered(round, &call) } else { client.call_unkeyed(round, &call) }
    }
}

struct Client<'a> {
    nodes: &'a Nodes,
    home: usize,
    /// Connections to the nodes, with the port.
    connections: Vec<Option<(u16, HttpConnection)>>,
    /// The last response, for the message of a failing test.
    last_response: String,
}

/// What a client does after an attempt.
#[derive(PartialEq, Eq)]
enum Next {
    Done,
    /// The answer is unknown, or asks for another attempt.
    TryAgain,
}

impl<'a> Client<'a> {
    fn new(nodes: &'a Nodes, home: usize) -> Self {
        let connections = (0..nodes.len()).map(|_| None).collect();
        Self { nodes, home, connections, last_response: String::new() }
    }

    /// Repeats a call with its key, on one node after the other, until it has an answer.
    fn call_until_answered(&mut self, round: &Round, call: &Call<'_>) {
        let started = Instant::now();
        for attempt in 0.. {
            let node = (self.home + attempt) % self.nodes.len();
            if self.nodes.port(node).is_some() && self.call_once(round, call, node) == Next::Done {
                return;
            }
            let (key, last) = (&call.key, &self.last_response);
            assert!(started.elapsed() < LIMIT, "no answer to the call with key {key:?} but: {last}");
            thread::park_timeout(PAUSE);
        }
    }

    /// Makes a call without a key, once, on the first node that is running.
    fn call_unkeyed(&mut self, round: &Round, call: &Call<'_>) {
        let nodes = (0..self.nodes.len()).map(|at| (self.home + at) % self.nodes.len());
        match { nodes }.find(|node| self.nodes.port(*node).is_some()) {
            Some(node) => _ = self.call_once(round, call, node),
            None => thread::park_timeout(PAUSE),
        }
    }

    /// Makes the call on this node, and writes down the answer.
    fn call_once(&mut self, round: &Round, call: &Call<'_>, node: usize) -> Next {
        let Some(response) = self.send(call, node) else { return Next::TryAgain };
        self.last_response = format!("node {node}: {} {}", response.status, response.text);
        let body = response.json();
        match (response.status, body["error"]["code"].as_str().or(body["code"].as_str())) {
            // The client has the effect, but the outcome is not recorded yet. When it is, this is it.
            (200, Some("store_unavailable")) if body["replayed"] == false => return Next::TryAgain,
            (200, _) => round.note(call, AnswerKind::Ended(body.clone()), &body["id"]),
            // Without a preference, the call goes on after the shutdown of the node; another one has its end later.
            (202, _) if !call.is_detached => return Next::TryAgain,
            (202, _) => round.note(call, AnswerKind::Accepted, &body["id"]),
            (409, Some("idempotency_in_progress")) => return Next::TryAgain,
            (503, Some("store_unavailable" | "shutting_down")) => {
                // The server refuses a request before it is a call.
                if body["callId"].is_string() {
                    round.note(call, AnswerKind::Refused, &body["callId"]);
                }
                thread::park_timeout(PAUSE);
                return Next::TryAgain;
            }
            (status, _) => panic!("{} with key {:?}: {status}: {body:#}", call.tool, call.key),
        }
        Next::Done
    }

    /// Sends the request; `None` if there was no response.
    fn send(&mut self, call: &Call<'_>, node: usize) -> Option<HttpResponse> {
        let port = self.nodes.port(node)?;
        let connection = match self.connections[node].take() {
            Some((of, connection)) if of == port => Some(connection),
            _ => HttpConnection::try_connect(port),
        };
        let (mut connection, mut headers) = (connection?, String::new());
        if let Some(key) = &call.key {
            headers += &format!("idempotency-key: {key}\r\n");
        }
        if call.is_detached {
            headers += "prefer: respond-async\r\n";
        }
        let body = json!({"arguments": {}, "threadId": call.thread}).to_string();
        let response = connection.try_send(&format!("POST /api/v1/tools/{}/calls", call.tool), &headers, &body)?;
        self.connections[node] = Some((port, connection));
        Some(response)
    }
}
