//! `alerts`: the targets of alerts, what was delivered to them, and whether they answer.

use clap::Subcommand;
use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock};

use super::paging::{self, Paging, pointer_text};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Table, format_ago},
    session::Session,
};

/// List targets of alerts, test them, and show what was delivered
#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// List the targets and the alerts that hold
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Send a test message to a target, and show its answer
    Test {
        /// The target
        name: String,
    },
    /// List the messages to a target and their delivery, newest first
    Deliveries {
        /// The target
        name: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// Send the waiting messages of a target now, and enable it if it had said that it wants none
    Retry {
        /// The target
        name: String,
    },
}

const TARGET_COLUMNS: [Column; 6] = [
    Column::new("NAME"),
    Column::new("FORMAT").drop_order(2),
    Column::new("HOST").drop_order(1),
    Column::new("ALERTS").align_right(),
    Column::new("WAITING").align_right(),
    Column::new("STATE"),
];

const ALERT_COLUMNS: [Column; 5] = [
    Column::new("TARGET"),
    Column::new("CONDITION"),
    Column::new("THING"),
    Column::new("SINCE"),
    Column::new("WHY").drop_order(1).shrink_to(20),
];

const DELIVERY_COLUMNS: [Column; 6] = [
    Column::new("AT"),
    Column::new("STATE"),
    Column::new("PHASE"),
    Column::new("CONDITION"),
    Column::new("ATTEMPTS").align_right(),
    Column::new("LAST ANSWER").drop_order(1).shrink_to(20),
];

pub(crate) async fn run(session: &Session, command: AlertsCommand) -> Result<Exit, Failure> {
    match command {
        AlertsCommand::List { paging } => list(session, &paging).await,
        AlertsCommand::Test { name } => test(session, &name).await,
        AlertsCommand::Deliveries { name, paging } => deliveries(session, &name, &paging).await,
        AlertsCommand::Retry { name } => retry(session, &name).await,
    }
}

async fn list(session: &Session, paging: &Paging) -> Result<Exit, Failure> {
    let targets = paging::fetch_items(session, Request::get(["alerts"]), paging).await?;
    let Some(targets) = targets else { return Ok(Exit::Success) };
    let (printer, now) = (&session.printer, SystemClock.now());
    if targets.is_empty() {
        printer.note("no targets: add [[alerts]] to the config, see docs/operate/alerts.md");
        return Ok(Exit::Success);
    }
    let (mut table, mut held) = (Table::new(TARGET_COLUMNS), Table::new(ALERT_COLUMNS));
    let mut has_alerts = false;
    for target in &targets {
        let alerts = target["alerts"].as_array().map_or(&[][..], Vec::as_slice);
        let state = match (target["disabled"].as_str(), target["lastFailure"]["answer"].as_str()) {
            (Some(reason), _) => format!("disabled: {reason}"),
            (None, Some(answer)) => format!("retrying: {}", answer_text(&target["lastFailure"], answer)),
            (None, None) => "ok".into(),
        };
        table.add_row([
            pointer_text(target, "/name"),
            pointer_text(target, "/format"),
            pointer_text(target, "/host"),
            alerts.len().to_string(),
            pointer_text(target, "/waiting"),
            state,
        ]);
        for alert in alerts {
            has_alerts = true;
            let mark = match (alert["flapping"] == true, alert["pending"] == true) {
                (true, _) => " (flapping)",
                (_, true) => " (pending)",
                _ => "",
            };
            held.add_row([
                pointer_text(target, "/name"),
                pointer_text(alert, "/condition"),
                format!("{}{mark}", pointer_text(alert, "/thing")),
                format_ago(&pointer_text(alert, "/since"), now),
                pointer_text(alert, "/reason"),
            ]);
        }
    }
    printer.print(&table.render(printer.width, printer.ascii));
    if has_alerts {
        printer.print("");
        printer.print(&held.render(printer.width, printer.ascii));
    }
    Ok(Exit::Success)
}

async fn test(session: &Session, name: &str) -> Result<Exit, Failure> {
    let response = session.send_checked(Request::post(["alerts", name, "test"])).await?;
    let result = response.json()?;
    let printer = &session.printer;
    let (took, answer) = (pointer_text(&result, "/durationMs"), pointer_text(&result, "/answer"));
    let is_delivered = result["delivered"] == true;
    if printer.json {
        printer.print_json(&response.text());
    } else {
        let answer = answer_text(&result, &answer);
        printer.print_untrusted(&format!("{name}: {answer} ({took} ms)"));
    }
    if is_delivered {
        return Ok(Exit::Success);
    }
    Err(Failure::new("unreachable", format!("the target `{name}` did not take the message"))
        .help("check `url`, `secret` and `allow_hosts` of its [[alerts]] section"))
}

async fn deliveries(session: &Session, name: &str, paging: &Paging) -> Result<Exit, Failure> {
    let found = paging::fetch_items(session, Request::get(["alerts", name, "deliveries"]), paging).await?;
    let Some(found) = found else { return Ok(Exit::Success) };
    let (printer, now) = (&session.printer, SystemClock.now());
    if found.is_empty() {
        printer.note("no messages within the last week");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(DELIVERY_COLUMNS);
    for delivery in &found {
        let answer = delivery["last"]["answer"].as_str();
        table.add_row([
            format_ago(&pointer_text(delivery, "/message/at"), now),
            pointer_text(delivery, "/state"),
            pointer_text(delivery, "/message/phase"),
            pointer_text(delivery, "/message/condition"),
            pointer_text(delivery, "/attempts"),
            answer.map(|answer| answer_text(&delivery["last"], answer)).unwrap_or_default(),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    Ok(Exit::Success)
}

async fn retry(session: &Session, name: &str) -> Result<Exit, Failure> {
    let response = session.send_checked(Request::post(["alerts", name, "retry"])).await?;
    if session.printer.json {
        session.printer.print_json(&response.text());
    } else {
        let text = match response.json()?["waiting"].as_u64() {
            Some(0) => "no messages wait".to_owned(),
            Some(1) => "1 message is sent now".to_owned(),
            waiting => format!("{} messages are sent now", waiting.unwrap_or_default()),
        };
        session.printer.print(&text);
    }
    Ok(Exit::Success)
}

/// Status and first line of an answer.
fn answer_text(attempt: &Value, answer: &str) -> String {
    match attempt["status"].as_u64() {
        Some(status) => format!("{status} {answer}").trim_end().to_owned(),
        None => answer.to_owned(),
    }
}
