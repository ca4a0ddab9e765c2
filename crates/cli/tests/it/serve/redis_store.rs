//! The binary with its records in Redis.

use std::process::Command;

use serde_json::json;
use toolhub_testkit::{RedisServer, TempFolder};

use super::{
    HttpConnection, Process,
    clock_jump::{YEAR, compile_preloaded},
};

fn write_config(folder: &TempFolder, url: &str) {
    let text = format!(
        "[store]\nbackend = \"redis\"\nurl = \"{url}\"\n[tools.counter]\nbuiltin = \"counter\"\n[tools.calculator]\nbuiltin = \"calculator\"\n"
    );
    folder.write("toolhub.toml", &text);
}

fn start(folder: &TempFolder) -> Process {
    let variables = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "off"), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")];
    Process::start(folder.path(), &["serve", "--port", "0"], &variables)
}

/// Runs a command to its end; returns its exit code and what it printed.
fn run(folder: &TempFolder, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolhub"));
    let output = command.args(arguments).current_dir(folder.path()).env_clear().env("HOME", folder.path()).output();
    let output = output.expect("the binary can be started");
    (
        output.status.code(),
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat(),
    )
}

#[test]
fn what_a_killed_server_acknowledged_is_in_redis_for_the_next_one() {
    let redis = RedisServer::start();
    let folder = TempFolder::new();
    write_config(&folder, &redis.url());
    let count = |server: &Process| {
        let body = json!({"arguments": {}, "threadId": "t"}).to_string();
        let called = HttpConnection::connect(server.port).send("POST /api/v1/tools/counter/calls", "", &body);
        assert_eq!(called.json()["status"], "success", "{}", called.text);
        called.text
    };
    let server = start(&folder);
    let first = count(&server);

    server.signal("KILL");
    drop(server);
    let server = start(&folder);
    let second = count(&server);
    assert_ne!(first, second, "the state is still there");
    server.signal("TERM");
    let (code, _, error) = server.wait_for_exit();
    assert_eq!(code, Some(0), "{error}");
    let (code, text) = run(&folder, &["threads", "list"]);
    assert!(code == Some(0) && text.contains('t'), "{text}");
    let (_, text) = run(&folder, &["doctor"]);
    assert!(text.contains("the Redis server keeps what it acknowledges"), "{text}");
}

