//! Sends requests until they are answered or their time is over.
//!
//! In: commands and script calls. Out: answers, or an error that says whether something may have been written. Writes have a connection of
//! their own, so that a long scan does not delay commits. Repeating a commit is safe, because its script recognizes it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::future;
use redis::{Cmd, RedisError, Value};
use tokio::time::{Instant, sleep, timeout_at};
use toolhub_storage::backend::StoreError;

use super::{
    error::{Failure, classify, refuses_writes},
    script::ScriptCall,
    supervisor::{Backoff, NumberedLink, Supervisor, describe},
};

/// The connections of a store.
pub(super) struct Requests {
    reads: Supervisor,
    writes: Supervisor,
    timeout: Duration,
    is_cluster: bool,
    /// Why the server refused the last commit of records although it answers; `None` once it has executed one.
    refusal: Mutex<Option<String>>,
}

/// A command, or the call of a script that the server may not have.
pub(super) enum Request {
    Command(Cmd),
    Script(ScriptCall),
}

impl Request {
    fn command(&self, with_source: bool) -> Cmd {
        match self {
            Self::Command(command) => command.clone(),
            Self::Script(call) => call.command(with_source),
        }
    }
}

/// Attempts of one request.
struct Attempts<'a> {
    supervisor: &'a Supervisor,
    deadline: Instant,
    timeout: Duration,
    backoff: Backoff,
    with_source: bool,
    /// Whether an attempt got no answer, or one that does not tell whether something was written.
    may_have_written: bool,
    /// Why the server refuses writes, if the last attempt found that.
    refusal: Option<String>,
    /// Whether there is no outcome to learn: then no attempt waits for a server that is away.
    is_read: bool,
}

impl<'a> Attempts<'a> {
    fn new(supervisor: &'a Supervisor, timeout: Duration) -> Self {
        let (deadline, backoff) = (Instant::now() + timeout, Backoff::default());
        let (with_source, may_have_written, is_read) = (false, false, false);
        Self { supervisor, deadline, timeout, backoff, with_source, may_have_written, refusal: None, is_read }
    }

    async fn link(&self) -> Result<NumberedLink, String> {
        self.supervisor.link(self.deadline, self.may_have_written && !self.is_read).await
    }

    /// One attempt. `Ok(None)`: try again.
    async fn attempt<T>(
        &mut self,
        link: &NumberedLink,
        sent: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<Option<T>, String> {
        let Ok(result) = timeout_at(self.deadline, sent).await else {
            self.may_have_written = true;
            self.supervisor.report_broken(link);
            return Err(format!("Redis did not answer within {:?}", self.timeout));
        };
        let error = match result {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        self.refusal = refuses_writes(&error).then(|| describe(&error));
        match classify(&error) {
            Failure::NoScript if !self.with_source => {
                self.with_source = true;
                return Ok(None);
            }
            Failure::NoScript | Failure::Full => return Err(describe(&error)),
            Failure::Final => {
                self.may_have_written = true;
                return Err(describe(&error));
            }
            Failure::Refused => {}
            Failure::Demoted => self.supervisor.report_broken(link),
            Failure::NoAnswer => {
                self.may_have_written = true;
                self.supervisor.report_broken(link);
            }
        }
        let delay = self.backoff.next_delay();
        if Instant::now() + delay >= self.deadline {
            return Err(describe(&error));
        }
        sleep(delay).await;
        Ok(None)
    }
}

impl Requests {
    pub(super) fn new(reads: Supervisor, writes: Supervisor, timeout: Duration, is_cluster: bool) -> Self {
        Self { reads, writes, timeout, is_cluster, refusal: Mutex::default() }
    }

    /// Why the server refused the last commit of records although it answers.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends requests that change nothing, together.
    pub(super) async fn read(&self, requests: &[Request]) -> Result<Vec<Value>, StoreError> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        self.send_all(&self.reads, requests).await.map_err(|(reason, _)| StoreError::Unavailable(reason))
    }

    /// Sends calls that may be repeated without harm, together.
    pub(super) async fn write_all(&self, requests: &[Request]) -> Result<Vec<Value>, StoreError> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        if !self.is_cluster {
            return self.send_all(&self.writes, requests).await.map_err(write_error);
        }
        // Some servers may have a script and others not: each call is repeated for itself, because one that was executed would find
        // nothing to do a second time.
        let sent = requests.iter().map(|request| self.send_all(&self.writes, std::slice::from_ref(request)));
        future::try_join_all(sent).await.map(|answers| answers.concat()).map_err(write_error)
    }

    async fn send_all(&self, supervisor: &Supervisor, requests: &[Request]) -> Result<Vec<Value>, (String, bool)> {
        let mut attempts = Attempts::new(supervisor, self.timeout);
        attempts.is_read = std::ptr::eq(supervisor, &self.reads);
        loop {
            let mut link = attempts.link().await.map_err(|reason| (reason, attempts.may_have_written))?;
            let commands: Vec<Cmd> = requests.iter().map(|request| request.command(attempts.with_source)).collect();
            let numbered = link.clone();
            let answers = attempts.attempt(&numbered, link.link.send_all(&commands)).await;
            if let Some(answers) = answers.map_err(|reason| (reason, attempts.may_have_written))? {
                return Ok(answers);
            }
        }
    }

    /// Sends a commit. From the second attempt on, the argument at this index says so. A commit without records is also executed by a
    /// server whose memory is full, so it does not show that others are.
    pub(super) async fn commit(
        &self,
        mut call: ScriptCall,
        repeated_at: usize,
        has_records: bool,
    ) -> Result<Value, StoreError> {
        let note = |refusal| *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
        let mut attempts = Attempts::new(&self.writes, self.timeout);
        loop {
            let mut link = attempts.link().await.map_err(|reason| write_error((reason, attempts.may_have_written)))?;
            if attempts.may_have_written {
                call.set_arg(repeated_at, "1");
            }
            let (command, numbered) = (call.command(attempts.with_source), link.clone());
            let answer = attempts.attempt(&numbered, link.link.send(&command)).await;
            if let refusal @ Some(_) = attempts.refusal.take() {
                note(refusal);
            }
            if let Some(answer) = answer.map_err(|reason| write_error((reason, attempts.may_have_written)))? {
                if has_records {
                    note(None);
                }
                return Ok(answer);
            }
        }
    }
}

fn write_error((reason, may_have_written): (String, bool)) -> StoreError {
    if may_have_written { StoreError::Unknown(reason) } else { StoreError::Unavailable(reason) }
}
