//! The dashboard of the binary: where the start names it, and who opens it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use toolhub_testkit::TempFolder;

use super::{connection::HttpConnection, process::Process};

/// Starts `serve` with a program that opens URLs, which writes them into `opened` and fails if `failing`.
fn start_with_browser(folder: &TempFolder, arguments: &[&str], failing: bool) -> Process {
    let name = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let end = if failing { "exit 4" } else { "mv part opened" };
    folder.write(&format!("bin/{name}"), &format!("#!/bin/sh\necho \"$1\" > part\n{end}\n"));
    let program = folder.path().join("bin").join(name);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = format!("{}:{}", folder.path().join("bin").display(), std::env::var("PATH").unwrap_or_default());
    Process::start(folder.path(), &[&["serve", "--port", "0"], arguments].concat(), &[("PATH", &path)])
}

#[test]
fn the_dashboard_is_named_first_opened_on_request_and_can_be_switched_off() {
    let folder = TempFolder::new();
    let server = start_with_browser(&folder, &["--open"], false);
    let url = format!("http://127.0.0.1:{}/ui/", server.port);
    let opened = folder.path().join("opened");
    wait_for(&opened);
    assert_eq!(fs::read_to_string(opened).expect("it is text"), format!("{url}\n"));
    assert_eq!(HttpConnection::connect(server.port).send("GET /ui/", "", "").status, 200);
    server.signal("TERM");
    let (code, out, err) = server.wait_for_exit();
    let second_line = out.lines().nth(1).unwrap_or_default();
    assert!(code == Some(0) && second_line == format!("  dashboard    {url}"), "{out}{err}");

    let folder = TempFolder::new();
    let server = start_with_browser(&folder, &["--open"], true);
    wait_for(&folder.path().join("part"));
    assert_eq!(HttpConnection::connect(server.port).send("GET /livez", "", "").status, 200);
    server.signal("TERM");
    assert_eq!(server.wait_for_exit().0, Some(0));

    let server = start_with_browser(&folder, &["--no-ui"], false);
    assert_eq!(HttpConnection::connect(server.port).send("GET /ui/", "", "").status, 404);
    server.signal("TERM");
    let (_, out, _) = server.wait_for_exit();
    assert!(!out.contains("dashboard"), "{out}");
}

/// Waits for a file, whose writer is another process.
#[expect(clippy::disallowed_methods, reason = "no runtime runs in this test")]
fn wait_for(file: &Path) {
    while !file.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
}
