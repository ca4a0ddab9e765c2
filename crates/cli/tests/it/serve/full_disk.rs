//! The binary on a disk that is full.

use serde_json::json;
use toolhub_testkit::TempFolder;

use super::{HttpConnection, Process};

/// Two tools that fill the disk and free it again. They only read, as far as the server knows, so that their calls need no space.
const CONFIG: &str = r#"
[store]
path = "disk/store.db"
[tools.clock]
builtin = "clock"
[tools.fill]
command = "sh"
args = ["-c", "cat /dev/zero > disk/filler 2> /dev/null; echo '{}'"]
annotations = { read_only = true }
[tools.free]
command = "sh"
args = ["-c", "rm disk/filler; echo '{}'"]
annotations = { read_only = true }
"#;

#[test]
fn a_full_disk_makes_the_server_unready_until_there_is_space() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", CONFIG);
    let variables = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "off"), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")];
    let server = Process::start_on_small_disk(folder.path(), &["serve", "--port", "0"], &variables, ("disk", 8 << 20));
    let mut connection = HttpConnection::connect(server.port);
    let mut call = |tool: &str, key: &str| {
        connection.send(&format!("POST /api/v1/tools/{tool}/calls"), &format!("idempotency-key: {key}\r\n"), "{}")
    };
    let mut health = HttpConnection::connect(server.port);
    assert_eq!(call("clock", "before").status, 200);
    assert_eq!(health.send("GET /readyz", "", "").status, 200);
    assert_eq!(health.send("POST /api/v1/tools/fill/calls", "", "{}").json()["status"], "success");
    // What was allocated before may have room for a few more.
    let calls = (0..1_000).map(|number| call("clock", &format!("full-{number}")));
    let refused = calls.into_iter().find(|called| called.status != 200).expect("the disk is full");
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("store_unavailable")), "{}", refused.text);
    let ready = health.send("GET /readyz?verbose", "", "");
    assert!(ready.status == 503 && ready.text.contains("[-]store cannot write: the disk with "), "{}", ready.text);
    assert_eq!(health.send("POST /api/v1/tools/free/calls", "", "{}").json()["status"], "success");
    assert_eq!(health.send("GET /readyz", "", "").status, 200);
    assert_eq!(call("clock", "after").status, 200);
}
