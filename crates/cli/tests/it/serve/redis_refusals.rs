//! Addresses and servers of Redis that cannot hold a store: each is refused with a sentence that says what to change, an exit code of its
//! kind, and nothing written.

use toolhub_testkit::{OldRedis, RedisServer, TempFolder};

use crate::config::run_toolhub;

const UNREACHABLE: i32 = 4;
const USAGE: i32 = 2;

const VARIABLES: [(&str, &str); 3] =
    [("PATH", "/usr/bin:/bin"), ("WRONG_PASSWORD", "wrong"), ("USER_PASSWORD", "secret")];

/// A config that is refused.
struct Case<'a> {
    url: String,
    /// More lines of `[store]`.
    lines: &'a str,
    exit: i32,
    /// What the message says.
    parts: &'a [&'a str],
    /// The server, if it is a real one.
    server: Option<&'a RedisServer>,
}

impl Case<'_> {
    /// Whether the config is refused as it must be, by a server and by the diagnosis.
    #[track_caller]
    fn check(&self) {
        let folder = TempFolder::new();
        folder.write("toolhub.toml", &format!("[store]\nbackend = \"redis\"\nurl = \"{}\"\n{}", self.url, self.lines));
        let rows = || self.server.map(|server| server.cli(&["-a", "right", "--no-auth-warning", "DBSIZE"]));
        let before = rows();
        for command in [&["serve", "--port", "0"][..], &["doctor"]] {
            let done = run_toolhub(folder.path(), command, &VARIABLES);
            assert_eq!(done.code, self.exit, "{command:?} with {}: {done:?}", self.url);
            let text = format!("{}{}", done.out, done.err);
            // A config that cannot be read is explained by the other commands.
            for part in self.parts.iter().filter(|_| command != ["doctor"] || self.exit != USAGE) {
                assert!(text.contains(part), "`{part}` is missing: {text}");
            }
            assert!(
                !text.contains(":wrong") && !text.contains("secret@") && !text.contains("panicked"),
                "a password or a panic: {text}"
            );
            assert_eq!(rows(), before, "{command:?} has written something");
        }
    }
}

#[test]
fn what_cannot_hold_a_store_is_refused_with_what_to_change_and_nothing_is_written() {
    let plain = RedisServer::start();
    let without_file = RedisServer::start_with(&["--appendonly no"]);
    let evicting = RedisServer::start_with(&["--appendonly yes", "--maxmemory-policy allkeys-lru"]);
    let locked = RedisServer::start_with(&["--appendonly yes", "--requirepass right"]);
    let in_cluster = RedisServer::start_with(&["--appendonly yes", "--cluster-enabled yes"]);
    let replica_of = format!("--replicaof 127.0.0.1 {}", plain.port());
    let replica = RedisServer::start_with(&["--appendonly yes", &replica_of]);
    let mut killed = RedisServer::start();
    killed.kill();
    assert_eq!(plain.cli(&["HSET", "later:store", "schema", "7", "buckets", "1"]), "2");
    assert_eq!(plain.cli(&["SET", "foreign:store", "x"]), "OK");
    assert_eq!(
        plain.cli(&["ACL", "SETUSER", "few", "on", ">secret", "~toolhub:*", "&toolhub:*", "+@all", "-hstrlen"]),
        "OK"
    );
    while !replica.is_synchronized() {}

    let unreachable =
        |server: &RedisServer| Case { url: server.url(), lines: "", exit: UNREACHABLE, parts: &[], server: None };
    let with = |url: String| Case { url, lines: "", exit: UNREACHABLE, parts: &[], server: None };
    let cases = [
        Case {
            server: Some(&without_file),
            parts: &["`appendonly yes`", "`store.redis.volatile = true`"],
            ..unreachable(&without_file)
        },
        Case { server: Some(&evicting), parts: &["`maxmemory-policy noeviction`"], ..unreachable(&evicting) },
        Case {
            parts: &["read-only replica", "set `store.url` to its primary"],
            server: Some(&replica),
            ..unreachable(&replica)
        },
        Case {
            server: Some(&locked),
            lines: "[store.redis]\npassword = { env = \"WRONG_PASSWORD\" }\n",
            parts: &["refuses user or password", "`store.redis.user` and `store.redis.password`"],
            ..unreachable(&locked)
        },
        Case {
            exit: USAGE,
            parts: &["`store.url` contains a user or password", "set them as `user` and `password` in [store.redis]"],
            ..with(locked.url().replace("//", "//:wrong@"))
        },
        Case { server: Some(&locked), parts: &["refuses user or password"], ..unreachable(&locked) },
        Case {
            server: Some(&plain),
            lines: "[store.redis]\nuser = \"few\"\npassword = { env = \"USER_PASSWORD\" }\n",
            parts: &["HSTRLEN", "ACL SETUSER"],
            ..unreachable(&plain)
        },
        Case {
            server: Some(&in_cluster),
            parts: &["begin `store.url` with `redis+cluster://`"],
            ..unreachable(&in_cluster)
        },
        Case {
            server: Some(&plain),
            parts: &["belongs to no Cluster", "begin `store.url` with `redis://`"],
            ..with(format!("redis+cluster://127.0.0.1:{}", plain.port()))
        },
        Case { parts: &["no Redis server answers at", "check `store.url`"], ..unreachable(&killed) },
        Case { parts: &["has version 6.2.14", "version 7.0 or later"], ..with(OldRedis::start("6.2.14").url()) },
        Case {
            server: Some(&plain),
            lines: "key_prefix = \"later\"\n",
            parts: &["has schema 7", "use the version that wrote it, or a later one"],
            ..unreachable(&plain)
        },
        Case {
            server: Some(&plain),
            lines: "key_prefix = \"foreign\"\n",
            parts: &["was not written by Toolhub", "another `store.key_prefix`"],
            ..unreachable(&plain)
        },
        Case {
            server: Some(&plain),
            lines: "key_prefix = \"a{b}\"\n",
            exit: USAGE,
            parts: &["`store.key_prefix`", "braces"],
            ..unreachable(&plain)
        },
        Case {
            server: Some(&plain),
            lines: "[store.redis]\nbuckets = 2000\n",
            exit: USAGE,
            parts: &["`store.redis.buckets` must be between 1 and 1024"],
            ..unreachable(&plain)
        },
        Case { exit: USAGE, parts: &["`store.url`"], ..with("http://localhost".to_owned()) },
    ];
    for case in cases {
        case.check();
    }
}

