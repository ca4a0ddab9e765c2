//! REST tools, command tools and imports, in a config, over the API and from the command line.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use toolhub_testkit::TempFolder;

use super::{connection::HttpConnection, process::Process, service::Service};
use crate::config::run_toolhub;

const LOG_OFF: (&str, &str) = ("TOOLHUB__TELEMETRY__LOG__LEVEL", "off");

fn call(connection: &mut HttpConnection, tool: &str, arguments: &Value) -> Value {
    let body = json!({ "arguments": arguments, "threadId": "t" }).to_string();
    connection.send(&format!("POST /api/v1/tools/{tool}/calls"), "", &body).json()
}

fn tool_status(connection: &mut HttpConnection, tool: &str) -> String {
    connection.send(&format!("GET /api/v1/tools/{tool}"), "", "").json()["status"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Polls until the condition holds. The timeout is much longer than needed, so only a failing test reaches it.
#[track_caller]
pub(super) fn wait_until(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "the condition never held");
        std::thread::yield_now();
    }
}

#[test]
fn a_config_makes_tools_of_requests_and_programs() {
    let (folder, service) = (TempFolder::new(), Service::start());
    let port = service.port;
    folder.write("key.txt", "key-of-the-file\n");
    folder.write(
        "toolhub.toml",
        &format!(
            r#"
            [tools.find]
            url = "http://127.0.0.1:{port}/v1/{{kind}}?q={{words}}"
            allow_hosts = ["127.0.0.1"]
            headers = {{ X-Plain = "shown", X-Api-Key = {{ env = "SERVICE_KEY" }} }}
            auth = {{ type = "bearer", token = {{ file = "key.txt" }} }}
            result = {{ select = "/asked" }}
            [tools.closed]
            url = "http://127.0.0.1:{port}/"
            [tools.say]
            command = "cat"
            env = {{ GREETING = "hello" }}
            parameters = {{ type = "object", properties = {{ word = {{ type = "string" }} }} }}
            "#
        ),
    );
    let refused = run_toolhub(folder.path(), &["config", "check"], &[]);
    assert!(refused.err.contains("environment variable SERVICE_KEY"), "{}", refused.err);
    let variables = [LOG_OFF, ("SERVICE_KEY", "key-of-the-{variable}"), ("PATH", "/usr/bin:/bin")];
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &variables);
    let mut connection = HttpConnection::connect(server.port);

    let found = call(&mut connection, "find", &json!({"kind": "a/b?c", "words": "x&y=1"}));
    assert_eq!(found["output"], "GET /v1/a%2Fb%3Fc?q=x%26y%3D1 HTTP/1.1", "{found}");
    let request = service.requests().pop().expect("one request").to_lowercase();
    for wanted in ["authorization: bearer key-of-the-file", "x-api-key: key-of-the-{variable}", "x-plain: shown"] {
        assert!(request.contains(wanted), "{request}");
    }
    let closed = call(&mut connection, "closed", &json!({}));
    assert!(closed["error"]["detail"].as_str().unwrap_or_default().contains("address refused"), "{closed}");
    assert_eq!(service.requests().len(), 1, "nothing was sent to a blocked address");

    let outcome = call(&mut connection, "say", &json!({"word": "yes"}));
    assert_eq!(outcome["output"]["arguments"], json!({"word": "yes"}), "{outcome}");
    let values = connection.send("GET /api/v1/config?origins=true", "", "").json();
    let source_of = |key: &str| {
        let found = values["items"].as_array().unwrap().iter().find(|item| item["key"] == key);
        let found = found.unwrap_or_else(|| panic!("no {key}: {values}"));
        (found["source"].as_str().unwrap(), found["origin"].as_str().unwrap())
    };
    assert_eq!(source_of("server.port"), ("flag", "flag --port 0"));
    assert_eq!(source_of("server.host"), ("default", "default"));
    assert_eq!(source_of("telemetry.log.level"), ("environment", "env TOOLHUB__TELEMETRY__LOG__LEVEL"));
    assert_eq!(source_of("tools.find.url"), ("file", "toolhub.toml:3"));
    for route in ["GET /api/v1/tools/find", "GET /api/v1/config", "GET /api/v1/config?origins=true", "GET /metrics"] {
        let text = connection.send(route, "", "").text;
        assert!(!text.contains("key-of-the"), "{route}: {text}");
    }
}

