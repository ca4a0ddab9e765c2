//! Signals to a running server.

use std::{io::Write, thread, time::Duration};
use toolhub_testkit::TempFolder;

use super::{HttpConnection, Process, TOOLS, calculate};

#[test]
fn a_server_that_is_hung_up_on_reads_its_config_again() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", TOOLS);
    let variables = [("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")];
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let mut connection = HttpConnection::connect(server.port);
    assert_eq!(connection.send("GET /api/v1/tools/clock", "", "").status, 404);
    folder.write("toolhub.toml", &format!("{TOOLS}[tools.clock]\nbuiltin = \"clock\"\n"));
    server.signal("HUP");
    let mut found = false;
    for _ in 0..3_000 {
        found = connection.send("GET /api/v1/tools/clock", "", "").status == 200;
        if found {
            break;
        }
        thread::park_timeout(Duration::from_millis(10));
    }
    assert!(found, "the new tool was never registered");
    assert_eq!(calculate(&mut connection), 200);
    // An invalid file changes nothing, and does not stop the server.
    folder.write("toolhub.toml", "[tools.clock]\nbuiltin = \"clok\"\n");
    server.signal("HUP");
    assert_eq!(connection.send("POST /api/v1/reload", "", "").status, 422);
    assert_eq!(connection.send("GET /api/v1/tools/clock", "", "").status, 200);
}

#[test]
fn a_server_that_is_asked_to_stop_twice_stops_at_once() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "[server]\ndrain_timeout = \"10m\"\nbody_timeout = \"10m\"\n");
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")]);
    // A request with a missing body delays the shutdown.
    let mut slow = std::net::TcpStream::connect(("127.0.0.1", server.port)).expect("the server accepts connections");
    let head = "POST /api/v1/threads HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    slow.write_all(head.as_bytes()).expect("the server reads");
    let mut connection = HttpConnection::connect(server.port);
    assert_eq!(connection.send("GET /readyz", "", "").status, 200);
    server.signal("TERM");
    while connection.try_send("GET /readyz", "", "").is_some_and(|response| response.status == 200) {
        thread::park_timeout(Duration::from_millis(5));
    }
    server.signal("TERM");
    let (code, ..) = server.wait_for_exit();
    assert_eq!(code, Some(130));
}