/// A config with the distributed state manager that is refused.
#[track_caller]
fn check_state(settings: &str, parts: &[&str]) {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &format!("[state]\nmanager_type = \"distributed\"\n{settings}"));
    for command in [&["serve", "--port", "0"][..], &["call", "calculator"], &["doctor"]] {
        let done = run_toolhub(folder.path(), command, &VARIABLES);
        let text = format!("{}{}", done.out, done.err);
        assert_eq!(done.code, UNREACHABLE, "{command:?} with {settings}: {text}");
        for part in parts {
            assert!(text.contains(part), "`{part}` is missing: {text}");
        }
        assert!(!text.contains("store.url") && !text.contains("store.key_prefix"), "{text}");
    }
}

#[test]
fn the_server_of_the_distributed_state_manager_is_refused_with_its_own_settings() {
    let plain = RedisServer::start();
    let without_file = RedisServer::start_with(&["--appendonly no"]);
    let locked = RedisServer::start_with(&["--appendonly yes", "--requirepass right"]);
    let replica_of = format!("--replicaof 127.0.0.1 {}", plain.port());
    let replica = RedisServer::start_with(&["--appendonly yes", &replica_of]);
    let mut killed = RedisServer::start();
    killed.kill();
    assert_eq!(plain.cli(&["SET", "tool_state:store", "x"]), "OK");
    while !replica.is_synchronized() {}
    let url = |server: &RedisServer| format!("redis_url = \"redis://127.0.0.1:{}\"\n", server.port());
    check_state(&url(&without_file), &["`appendonly yes`"]);
    check_state(&url(&locked), &["refuses user or password", "`store.redis.password`"]);
    check_state(&url(&replica), &["read-only replica", "set `state.redis_url` to its primary"]);
    check_state(&url(&killed), &["no Redis server answers at", "check `state.redis_url`"]);
    check_state(&url(&plain), &["was not written by Toolhub", "another `state.redis_prefix`"]);
    check_state(
        &format!("{}redis_db = 99\n", url(&plain)),
        &["has no database 99", "lower number in `state.redis_db`"],
    );
}

#[test]
fn doctor_inspects_the_server_of_the_distributed_state_manager() {
    let server = RedisServer::start_with(&["--appendonly yes", "--appendfsync everysec"]);
    let folder = TempFolder::new();
    let url = server.url();
    folder.write("toolhub.toml", &format!("[state]\nmanager_type = \"distributed\"\nredis_url = \"{url}\"\n"));
    let done = run_toolhub(folder.path(), &["doctor"], &VARIABLES);
    let lines: Vec<_> = done.out.lines().filter(|line| line.contains("state store")).collect();
    assert!(lines.iter().any(|line| line.contains("`appendfsync always`")), "{done:?}");
    assert!(lines.iter().any(|line| line.contains("the store in Redis will be created")), "{done:?}");
    assert_eq!((done.code, server.cli(&["DBSIZE"]).as_str()), (0, "0"), "{done:?}");
}
