//! Conversion of responses to results.

use std::io::Write;

use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use http_body_util::Full;
use hyper::Response;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use toolhub_connect::rest::{self, Rest};
use toolhub_core::{Content, Effect, ErrorKind, ids::Tenant, testing::AssertOutcome};

use super::support::{Server, allow_local, call, http_response, hub, json_ok, raw_server};

/// The output of a tool for a response.
async fn output_of_response(kind: &'static str, body: &'static [u8], change: impl FnOnce(Rest) -> Rest) -> Value {
    let server = Server::new(move |_| http_response(200, kind, body)).await;
    let hub = hub(change(allow_local(Rest::get(server.url("/"))))).await;
    call(&hub, json!({})).await.assert_success().clone()
}

#[tokio::test]
async fn json_is_structured_and_text_is_text() {
    let plain = |rest| rest;
    for (kind, body, expected) in [
        ("application/json", &b"{\"a\": [1, 2.50]}"[..], json!({"a": [1, 2.50]})),
        ("application/problem+json; charset=utf-8", b"[]", json!([])),
        ("application/json", b"", json!(null)),
        ("text/plain; charset=utf-8", "grün".as_bytes(), json!("grün")),
        ("text/plain; charset=iso-8859-1", b"gr\xfcn", json!("grün")),
        ("text/html", b"<p>", json!("<p>")),
        ("application/x-ndjson", b"{}\n{}", json!("{}\n{}")),
        ("", b"{\"a\": 1}", json!({"a": 1})),
        ("", b"{not", json!("{not")),
    ] {
        assert_eq!(output_of_response(kind, body, plain).await, expected, "{kind}");
    }
    assert_eq!(
        output_of_response("text/plain", b"{\"a\": 1}", |rest| rest.response_format(rest::ResponseFormat::Json)).await,
        json!({"a": 1})
    );
    assert_eq!(
        output_of_response("application/json", b"{}", |rest| rest.response_format(rest::ResponseFormat::Text)).await,
        json!("{}")
    );
}

#[tokio::test]
async fn an_answer_without_a_body_is_told_by_its_head() {
    let server = Server::new(|_| http_response(200, "text/plain", "12345")).await;
    let hub = hub(allow_local(Rest::new("HEAD", server.url("/")))).await;
    let outcome = call(&hub, json!({})).await;
    let expected = json!({"status": 200, "headers": {"content-type": "text/plain", "content-length": "5"}});
    assert_eq!(outcome.assert_success(), &expected);
}

#[tokio::test]
async fn bytes_are_kept_as_an_artifact() {
    let server = Server::new(|_| http_response(200, "image/png", &b"\x89PNG\0\xff"[..])).await;
    let hub = hub(allow_local(Rest::get(server.url("/")))).await;
    let outcome = call(&hub, json!({})).await;
    let output = outcome.assert_success();
    assert_eq!((&output["mimeType"], &output["bytes"]), (&json!("image/png"), &json!(6)));
    let id = outcome.content.iter().find_map(|piece| match piece {
        Content::Artifact { id, .. } => Some(id.clone()),
        _ => None,
    });
    let id = id.unwrap();
    assert_eq!(output["artifactId"], json!(id));
    assert!(outcome.model_text().contains(id.as_str()), "the model text must contain the artifact ID");
    let artifact = hub.artifact(&Tenant::default(), &id).await.unwrap().unwrap();
    assert_eq!((artifact.mime_type.as_str(), &artifact.bytes[..]), ("image/png", &b"\x89PNG\0\xff"[..]));
}

#[tokio::test]
async fn the_owner_chooses_a_part_and_is_told_when_it_is_not_there() {
    let server = Server::new(|_| json_ok(json!({"now": {"temp": 3, "a/b": [7]}, "rest": 1}))).await;
    for (pointer, expected) in
        [("/now/temp", json!(3)), ("/now/a~1b/0", json!(7)), ("", json!({"now": {"temp": 3, "a/b": [7]}, "rest": 1}))]
    {
        let hub = hub(allow_local(Rest::get(server.url("/"))).select(pointer)).await;
        assert_eq!(call(&hub, json!({})).await.assert_success(), &expected, "{pointer}");
    }
    for (pointer, fragment) in [
        ("/now/wind", "`/now` is an object with"),
        ("/no", "the response is an object with now, rest"),
        ("/now/a~1b/4", "a list of 1"),
    ] {
        let hub = hub(allow_local(Rest::post(server.url("/"))).select(pointer)).await;
        let outcome = call(&hub, json!({})).await;
        outcome.assert_effect(Effect::Done).assert_error(ErrorKind::ToolError);
        let error = outcome.error.unwrap();
        assert!(
            error.operator.contains(fragment) && error.operator.contains(pointer) && !error.counts,
            "{}",
            error.operator
        );
    }
}

#[tokio::test]
async fn what_is_no_json_is_the_services_fault() {
    let server = Server::new(|_| http_response(200, "application/json", "{\"a\": ")).await;
    let hub = hub(allow_local(Rest::post(server.url("/")))).await;
    let outcome = call(&hub, json!({})).await;
    outcome.assert_effect(Effect::Done).assert_error(ErrorKind::UpstreamError);
    assert!(outcome.error.unwrap().operator.contains("not valid JSON (line 1, column"));
}

fn compress(coding: &str, body: &[u8]) -> Vec<u8> {
    let level = Compression::best();
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), level);
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        "zlib" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
        _ => {
            let mut encoder = DeflateEncoder::new(Vec::new(), level);
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        }
    }
}

