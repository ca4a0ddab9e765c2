//! Imports a document and calls its tools through a hub, for the suite `openapi` of `./test`.
//!
//! usage: openapi_calls DOCUMENT BASE_URL [CREDENTIALS]
//!
//! CREDENTIALS is a JSON object: names of security schemes, each with `"token"` or `"password"` for the kind of credential to make up.
//! The program prints one line with a report of the import; then, for each line `{"tool": …, "arguments": …}` on stdin, one line with
//! the outcome of the call. It exits at the end of stdin.

use std::{
    collections::BTreeMap,
    error::Error,
    io::{BufRead, Write},
    path::Path,
};

use serde_json::{Value, json};
use tokio::time::Instant;
use toolhub_connect::{
    openapi::{self, Credential, ImportedDocument, Options, Plan},
    rest::{ParameterLocation, Secret},
};
use toolhub_core::ToolHub;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [document, base_url, optional @ ..] = &args[..] else {
        return Err("usage: openapi_calls DOCUMENT BASE_URL [CREDENTIALS]".into());
    };
    let kinds: BTreeMap<String, String> =
        optional.first().map_or(Ok(BTreeMap::new()), |text| serde_json::from_str(text))?;
    let options = Options {
        prefix: Some("t".into()),
        base_url: Some(base_url.clone()),
        credentials: kinds.into_iter().map(|(name, kind)| (name, credential(&kind))).collect(),
        trust: true,
        ..Options::default()
    };
    let start = Instant::now();
    let value = openapi::load(Path::new(document))?;
    let load_time = start.elapsed();
    let imported = openapi::import_value(&value, &options)?;
    let import_time = start.elapsed() - load_time;
    let start = Instant::now();
    let tools = imported.plans.iter().map(|plan| plan.tool_with_request(plan.request().allow_host("127.0.0.1")));
    let hub = ToolHub::builder().tools(tools.collect::<Vec<_>>()).build().await?;
    let mut report = import_report(&imported);
    report["seconds"] = json!([load_time, import_time, start.elapsed()].map(|time| time.as_secs_f64()));
    print_line(&report)?;
    for line in std::io::stdin().lock().lines() {
        let call: Value = serde_json::from_str(&line?)?;
        let outcome = hub.call(call["tool"].as_str().unwrap_or_default(), call["arguments"].clone()).await;
        print_line(&json!({"ok": outcome.is_success(), "text": outcome.model_text()}))?;
    }
    Ok(())
}

fn credential(kind: &str) -> Credential {
    match kind {
        "password" => Credential::Password { user: "somebody".into(), password: Secret::literal("open-sesame") },
        _ => Credential::Token(Secret::literal("open-sesame")),
    }
}

fn print_line(value: &Value) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()
}

fn import_report(imported: &ImportedDocument) -> Value {
    let warning = |warning: &openapi::Warning| json!({"text": warning.to_string(), "skipped": warning.skipped});
    json!({
        "title": imported.title,
        "tools": imported.plans.iter().map(plan_report).collect::<Vec<_>>(),
        "warnings": imported.warnings.iter().map(warning).collect::<Vec<_>>(),
    })
}

fn plan_report(plan: &Plan) -> Value {
    let location = |location: ParameterLocation| match location {
        ParameterLocation::Path => "path",
        ParameterLocation::Query => "query",
        ParameterLocation::Header => "header",
        ParameterLocation::Cookie => "cookie",
    };
    let body = plan.body.as_ref().map(|body| {
        json!({"mediaType": body.media_type, "argument": body.argument, "members": body.members, "required": body.required})
    });
    let parameters = plan.parameters.iter().map(
        |parameter| json!({"argument": parameter.argument, "name": parameter.name, "place": location(parameter.location)}),
    );
    json!({
        "name": plan.name, "original": plan.original_name, "method": plan.method, "path": plan.path, "schema": plan.schema,
        "parameters": parameters.collect::<Vec<_>>(), "body": body,
    })
}