#[test]
fn a_service_that_dies_takes_its_tool_out_of_every_thread_and_brings_it_back() {
    let (folder, service) = (TempFolder::new(), Service::start());
    let address = format!("http://127.0.0.1:{}", service.port);
    folder.write(
        "toolhub.toml",
        &format!(
            "status = {{ failure_duration = \"1s\" }}\n[tools.ask]\nurl = \"{address}/\"\nallow_hosts = [\"127.0.0.1\"]\n\
             connection = {{ retry_attempts = 1 }}\n"
        ),
    );
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[LOG_OFF]);
    let mut connection = HttpConnection::connect(server.port);
    assert_eq!(call(&mut connection, "ask", &json!({}))["status"], "success");
    service.set_healthy(false);
    wait_until(|| {
        call(&mut connection, "ask", &json!({}));
        tool_status(&mut connection, "ask") == "failed"
    });
    let offered = connection.send("GET /api/v1/tools/export?format=openai&threadId=another", "", "");
    assert!(!offered.text.contains("\"ask\""), "withheld from every thread: {}", offered.text);
    service.set_healthy(true);
    wait_until(|| call(&mut connection, "ask", &json!({}))["status"] == "success");
    assert_eq!(tool_status(&mut connection, "ask"), "available");
}

#[test]
fn requests_come_over_the_api_and_what_belongs_to_the_machine_does_not() {
    let (folder, service) = (TempFolder::new(), Service::start());
    let url = format!("http://127.0.0.1:{}/{{a}}", service.port);
    let start = || Process::start(folder.path(), &["serve", "--port", "0"], &[LOG_OFF]);
    let write_config = |hosts: &str| folder.write("toolhub.toml", &format!("server = {{ tool_hosts = [{hosts}] }}\n"));
    write_config("\"127.0.0.1\"");
    let server = start();
    let mut connection = HttpConnection::connect(server.port);
    let create = |connection: &mut HttpConnection, more: Value| {
        let mut tool = json!({ "name": "made", "url": url });
        tool.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let response = connection.send("POST /api/v1/tools", "", &tool.to_string());
        (response.status, response.text)
    };
    for (more, word) in [
        (json!({"allowHosts": ["127.0.0.1"]}), "tool_hosts"),
        (json!({"args": ["-c", "true"]}), "config file"),
        (json!({"auth": {"type": "bearer", "token": {"file": "/etc/hostname"}}}), "must be a string"),
        (json!({"headers": {"X-Key": {"env": "HOME"}}}), "must be a string"),
        (json!({"caFile": "/etc/hostname"}), "config file"),
        (json!({"method": "FETCH"}), "GET"),
        (json!({"method": "POST", "body": {"list": [1, null]}}), "`/body/list/1` is null"),
        (json!({"url": "ftp://example.org/"}), "http"),
        (json!({"url": "https://me:hunter2@example.org/"}), "a user or a password"),
        (json!({"healthUrl": "https://me:hunter2@example.org/"}), "a user or a password"),
        (json!({"headers": {"X-Key": "hunter2{"}}), "without an argument name"),
        (json!({"url": "http://10.0.0.1/"}), "add the host to `server.tool_hosts`"),
    ] {
        let (status, text) = create(&mut connection, more);
        assert!(status == 422 && text.contains(word), "{status} {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    // All problems are reported together, each with the key as the client wrote it.
    let several = json!({"args": ["x"], "caFile": "f", "auth": {"type": "bearer", "token": {"env": "HOME"}}, "retry": {"attempts": 0}});
    let (_, text) = create(&mut connection, several);
    let keys = ["`args`", "`ca_file`", "`auth`", "`retry.attempts`"];
    assert!(keys.iter().all(|key| text.contains(key)) && !text.contains("tools.made"), "{text}");
    let (_, text) = create(&mut connection, json!({"headers": {"Authorization": "hunter2\n"}}));
    assert!(text.contains("`headers.Authorization`: ") && !text.contains("hunter2"), "{text}");
    let (status, text) = create(&mut connection, json!({"auth": {"type": "bearer", "token": "token-of-the-api"}}));
    assert!(status == 201 && !text.contains("token-of-the-api"), "{status} {text}");

    // The operator forbids the host; the tool survived the restart.
    let restart = |connection: HttpConnection, server: Process| {
        drop(connection);
        server.signal("TERM");
        assert_eq!(server.wait_for_exit().0, Some(0));
        let server = start();
        (HttpConnection::connect(server.port), server)
    };
    write_config("");
    let (mut connection, server) = restart(connection, server);
    let closed = call(&mut connection, "made", &json!({"a": "1"}));
    assert!(closed.to_string().contains("tool_hosts") || closed.to_string().contains("address refused"), "{closed}");
    assert!(service.requests().is_empty());

    // The operator allows the host; the tool survived the restart.
    write_config("\"127.0.0.1\"");
    let (mut connection, _server) = restart(connection, server);
    assert_eq!(call(&mut connection, "made", &json!({"a": "1"}))["status"], "success");
    assert!(service.requests()[0].contains("token-of-the-api"));
    let put = json!({ "url": url, "method": "POST", "body": {"whole": "{a}"} });
    assert_eq!(connection.send("PUT /api/v1/tools/made", "", &put.to_string()).status, 200);
    assert_eq!(call(&mut connection, "made", &json!({"a": "2"}))["status"], "success");
    assert!(service.requests()[1].starts_with("POST /2 ") && service.requests()[1].contains(r#"{"whole":"2"}"#));
    let tokens = format!("http://127.0.0.1:{}/token", service.port);
    let oauth = json!({"type": "oauth2", "tokenUrl": tokens, "clientId": "me", "clientSecret": "hunter2",
        "tokenFields": {"forWhom": "my api"}});
    let put = json!({ "url": url, "auth": oauth });
    assert_eq!(connection.send("PUT /api/v1/tools/made", "", &put.to_string()).status, 200);
    assert_eq!(call(&mut connection, "made", &json!({"a": "3"}))["status"], "error", "the service issues no tokens");
    assert!(
        service.requests()[2].ends_with("grant_type=client_credentials&forWhom=my%20api"),
        "{}",
        service.requests()[2]
    );
    assert_eq!(connection.send("DELETE /api/v1/tools/made", "", "").status, 204);
    assert_eq!(connection.send("GET /api/v1/tools/made", "", "").status, 404);
}

#[test]
fn hosts_for_tools_of_the_api_hold_from_the_next_reload_on() {
    let (folder, service) = (TempFolder::new(), Service::start());
    folder.write("toolhub.toml", "# none\n");
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[LOG_OFF]);
    let mut connection = HttpConnection::connect(server.port);
    let tool = json!({ "name": "made", "url": format!("http://127.0.0.1:{}/", service.port) });
    let refused = connection.send("POST /api/v1/tools", "", &tool.to_string());
    assert!(refused.status == 422 && refused.text.contains("`server.tool_hosts`"), "{}", refused.text);
    let allowed = "server = { tool_hosts = [\"127.0.0.1\"] }\n";
    folder.write("toolhub.toml", allowed);
    assert_eq!(connection.send("POST /api/v1/reload", "", "").status, 200);
    assert_eq!(connection.send("POST /api/v1/tools", "", &tool.to_string()).status, 201);
    for (config, expected) in [("# none\n", "error"), (allowed, "success"), ("# none\n", "error")] {
        folder.write("toolhub.toml", config);
        let done = connection.send("POST /api/v1/reload", "", "");
        assert_eq!((done.status, &done.json()["needsRestart"]), (200, &json!([])), "{}", done.text);
        assert_eq!(call(&mut connection, "made", &json!({}))["status"], expected, "{config}");
    }
    assert_eq!(service.requests().len(), 1);
}

#[test]
fn a_change_of_a_tool_that_cannot_be_kept_is_not_made() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "server = { body_limit = \"32MiB\" }\n");
    let arguments = ["serve", "--port", "0"];
    let server = Process::start_with_file_limit(folder.path(), &arguments, &[LOG_OFF], 4 << 20);
    let mut connection = HttpConnection::connect(server.port);
    let tool = |name: &str, words: &str, body: usize| {
        let body = "x".repeat(body);
        json!({ "name": name, "url": "https://x.example/", "method": "POST", "description": words, "body": {"x": body} })
            .to_string()
    };
    assert_eq!(connection.send("POST /api/v1/tools", "", &tool("small", "the first", 1)).status, 201);
    for request in ["POST /api/v1/tools", "PUT /api/v1/tools/small"] {
        let name = if request.starts_with("POST") { "large" } else { "small" };
        let refused = connection.send(request, "", &tool(name, "the second", 8 << 20));
        assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("store_unavailable")), "{}", refused.text);
    }
    assert_eq!(connection.send("GET /api/v1/tools/large", "", "").status, 404);
    assert_eq!(connection.send("GET /api/v1/tools/small", "", "").json()["description"], "the first");
}

