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

const PROMPT: &str = "[y] once  [t] thread  [a] always  [e] edit  [n] deny  [?]";
const HELP: &str = "\
y  yes, this once
t  yes, and from now on in this thread
a  yes, and from now on in every thread
e  yes, with other arguments: e {\"folder\": \"/tmp/old\"}
n  no; what follows is told to the model: n not today";

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
        let line = answers.next(PROMPT).await;
        let mut said = read(line.as_deref(), &by);
        if let Said::Edit = said {
            let line = answers.next("the new arguments as JSON, or Enter to go back:").await;
            said = line.map_or_else(|| read(None, &by), |line| edited(&line, &by));
        }
        match said {
            Said::Answer(answer) => match hub.resolve_approval(&Tenant::default(), question.id, answer).await {
                Ok(_) => {
                    print::detail(&format!("answered by: {by}"));
                    return Ok(());
                }
                Err(error) => print::complaint(&error.to_string()),
            },
            Said::Help => HELP.lines().for_each(print::say),
            Said::Unclear(text) => print::complaint(&text),
            Said::Edit | Said::Nothing => {}
        }
    }
}

/// What a line means.
#[derive(Debug, PartialEq)]
enum Said {
    Answer(Answer),
    /// The arguments are still to be typed.
    Edit,
    Help,
    Nothing,
    Unclear(String),
}

fn read(line: Option<&str>, by: &Caller) -> Said {
    let Some(line) = line else { return Said::Answer(Answer::denied("nobody was there to answer", by.clone())) };
    let line = line.trim();
    let (letter, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let plain = |outcome| Said::Answer(Answer::new(outcome, by.clone()));
    match (letter.to_lowercase().as_str(), rest.trim()) {
        ("y" | "yes", "") => plain(ApprovalOutcome::ProceedOnce),
        ("t", "") => plain(ApprovalOutcome::ProceedAlways),
        ("a", "") => plain(ApprovalOutcome::ProceedAlwaysTool),
        ("e", "") => Said::Edit,
        ("e", arguments) => edited(arguments, by),
        ("n" | "no", "") => plain(ApprovalOutcome::Cancel),
        ("n" | "no", why) => Said::Answer(Answer::denied(why, by.clone())),
        ("?", "") => Said::Help,
        ("", _) => Said::Nothing,
        _ => Said::Unclear(format!("`{line}` is none of the answers; ? explains them")),
    }
}

fn edited(text: &str, by: &Caller) -> Said {
    if text.trim().is_empty() {
        return Said::Nothing;
    }
    match text.parse::<Value>() {
        Ok(arguments) => Said::Answer(Answer::edited(arguments, by.clone())),
        Err(wrong) => Said::Unclear(format!("that is no JSON ({wrong}); write it like {{\"folder\": \"/tmp/old\"}}")),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Caller {
        Caller::new("me").unwrap()
    }

    #[track_caller]
    fn check(line: &str, expected: &Said) {
        assert_eq!(read(Some(line), &me()), *expected, "{line}");
    }

    #[test]
    fn a_letter_is_an_answer() {
        let plain = |outcome| Said::Answer(Answer::new(outcome, me()));
        check("y", &plain(ApprovalOutcome::ProceedOnce));
        check(" Y ", &plain(ApprovalOutcome::ProceedOnce));
        check("t", &plain(ApprovalOutcome::ProceedAlways));
        check("a", &plain(ApprovalOutcome::ProceedAlwaysTool));
        check("n", &plain(ApprovalOutcome::Cancel));
        check("n  not today", &Said::Answer(Answer::denied("not today", me())));
        check("e", &Said::Edit);
        check("e {\"folder\": \"x\"}", &Said::Answer(Answer::edited(json!({"folder": "x"}), me())));
        check("?", &Said::Help);
        check("", &Said::Nothing);
    }

    #[test]
    fn what_is_no_answer_never_becomes_a_yes() {
        for line in ["yy", "y please", "always", "t a", "e {", "ok"] {
            assert!(matches!(read(Some(line), &me()), Said::Unclear(_)), "{line}");
        }
        let end = read(None, &me());
        assert!(matches!(end, Said::Answer(Answer { outcome: ApprovalOutcome::Cancel, .. })), "{end:?}");
    }
}
