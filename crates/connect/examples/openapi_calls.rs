//! Imports a document and calls its tools through a hub, for the suite `openapi` of `./test`.
//!
//! usage: openapi_calls DOCUMENT BASE_URL [CREDENTIALS]
//!
//! CREDENTIALS is JSON: the name of a security scheme, and `"token"` or `"password"` for what is made up for it. First one line is
//! printed that tells everything about the import; then, for each line `{"tool": …, "arguments": …}` that is read, one line with how
//! the call ended. Ends when its input does.

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
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [document, base_url, more @ ..] = &words[..] else {
        return Err("usage: openapi_calls DOCUMENT BASE_URL [CREDENTIALS]".into());
    };
    let kinds: BTreeMap<String, String> =
        more.first().map_or(Ok(BTreeMap::new()), |text| serde_json::from_str(text))?;
    let options = Options {
        prefix: Some("t".into()),
        base_url: Some(base_url.clone()),
        credentials: kinds.into_iter().map(|(name, kind)| (name, credential(&kind))).collect(),
        trust: true,
        ..Options::default()
    };
    let begin = Instant::now();
    let value = openapi::load(Path::new(document))?;
    let read = begin.elapsed();
    let imported = openapi::import_value(&value, &options)?;
    let import = begin.elapsed() - read;
    let begin = Instant::now();
    let tools = imported.plans.iter().map(|plan| plan.tool_with_request(plan.request().allow_host("127.0.0.1")));
    let hub = ToolHub::builder().tools(tools.collect::<Vec<_>>()).build().await?;
    let mut told = import_report(&imported);
    told["seconds"] = json!([read, import, begin.elapsed()].map(|time| time.as_secs_f64()));
    print_line(&told)?;
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
    let place = |place: ParameterLocation| match place {
        ParameterLocation::Path => "path",
        ParameterLocation::Query => "query",
        ParameterLocation::Header => "header",
        ParameterLocation::Cookie => "cookie",
    };
    let body = plan.body.as_ref().map(|body| {
        json!({"mediaType": body.media_type, "argument": body.argument, "members": body.members, "required": body.required})
    });
    let parameters = plan.parameters.iter().map(
        |parameter| json!({"argument": parameter.argument, "name": parameter.name, "place": place(parameter.location)}),
    );
    json!({
        "name": plan.name, "original": plan.original_name, "method": plan.method, "path": plan.path, "schema": plan.schema,
        "parameters": parameters.collect::<Vec<_>>(), "body": body,
    })
}
