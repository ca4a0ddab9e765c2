//! The stop at which a call waits for a person.
//!
//! In: the hub and whoever answers. Out: questions, answers and what becomes of the calls. A line that cannot be
//! understood, or that the hub does not take, is explained and asked for again; the end of input is a no.

use std::{error::Error, future::IntoFuture, pin::pin};

use toolhub::{
    Approval,
    events::{News, Subscription},
    prelude::*,
    status::Language,
};

use super::{answers::Answers, print};
use crate::ask::{self, Said};

/// What is asked where nobody is at the keyboard, and what the script answers.
const SCRIPT: [(&str, &str); 3] = [
    ("/home/ann", "n not her home"),
    ("/home/ann/pictures", "e {\"folder\": \"/home/ann/pictures/blurred\"}"),
    ("/tmp/old", "t"),
];
/// What a person is asked.
const ASKED: &str = "/tmp/old";
const THREAD: &str = "demo";

pub(super) async fn stop(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    let mut answers = Answers::find(SCRIPT.map(|(_, line)| line));
    if answers.are_typed() {
        print::say("An agent wants to delete something. Nothing runs before you have answered.");
        ask(hub, ASKED, &mut answers).await?;
    } else {
        print::say("Nobody is at the keyboard, so a script answers. On a terminal, you would be asked.");
        for (folder, _) in SCRIPT {
            ask(hub, folder, &mut answers).await?;
        }
    }
    standing(hub, &mut answers).await?;
    explained(hub).await
}

/// Makes the call, and lets the question be answered if one is asked.
async fn ask(hub: &ToolHub, folder: &str, answers: &mut Answers) -> Result<(), Box<dyn Error>> {
    let arguments = json!({"folder": folder});
    print::asked("dangerous", &arguments, &format!("in thread {THREAD}"));
    let mut events = hub.subscribe();
    let mut call = pin!(hub.call("dangerous", arguments).thread(THREAD).start().into_future());
    let question = tokio::select! {
        outcome = &mut call => {
            print::outcome(&outcome);
            return Ok(());
        }
        question = question(hub, &mut events) => question?,
    };
    // Nobody may answer for a quarter of an hour; then the call ends by itself, and so does the question.
    tokio::select! {
        biased;
        outcome = &mut call => {
            print::typed("");
            print::outcome(&outcome);
            return Ok(());
        }
        answered = answer(hub, &question, answers) => answered?,
    }
    print::outcome(&call.await);
    Ok(())
}

/// Listens until somebody is asked.
async fn question(hub: &ToolHub, events: &mut Subscription) -> Result<Approval, Box<dyn Error>> {
    loop {
        if let News::ApprovalRequested { approval_id, .. } = events.next().await.news {
            return Ok(hub.approval(&Tenant::default(), approval_id).await?.ok_or("the question is gone")?);
        }
    }
}

/// Asks until there is an answer that the hub takes.
async fn answer(hub: &ToolHub, question: &Approval, answers: &mut Answers) -> Result<(), Box<dyn Error>> {
    let by = answers.by()?;
    loop {
        let line = answers.next(ask::PROMPT).await;
        let mut said = ask::read(line.as_deref());
        if let Said::Edit = said {
            let line = answers.next(ask::EDIT).await;
            said = line.map_or_else(|| ask::read(None), |line| ask::edited(&line));
        }
        match answered(said, &by) {
            Ok(answer) => match hub.resolve_approval(&Tenant::default(), question.id, answer).await {
                Ok(_) => {
                    print::detail(&format!("answered by: {by}"));
                    return Ok(());
                }
                Err(error) => print::complaint(&error.to_string()),
            },
            Err(Said::Help) => ask::HELP.lines().for_each(print::say),
            Err(Said::Unclear(text)) => print::complaint(&text),
            Err(_) => {}
        }
    }
}

/// The hub's answer to what was said; none where nothing was decided.
fn answered(said: Said, by: &Caller) -> Result<Answer, Said> {
    let plain = |outcome| Ok(Answer::new(outcome, by.clone()));
    match said {
        Said::Once => plain(ApprovalOutcome::ProceedOnce),
        Said::Thread => plain(ApprovalOutcome::ProceedAlways),
        Said::Always => plain(ApprovalOutcome::ProceedAlwaysTool),
        Said::Edited(arguments) => Ok(Answer::edited(arguments, by.clone())),
        Said::Deny(None) => plain(ApprovalOutcome::Cancel),
        Said::Deny(Some(why)) => Ok(Answer::denied(why, by.clone())),
        other => Err(other),
    }
}

/// Shows what "always" means: the next call is not asked about, until the grant is taken back.
async fn standing(hub: &ToolHub, answers: &mut Answers) -> Result<(), Box<dyn Error>> {
    let tenant = Tenant::default();
    let grants = hub.grants(&tenant).await?;
    if grants.is_empty() {
        return Ok(());
    }
    print::say("That was a yes for more than once. The next call does not ask:");
    ask(hub, "/tmp/older", answers).await?;
    for grant in grants {
        hub.revoke_grant(&tenant, &grant.id).await?;
        print::detail(&format!(
            "grant {} for {}, given by {}: taken back",
            grant.id,
            json!(grant.covers),
            grant.granted_by
        ));
    }
    Ok(())
}

/// What holds for the tool's calls, in words.
async fn explained(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    print::say("Whoever wonders why may ask:");
    let why = hub.explain("dangerous", &Tenant::default(), &ThreadId::new(THREAD)?).await?;
    why.text(Language::English).lines().for_each(print::detail);
    Ok(())
}
