//! The stop at which a call waits for a person.
//!
//! In: the hub and whoever answers. Out: questions, answers and what becomes of the calls. A line that cannot be
//! understood, or that the hub does not take, is explained and asked for again; the end of input is a no.

use std::{error::Error, future::IntoFuture, pin::pin};

use toolhub::{
    Approval,
    events::{EventKind, Subscription},
    prelude::*,
    status::Language,
};

use super::{answer_source::AnswerSource, print};
use crate::approval_prompt::{self, PromptReply};

/// What is asked where nobody is at the keyboard, and what the script answers.
const SCRIPT: [(&str, &str); 3] = [
    ("/home/ann", "n not her home"),
    ("/home/ann/pictures", "e {\"folder\": \"/home/ann/pictures/blurred\"}"),
    ("/tmp/old", "t"),
];
/// What a person is asked.
const INTERACTIVE_FOLDER: &str = "/tmp/old";
const THREAD: &str = "demo";

pub(super) async fn run(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    let mut answers = AnswerSource::detect(SCRIPT.map(|(_, line)| line));
    if answers.is_interactive() {
        print::say("An agent wants to delete something. Nothing runs before you have answered.");
        call_with_approval(hub, INTERACTIVE_FOLDER, &mut answers).await?;
    } else {
        print::say("Nobody is at the keyboard, so a script answers. On a terminal, you would be asked.");
        for (folder, _) in SCRIPT {
            call_with_approval(hub, folder, &mut answers).await?;
        }
    }
    show_grants(hub, &mut answers).await?;
    show_explanation(hub).await
}

/// Makes the call, and lets the question be answered if one is asked.
async fn call_with_approval(hub: &ToolHub, folder: &str, answers: &mut AnswerSource) -> Result<(), Box<dyn Error>> {
    let arguments = json!({"folder": folder});
    print::call("dangerous", &arguments, &format!("in thread {THREAD}"));
    let mut events = hub.subscribe();
    let mut call = pin!(hub.call("dangerous", arguments).thread(THREAD).start().into_future());
    let question = tokio::select! {
        outcome = &mut call => {
            print::outcome(&outcome);
            return Ok(());
        }
        question = wait_for_question(hub, &mut events) => question?,
    };
    // Nobody may answer for a quarter of an hour; then the call ends by itself, and so does the question.
    tokio::select! {
        biased;
        outcome = &mut call => {
            print::echo("");
            print::outcome(&outcome);
            return Ok(());
        }
        answered = answer_question(hub, &question, answers) => answered?,
    }
    print::outcome(&call.await);
    Ok(())
}

/// Listens until somebody is asked.
async fn wait_for_question(hub: &ToolHub, events: &mut Subscription) -> Result<Approval, Box<dyn Error>> {
    loop {
        if let EventKind::ApprovalRequested { approval_id, .. } = events.next().await.kind {
            return Ok(hub.approval(&Tenant::default(), approval_id).await?.ok_or("the question is gone")?);
        }
    }
}

/// Asks until there is an answer that the hub takes.
async fn answer_question(hub: &ToolHub, question: &Approval, answers: &mut AnswerSource) -> Result<(), Box<dyn Error>> {
    let by = answers.answered_by()?;
    loop {
        let line = answers.next(approval_prompt::PROMPT).await;
        let mut said = approval_prompt::parse_reply(line.as_deref());
        if let PromptReply::Edit = said {
            let line = answers.next(approval_prompt::EDIT_PROMPT).await;
            said = line.map_or_else(
                || approval_prompt::parse_reply(None),
                |line| approval_prompt::parse_edited_arguments(&line),
            );
        }
        match to_answer(said, &by) {
            Ok(answer) => match hub.resolve_approval(&Tenant::default(), question.id, answer).await {
                Ok(_) => {
                    print::detail(&format!("answered by: {by}"));
                    return Ok(());
                }
                Err(error) => print::error(&error.to_string()),
            },
            Err(PromptReply::Help) => approval_prompt::HELP.lines().for_each(print::say),
            Err(PromptReply::Invalid(text)) => print::error(&text),
            Err(_) => {}
        }
    }
}

/// The hub's answer to what was said; none where nothing was decided.
fn to_answer(said: PromptReply, by: &Caller) -> Result<Answer, PromptReply> {
    let plain = |outcome| Ok(Answer::new(outcome, by.clone()));
    match said {
        PromptReply::Once => plain(ApprovalOutcome::ProceedOnce),
        PromptReply::Thread => plain(ApprovalOutcome::ProceedAlways),
        PromptReply::Always => plain(ApprovalOutcome::ProceedAlwaysTool),
        PromptReply::Edited(arguments) => Ok(Answer::edited(arguments, by.clone())),
        PromptReply::Deny(None) => plain(ApprovalOutcome::Cancel),
        PromptReply::Deny(Some(why)) => Ok(Answer::denied(why, by.clone())),
        other => Err(other),
    }
}

/// Shows what "always" means: the next call is not asked about, until the grant is taken back.
async fn show_grants(hub: &ToolHub, answers: &mut AnswerSource) -> Result<(), Box<dyn Error>> {
    let tenant = Tenant::default();
    let grants = hub.grants(&tenant).await?;
    if grants.is_empty() {
        return Ok(());
    }
    print::say("That was a yes for more than once. The next call does not ask:");
    call_with_approval(hub, "/tmp/older", answers).await?;
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
async fn show_explanation(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    print::say("Whoever wonders why may ask:");
    let why = hub.explain("dangerous", &Tenant::default(), &ThreadId::new(THREAD)?).await?;
    why.text(Language::English).lines().for_each(print::detail);
    Ok(())
}