const PETS: &str = r#"
openapi: 3.1.0
info: { title: Pets, version: "1" }
servers: [{ url: "https://pets.example/v1" }]
components: { securitySchemes: { key: { type: apiKey, in: header, name: X-Key } } }
security: [{ key: [] }]
paths:
  /pets/{id}:
    get:
      operationId: showPet
      summary: One pet
      parameters: [{ name: id, in: path, required: true, schema: { type: integer } }]
    delete:
      operationId: removePet
      parameters: [{ name: id, in: path, required: true, schema: { type: integer } }]
  /pets/{id}/picture:
    put:
      operationId: paint
      parameters: [{ name: id, in: path, required: true, schema: { type: integer } }]
      requestBody: { content: { "image/png": {} } }
"#;

#[test]
fn a_document_is_imported_from_the_command_line_and_its_operations_are_called() {
    let (folder, service) = (TempFolder::new(), Service::start());
    folder.write("toolhub.toml", "# mine\n");
    folder.write("pets.yaml", PETS);
    let base = format!("http://127.0.0.1:{}", service.port);
    let import =
        ["import", "openapi", "pets.yaml", "--prefix", "pet", "--base-url", &base, "--allow-host", "127.0.0.1"];
    let run = |more: &[&str], variables: &[(&str, &str)]| {
        run_toolhub(folder.path(), &[&import[..], more].concat(), variables)
    };

    let shown = run(&["--dry-run"], &[]);
    assert!(shown.out.contains("pet__showPet") && shown.out.contains("DELETE /pets/{id}"), "{}", shown.out);
    assert!(!shown.out.contains('\x1b'), "colours are for terminals: {:?}", shown.out);
    assert!(shown.err.contains("2 tools of") && shown.err.contains("1 operation left out"), "{}", shown.err);
    assert!(shown.err.contains("PUT /pets/{id}/picture") && shown.err.contains("nothing was written"), "{}", shown.err);
    assert!(shown.err.contains("PET_KEY"), "the required secret is named: {}", shown.err);
    assert_eq!(folder.read("toolhub.toml"), "# mine\n");

    let written = run(&[], &[("PET_KEY", "key-of-pets")]);
    assert_eq!(written.code, 0, "{}", written.err);
    let config = folder.read("toolhub.toml");
    assert!(config.starts_with("# mine\n") && config.contains("env = \"PET_KEY\""), "{config}");
    let twice = run(&[], &[("PET_KEY", "key-of-pets")]);
    assert!(twice.code == 2 && twice.err.contains("is imported already"), "{} {}", twice.code, twice.err);
    assert_eq!(folder.read("toolhub.toml"), config, "an invalid config is not written");

    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[LOG_OFF, ("PET_KEY", "key-of-pets")]);
    let mut connection = HttpConnection::connect(server.port);
    let pet = call(&mut connection, "pet__showPet", &json!({"id": 7}));
    assert_eq!(pet["output"]["asked"], "GET /pets/7 HTTP/1.1", "{pet}");
    assert!(service.requests()[0].to_lowercase().contains("x-key: key-of-pets"));
    let pending = call(&mut connection, "pet__removePet", &json!({"id": 7}));
    assert_eq!(
        pending["status"], "awaiting_approval",
        "imported operations that are not read-only require approval: {pending}"
    );
}