#[test]
fn a_server_on_which_records_would_be_lost_is_refused_with_the_setting_to_change() {
    let redis = RedisServer::start_with(&["--appendonly no"]);
    let folder = TempFolder::new();
    write_config(&folder, &redis.url());
    let (code, text) = run(&folder, &["serve", "--port", "0"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("`appendonly yes`") && text.contains("store.redis.volatile"), "{text}");
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
}

#[test]
fn doctor_writes_nothing_to_redis_and_prints_what_it_and_a_running_server_warn_of() {
    let redis = RedisServer::start_with(&["--appendonly yes", "--appendfsync everysec"]);
    let folder = TempFolder::new();
    write_config(&folder, &redis.url());
    let (code, text) = run(&folder, &["doctor"]);
    assert!(code == Some(0) && text.contains("the store in Redis will be created"), "{text}");
    assert!(text.contains("`appendfsync always`"), "{text}");
    assert_eq!(redis.cli(&["DBSIZE"]), "0", "{text}");
    let server = start(&folder);
    let url = format!("http://127.0.0.1:{}", server.port);
    let (_, text) = run(&folder, &["doctor", "--server", &url]);
    assert_eq!(text.matches("`appendfsync always`").count(), 1, "{text}");
    // What only the server sees: `doctor` has another config.
    let elsewhere = RedisServer::start();
    write_config(&folder, &elsewhere.url());
    let (_, text) = run(&folder, &["doctor", "--server", &url]);
    assert_eq!(text.matches("`appendfsync always`").count(), 1, "the server's warning: {text}");
    assert_eq!(elsewhere.cli(&["DBSIZE"]), "0");
}

#[test]
fn while_redis_is_away_plain_reads_go_on_and_what_needs_a_record_is_refused() {
    let mut redis = RedisServer::start();
    let folder = TempFolder::new();
    write_config(&folder, &redis.url());
    let server = start(&folder);
    let call = |tool: &str, arguments: &str| {
        let path = format!("POST /api/v1/tools/{tool}/calls");
        HttpConnection::connect(server.port).send(&path, "", arguments)
    };
    let sum = r#"{"arguments": {"expression": "1+1"}}"#;
    assert_eq!(call("calculator", sum).status, 200);
    let metrics = || HttpConnection::connect(server.port).send("GET /metrics", "", "").text;
    let page = metrics();
    let info = format!("toolhub_store_server_info{{server=\"{}\",version=\"", redis.url());
    assert!(page.contains(&info) && page.contains(",role=\"primary\",persistence=\"aof always\"} 1\n"), "{page}");
    for sample in ["toolhub_store_up 1", "toolhub_store_notification_gaps_total 0", "toolhub_nodes_alive 1"] {
        assert!(page.contains(&format!("\n{sample}\n")), "{sample} is missing: {page}");
    }
    let used = format!("toolhub_store_server_memory_bytes{{server=\"{}\"}} ", redis.url());
    assert!(page.contains(&used) && page.contains("\ntoolhub_store_clock_difference_seconds "), "{page}");
    // The lease is taken at the first look at the nodes.
    let ready = || HttpConnection::connect(server.port).send("GET /readyz?verbose", "", "").text;
    while !ready().contains("[+]maintenance by node ") {
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    let url = format!("http://127.0.0.1:{}", server.port);
    let (_, text) = run(&folder, &["doctor", "--server", &url]);
    for line in ["aof always", "store notifications: ", "store clock: ", "nodes 1 alive", "maintenance by node "] {
        assert!(text.contains(line), "{line} is missing: {text}");
    }
    redis.kill();
    let refused = call("counter", r#"{"arguments": {}, "threadId": "t"}"#);
    assert!(refused.status == 503 && refused.text.contains("store_unavailable"), "{}", refused.text);
    let called = call("calculator", sum);
    assert!(called.status == 200 && called.text.contains("success"), "{}", called.text);
    let ready = HttpConnection::connect(server.port).send("GET /readyz?verbose", "", "");
    assert!(ready.status == 200 && ready.text.contains("[!]store degraded: it does not answer"), "{}", ready.text);
    assert!(metrics().contains("\ntoolhub_store_up 0\n"), "{}", metrics());
    redis.restart();
    while call("counter", r#"{"arguments": {}, "threadId": "t"}"#).status != 200 {
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    let ready = HttpConnection::connect(server.port).send("GET /readyz?verbose", "", "");
    assert!(!ready.text.contains("does not answer"), "{}", ready.text);
}

#[test]
fn while_redis_refuses_writes_the_server_is_ready_and_says_why_it_is_degraded() {
    let redis = RedisServer::start();
    let folder = TempFolder::new();
    write_config(&folder, &redis.url());
    let server = start(&folder);
    let get = |path: &str| HttpConnection::connect(server.port).send(&format!("GET {path}"), "", "");
    let degraded = "[!]store degraded: refuses writes: Redis refuses writes because fewer replicas are connected";
    let wait_until = |is_refusing: bool| {
        while get("/readyz?verbose").text.contains(degraded) != is_refusing {
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
        let up = format!("\ntoolhub_store_up {}\n", u8::from(!is_refusing));
        let page = get("/metrics").text;
        assert!(page.contains(&up), "{page}");
        assert_eq!(get("/readyz").status, 200);
    };
    wait_until(false);
    // The node renews its row: no call is needed to find out.
    assert_eq!(redis.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]), "OK");
    wait_until(true);
    let url = format!("http://127.0.0.1:{}", server.port);
    let (_, text) = run(&folder, &["doctor", "--server", &url]);
    assert!(text.contains("refuses writes") && text.contains("min-replicas-to-write"), "{text}");
    assert_eq!(redis.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]), "OK");
    wait_until(false);
}

#[test]
fn records_are_copied_from_sqlite_to_redis_with_their_versions_and_found_there() {
    let redis = RedisServer::start();
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "[tools.counter]\nbuiltin = \"counter\"\n");
    let target = TempFolder::new();
    write_config(&target, &redis.url());
    for _ in 0..3 {
        let (code, text) = run(&folder, &["call", "counter", "--thread", "t"]);
        assert_eq!(code, Some(0), "{text}");
    }
    let config = target.path().join("toolhub.toml");
    let copy = ["store", "copy", "--to", config.to_str().expect("a path of ASCII")];
    let (code, text) = run(&folder, &copy);
    assert!(code == Some(0) && text.contains("both stores are the same"), "{text}");
    let (code, text) = run(&folder, &copy);
    assert!(code != Some(0) && text.contains("not empty") && text.contains("store.key_prefix"), "{text}");

    let (code, text) = run(&target, &["call", "counter", "--thread", "t", "--json"]);
    assert!(code == Some(0) && text.contains('4'), "{text}");
    // While a server runs, of the source and of the target.
    let server = start(&target);
    let text = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\nkey_prefix = \"new\"\n", redis.url());
    folder.write("new.toml", &text);
    let new = folder.path().join("new.toml");
    let new = new.to_str().expect("a path of ASCII");
    let (code, text) = run(&target, &["store", "copy", "--to", new]);
    assert!(code == Some(4) && text.contains("the source store is in use") && text.contains("SIGTERM"), "{text}");
    assert_eq!(redis.cli(&["KEYS", "new:*:p:*"]), "", "no record was written");
    let (code, text) = run(&folder, &copy);
    assert!(code == Some(4) && text.contains("the target store is in use"), "{text}");
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().0, Some(0));
    let (_, text) = run(&target, &["calls", "list", "--tool", "counter", "--json"]);
    let calls: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(calls["items"].as_array().map(Vec::len), Some(4), "{text}");

    folder.write(
        "more.toml",
        &format!(
            "[store]\nbackend = \"redis\"\nurl = \"{}\"\nkey_prefix = \"many\"\n[store.redis]\nbuckets = 64\n",
            redis.url()
        ),
    );
    let more = folder.path().join("more.toml");
    let (code, text) = run(&target, &["store", "copy", "--json", "--to", more.to_str().expect("a path of ASCII")]);
    assert!(code == Some(0) && text.contains("\"state\""), "{text}");
    let (code, text) = run(&target, &["store", "copy", "--to", "nothing.toml"]);
    assert!(code != Some(0) && text.contains("nothing.toml"), "{text}");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "no runtime runs in this test")]
