//! `tools list`: a line for each tool, and a count of how they stand.

use std::collections::BTreeMap;

use anstyle::Style;
use serde_json::Value;

use super::super::list::{self, Paging, text};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Table, lasting, status},
    session::Session,
};

/// List the tools.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only tools of this kind: stateless, stateful
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only tools that stand so
    #[arg(long, value_name = "STATUS", value_parser = ["available", "unavailable", "failed", "maintenance"])]
    status: Option<String>,
    /// Only tools with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only tools with this text in their name or description
    #[arg(value_name = "TEXT")]
    q: Option<String>,
}

const COLUMNS: [Column; 7] = [
    Column::new("NAME"),
    Column::new("KIND").goes(4),
    Column::new("STATUS"),
    Column::new("CALLS").right().goes(2),
    Column::new("ERR").goes(3),
    Column::new("P95").goes(5),
    Column::new("NOTE").goes(1).cut(14),
];

pub(super) async fn run(session: &Session, asked: List) -> Result<Exit, Failure> {
    if let Some(thread) = &session.global.thread {
        return super::super::threads::states(session, thread).await;
    }
    let request = Request::get(["tools"])
        .query("kind", asked.kind.as_deref())
        .query("status", asked.status.as_deref())
        .query("tag", asked.tag.as_deref())
        .query("q", asked.q.as_deref());
    let Some(tools) = list::items(session, request, &Paging::all()).await? else { return Ok(Exit::Fine) };
    let show = &session.show;
    if tools.is_empty() {
        show.say("no tools");
        return Ok(Exit::Fine);
    }
    let here = session.client().await?.server().is_none();
    let mut table = Table::new(COLUMNS);
    for tool in &tools {
        let plain = |text: String| (text, Style::new());
        let number = |name: &str| tool["stats"][name].as_f64().unwrap_or_default();
        let (calls, none) = (number("calls"), if show.ascii { "-" } else { "–" });
        let ran = calls > 0.0;
        // What a hub counted is gone with its process, and this one has only begun.
        let counted = |text: String| plain(if here { String::new() } else { text });
        table.styled([
            plain(text(tool, "/name")),
            plain(text(tool, "/kind")),
            status(&text(tool, "/status"), show.ascii),
            counted(format!("{calls}")),
            counted(if ran { percent(number("errors") / calls) } else { none.into() }),
            counted(if ran { lasting(number("p95Ms")) } else { none.into() }),
            plain(note(tool)),
        ]);
    }
    show.data(&table.lines(show.width, show.ascii));
    show.say(&counted(&tools, show.ascii));
    Ok(Exit::Fine)
}

/// Why it is not simply available.
fn note(tool: &Value) -> String {
    if tool["status"] == "available" && tool["standing"]["probation"] != true {
        String::new()
    } else {
        text(tool, "/reason")
    }
}

fn percent(share: f64) -> String {
    match share.min(1.0) * 100.0 {
        0.0 => "0%".into(),
        few if few < 9.95 => format!("{few:.1}%"),
        many => format!("{many:.0}%"),
    }
}

fn counted(tools: &[Value], ascii: bool) -> String {
    let mut counts = BTreeMap::new();
    for tool in tools {
        *counts.entry(text(tool, "/status")).or_insert(0) += 1;
    }
    let all = if tools.len() == 1 { "1 tool".to_owned() } else { format!("{} tools", tools.len()) };
    let parts = ["available", "failed", "unavailable", "maintenance"].into_iter();
    let parts = parts.filter_map(|word| counts.get(word).map(|many| format!("{many} {word}")));
    let line = [all].into_iter().chain(parts).collect::<Vec<_>>().join(if ascii { " - " } else { " · " });
    let odd = tools.iter().find(|tool| tool["status"] != "available").or_else(|| tools.first());
    let name = odd.map(|tool| text(tool, "/name")).unwrap_or_default();
    format!("{line}      (toolhub tools show {name})")
}