#[test]
fn a_document_that_is_none_is_refused_with_words() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", "");
    folder.write("old.json", r#"{"swagger": "2.0", "paths": {}}"#);
    for (spec, word) in
        [("old.json", "swagger2openapi"), ("none.yaml", "cannot read"), ("http://127.0.0.1:1/x", "cannot fetch")]
    {
        let refused = run_toolhub(folder.path(), &["import", "openapi", spec], &[]);
        assert!(refused.code == 2 && refused.err.contains(word), "{} {}", refused.code, refused.err);
    }
}

#[test]
fn a_reload_ends_the_processes_of_tools_that_changed_and_of_no_others() {
    let folder = TempFolder::new();
    // Returns its process id.
    let write = |changed: &str| {
        let program = r#"while read -r line; do echo "{\"result\": $$}"; done"#;
        let tool = |name: &str, word: &str| {
            format!("[tools.{name}]\nkind = 'stateful'\ncommand = 'sh'\nargs = ['-c', '{program}', '{word}']\n")
        };
        folder.write("toolhub.toml", &(tool("same", "same") + &tool("other", changed)));
    };
    write("before");
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[LOG_OFF, ("PATH", "/usr/bin:/bin")]);
    let mut connection = HttpConnection::connect(server.port);
    let number = |connection: &mut HttpConnection, tool: &str| {
        call(connection, tool, &json!({}))["output"].as_u64().expect("a number")
    };
    let (same, other) = (number(&mut connection, "same"), number(&mut connection, "other"));
    write("after");
    assert_eq!(connection.send("POST /api/v1/reload", "", "").json()["replaced"], json!(["other"]));
    wait_until(|| !std::path::Path::new(&format!("/proc/{other}")).exists());
    assert_eq!(number(&mut connection, "same"), same);
    assert_ne!(number(&mut connection, "other"), other);
}