fn a_store_counts_as_in_use_for_as_long_as_its_killed_server_may_have_been_silent() {
    let redis = RedisServer::start();
    let folder = TempFolder::new();
    let text = |timeout: &str, prefix: &str| {
        let url = redis.url();
        format!(
            "[store]\nbackend = \"redis\"\nurl = \"{url}\"\nkey_prefix = \"{prefix}\"\nnode_timeout = \"{timeout}\"\n"
        )
    };
    folder.write("toolhub.toml", &text("1h", "toolhub"));
    let server = start(&folder);
    server.signal("KILL");
    drop(server);
    // The config of the command names a shorter time, which is over.
    folder.write("toolhub.toml", &text("300ms", "toolhub"));
    folder.write("new.toml", &text("300ms", "new"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    let new = folder.path().join("new.toml");
    let (code, text) = run(&folder, &["store", "copy", "--to", new.to_str().expect("a path of ASCII")]);
    assert!(code == Some(4) && text.contains("the source store is in use") && text.contains("3600s"), "{text}");
}

#[test]
fn a_copy_keeps_what_has_not_expired_by_the_clock_of_the_store() {
    let (redis, folder) = (RedisServer::start(), TempFolder::new());
    let library = compile_preloaded(&folder);
    let offset = folder.join("offset").display().to_string();
    let config = format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\n", redis.url());
    folder.write("toolhub.toml", &format!("{config}[tools.counter]\nbuiltin = \"counter\"\n"));
    folder.write("new.toml", &format!("{config}key_prefix = \"new\"\n"));
    // Its record is kept for 30 days.
    let (code, text) = run(&folder, &["call", "counter", "--thread", "t"]);
    assert_eq!(code, Some(0), "{text}");
    folder.write("offset", &YEAR.to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolhub"));
    command.args(["store", "copy", "--json", "--to", "new.toml"]).current_dir(folder.path()).env_clear();
    command.env("HOME", folder.path()).env("LD_PRELOAD", library).env("CLOCK_OFFSET_FILE", offset);
    let output = command.output().expect("the binary can be started");
    let copied: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(copied["tables"]["calls"], 1, "{copied}");
}

#[test]
fn a_command_is_a_node_without_address_while_it_runs() {
    let (redis, folder) = (RedisServer::start(), TempFolder::new());
    write_config(&folder, &redis.url());
    for _ in 0..2 {
        let (code, text) = run(&folder, &["nodes", "--json"]);
        let nodes: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let [node] = &nodes["items"].as_array().unwrap()[..] else { panic!("those before have left: {text}") };
        let is_command = node["name"].as_str().is_some_and(|name| name.ends_with(" (command)"));
        assert!(code == Some(0) && is_command && node["address"].is_null(), "{text}");
    }
}