async fn compressing_server(coding: &'static str, body: Vec<u8>) -> Server {
    Server::new(move |_| {
        let response = Response::builder().header("content-type", "text/plain").header("content-encoding", coding);
        response.body(Full::from(body.clone())).unwrap()
    })
    .await
}

#[tokio::test]
async fn packed_answers_are_unpacked() {
    let text = "a long text, ".repeat(10_000);
    let mut twice = compress("gzip", b"one ");
    twice.extend(compress("gzip", b"two"));
    for (coding, body, expected) in [
        ("gzip", compress("gzip", text.as_bytes()), text.as_str()),
        ("x-gzip", compress("gzip", b"x"), "x"),
        ("deflate", compress("zlib", text.as_bytes()), &text),
        ("deflate", compress("raw", text.as_bytes()), &text),
        ("identity", b"plain".to_vec(), "plain"),
        ("gzip", twice, "one two"),
    ] {
        let server = compressing_server(coding, body).await;
        let tool = allow_local(Rest::get(server.url("/")))
            .tool_with("it", super::support::any_object_schema())
            .text_limit(1_000_000);
        let hub = super::support::hub_with_tool(tool).await;
        assert_eq!(call(&hub, json!({})).await.assert_success(), &json!(expected), "{coding}");
        assert_eq!(server.single_request().header("accept-encoding"), "gzip, deflate");
    }
}

#[tokio::test]
async fn what_cannot_be_unpacked_is_the_services_fault() {
    let mut truncated = compress("gzip", b"a text that is truncated");
    truncated.truncate(truncated.len() - 6);
    for (coding, body) in [
        ("gzip", b"not gzip at all".to_vec()),
        ("gzip", truncated),
        ("br", b"x".to_vec()),
        ("deflate", vec![0x78, 0xff]),
    ] {
        let server = compressing_server(coding, body).await;
        let hub = hub(allow_local(Rest::get(server.url("/")))).await;
        call(&hub, json!({})).await.assert_error(ErrorKind::UpstreamError);
    }
}

#[tokio::test]
async fn a_bomb_is_stopped_when_it_is_larger_than_it_may_be() {
    // It decompresses to a thousand times its size, far beyond the limit.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    let zeroes = vec![0; 1024 * 1024];
    for _ in 0..16 {
        bomb.write_all(&zeroes).unwrap();
    }
    let server = compressing_server("gzip", bomb.finish().unwrap()).await;
    let hub = hub(allow_local(Rest::get(server.url("/"))).max_unpacked(64 * 1024)).await;
    let outcome = call(&hub, json!({})).await;
    let text = outcome.assert_error(ErrorKind::ToolError);
    assert!(text.contains("65536 bytes after decompression"), "{text}");
}

#[tokio::test]
async fn an_answer_is_read_only_up_to_its_limit() {
    // Endless bodies, with and without a length.
    for head in ["content-length: 99999999999", "transfer-encoding: chunked"] {
        let address = raw_server(move |mut stream| async move {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n").as_bytes()).await;
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
        })
        .await;
        let hub = hub(allow_local(Rest::post(format!("http://{address}/"))).max_response(100_000)).await;
        let outcome = call(&hub, json!({})).await;
        let text = outcome.assert_effect(Effect::Done).assert_error(ErrorKind::ToolError);
        assert!(text.contains("larger than 100000 bytes"), "{text}");
        assert!(!outcome.error.unwrap().counts, "the size depends on the arguments, not on the service");
    }
    let exact = Server::new(|_| http_response(200, "text/plain", "x".repeat(1000))).await;
    let hub = hub(allow_local(Rest::get(exact.url("/"))).max_response(1000)).await;
    call(&hub, json!({})).await.assert_success();
}

#[tokio::test]
async fn an_answer_of_too_many_values_is_not_parsed() {
    let server = Server::new(|seen| {
        let count = if seen.target == "/wide" { 900_000 } else { 99_999 };
        http_response(200, "application/json", format!("[{}]", vec!["0"; count].join(",")))
    })
    .await;
    let exact = hub(allow_local(Rest::get(server.url("/exact")))).await;
    call(&exact, json!({})).await.assert_success();
    let wide = hub(allow_local(Rest::get(server.url("/wide")))).await;
    let outcome = call(&wide, json!({})).await;
    let text = outcome.assert_error(ErrorKind::ToolError);
    assert!(text.contains("more than 100000 JSON values"), "{text}");
    assert!(!outcome.error.unwrap().counts, "the size depends on the arguments, not on the service");
}

#[tokio::test]
async fn an_answer_without_a_body_may_say_how_the_body_would_be_packed() {
    let server = Server::new(|seen| {
        let status = if seen.target == "/nothing" { 204 } else { 200 };
        Response::builder().status(status).header("content-encoding", "gzip").body(Full::default()).unwrap()
    })
    .await;
    for (method, path) in [("HEAD", "/"), ("GET", "/"), ("DELETE", "/nothing")] {
        let hub = hub(allow_local(Rest::new(method, server.url(path)))).await;
        call(&hub, json!({})).await.assert_success();
    }
    let strange = Server::new(|_| Response::builder().header("content-encoding", "br").body(Full::default()).unwrap());
    let hub = hub(allow_local(Rest::new("HEAD", strange.await.url("/")))).await;
    call(&hub, json!({})).await.assert_success();
}
