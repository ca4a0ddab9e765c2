//! The binary with a store whose file is damaged.

use toolhub_testkit::TempFolder;

use super::{HttpConnection, Process};
use crate::config::run_toolhub;

#[test]
fn a_damaged_file_is_shown_with_its_remedy_and_the_server_stays_ready() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "[tools.clock]\nbuiltin = \"clock\"\n[store]\npath = \"store.db\"\n");
    let variables = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")];
    let start = || Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let server = start();
    let mut connection = HttpConnection::connect(server.port);
    let called = connection.send("POST /api/v1/tools/clock/calls", "idempotency-key: order-7\r\n", "{}");
    assert_eq!(called.status, 200, "{}", called.text);
    assert!(!connection.send("GET /readyz?verbose", "", "").text.contains("damaged"));
    server.signal("TERM");
    server.wait_for_exit();

    // The row of the key and its index entries no longer agree.
    let (path, key) = (folder.join("store.db"), b"/k/clock/order-7");
    let read = || std::fs::read(&path).expect("the store is there");
    let find = |file: &[u8]| file.windows(key.len()).position(|bytes| bytes == key);
    // Under load, a server may exit before SQLite has moved its last rows from the log to the file; the next one does.
    for _ in 0..10 {
        if find(&read()).is_some() {
            break;
        }
        let server = start();
        server.signal("TERM");
        server.wait_for_exit();
    }
    let mut file = read();
    let at = find(&file).expect("the key is stored");
    file[at + key.len() - 1] = b'8';
    std::fs::write(&path, file).expect("the store is written");
    let check_doctor = |arguments: &[&str]| {
        let doctor = run_toolhub(folder.path(), arguments, &[]);
        assert!(doctor.out.contains("store.db is damaged"), "{}{}", doctor.out, doctor.err);
        assert!(doctor.out.contains("toolhub restore FILE"), "{}", doctor.out);
    };
    check_doctor(&["doctor"]);

    let server = start();
    let ready = HttpConnection::connect(server.port).send("GET /readyz?verbose", "", "");
    assert_eq!(ready.status, 200, "{}", ready.text);
    assert!(ready.text.contains("[!]store degraded: ") && ready.text.contains("is damaged"), "{}", ready.text);
    assert!(ready.text.contains("toolhub restore FILE"), "{}", ready.text);
    check_doctor(&["doctor", "--server", &format!("http://127.0.0.1:{}", server.port)]);
}
