//! Tour: a call that requires approval.
//!
//! In: the hub and the source of answers. Out: prompts, answers and the outcomes of the calls. An invalid or rejected reply is
//! explained and prompted for again; the end of input denies the call.

use std::{error::Error, future::IntoFuture, pin::pin};

use toolhub::{
    Approval,
    events::{EventKind, Subscription},
    prelude::*,
    status::Language,
};

use super::{answer_source::AnswerSource, print};
use crate::{
    approval_prompt::{self, PromptReply},
    arguments::change_arguments,
};

/// The calls without a terminal, and the script's answers.
const SCRIPT: [(&str, &str); 3] = [
    ("/home/ann", "n not her home"),
    ("/home/ann/pictures", "e {\"folder\": \"/home/ann/pictures/blurred\"}"),
    ("/tmp/old", "t"),
];
/// The call with a terminal.
const INTERACTIVE_FOLDER: &str = "/tmp/old";
const THREAD: &str = "demo";

pub(super) async fn run(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    let mut answers = AnswerSource::detect(SCRIPT.map(|(_, line)| line));
    if answers.is_interactive() {
        print::print_line("An agent wants to delete something. Nothing runs before you answer.");
        call_with_approval(hub, INTERACTIVE_FOLDER, &mut answers).await?;
    } else {
        print::print_line("This is not a terminal, so a script answers. On a terminal, you would be prompted.");
        for (folder, _) in SCRIPT {
            call_with_approval(hub, folder, &mut answers).await?;
        }
    }
    show_grants(hub, &mut answers).await?;
    show_explanation(hub).await
}

/// Makes the call, and prompts if an approval is requested.
async fn call_with_approval(hub: &ToolHub, folder: &str, answers: &mut AnswerSource) -> Result<(), Box<dyn Error>> {
    let arguments = json!({"folder": folder});
    print::call("dangerous", &arguments, &format!("in thread {THREAD}"));
    let mut events = hub.subscribe();
    let mut call = pin!(hub.call("dangerous", arguments).thread(THREAD).start().into_future());
    let approval = tokio::select! {
        outcome = &mut call => {
            print::outcome(&outcome);
            return Ok(());
        }
        approval = wait_for_question(hub, &mut events) => approval?,
    };
    // Without an answer, the approval expires after 15 minutes and the call ends.
    let mut answering = pin!(answer_question(hub, &approval, answers));
    let outcome = tokio::select! {
        biased;
        answered = &mut answering => {
            answered?;
            call.await
        }
        outcome = &mut call => {
            let approval = hub.approval(&Tenant::default(), approval.id).await?;
            if approval.is_some_and(|approval| approval.answer.is_some()) {
                // The call may end before the grant of its answer is stored.
                answering.await?;
            } else {
                print::echo("");
            }
            outcome
        }
    };
    print::outcome(&outcome);
    Ok(())
}

/// Waits until an approval is requested.
async fn wait_for_question(hub: &ToolHub, events: &mut Subscription) -> Result<Approval, Box<dyn Error>> {
    loop {
        if let EventKind::ApprovalRequested { approval_id, .. } = events.next().await.kind {
            return Ok(hub.approval(&Tenant::default(), approval_id).await?.ok_or("the approval does not exist")?);
        }
    }
}

/// Prompts until the hub accepts an answer.
async fn answer_question(hub: &ToolHub, approval: &Approval, answers: &mut AnswerSource) -> Result<(), Box<dyn Error>> {
    let by = answers.answered_by()?;
    loop {
        let line = answers.next(approval_prompt::PROMPT).await;
        let mut reply = approval_prompt::parse_reply(line.as_deref());
        if let PromptReply::Edit = reply {
            let line = answers.next(approval_prompt::EDIT_PROMPT).await;
            reply = line.map_or_else(
                || approval_prompt::parse_reply(None),
                |line| approval_prompt::parse_edited_arguments(&line),
            );
        }
        if let PromptReply::Changed(words) = &reply {
            let schema = hub.get(&approval.tool).map(|tool| tool.definition.parameters.clone()).unwrap_or_default();
            reply = match change_arguments(approval.arguments.clone(), words, &schema) {
                Ok(arguments) => PromptReply::Edited(arguments),
                Err(failure) => PromptReply::Invalid(failure.message.clone()),
            };
        }
        match to_answer(reply, &by) {
            Ok(answer) => match hub.resolve_approval(&Tenant::default(), approval.id, answer).await {
                Ok(_) => {
                    print::detail(&format!("answered by: {by}"));
                    return Ok(());
                }
                Err(error) => print::error(&error.to_string()),
            },
            Err(PromptReply::Help) => approval_prompt::HELP.lines().for_each(print::print_line),
            Err(PromptReply::Invalid(text)) => print::error(&text),
            Err(_) => {}
        }
    }
}

/// The hub's answer for a reply; the reply itself if it decides nothing.
fn to_answer(reply: PromptReply, by: &Caller) -> Result<Answer, PromptReply> {
    let plain = |outcome| Ok(Answer::new(outcome, by.clone()));
    match reply {
        PromptReply::Once => plain(ApprovalOutcome::ProceedOnce),
        PromptReply::Thread => plain(ApprovalOutcome::ProceedAlways),
        PromptReply::Always => plain(ApprovalOutcome::ProceedAlwaysTool),
        PromptReply::Edited(arguments) => Ok(Answer::edited(arguments, by.clone())),
        PromptReply::Deny(None) => plain(ApprovalOutcome::Cancel),
        PromptReply::Deny(Some(why)) => Ok(Answer::denied(why, by.clone())),
        other => Err(other),
    }
}

/// Shows what "always" means: the next call needs no approval, until the grant is revoked.
async fn show_grants(hub: &ToolHub, answers: &mut AnswerSource) -> Result<(), Box<dyn Error>> {
    let tenant = Tenant::default();
    let grants = hub.grants(&tenant).await?;
    if grants.is_empty() {
        return Ok(());
    }
    print::print_line("That answer also covers later calls. The next call needs no approval:");
    call_with_approval(hub, "/tmp/older", answers).await?;
    for grant in grants {
        hub.revoke_grant(&tenant, &grant.id).await?;
        print::detail(&format!(
            "grant {} for {}, given by {}: revoked",
            grant.id,
            json!(grant.covers),
            grant.granted_by
        ));
    }
    Ok(())
}

/// Prints the explanation of the tool's availability.
async fn show_explanation(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    print::print_line("`explain` tells why:");
    let explanation = hub.explain("dangerous", &Tenant::default(), &ThreadId::new(THREAD)?).await?;
    explanation.text(Language::English).lines().for_each(print::detail);
    Ok(())
}
