//! Finds the descendants of this process in `/proc` and signals them.
//!
//! In: the process table. Out: every descendant stopped, or a signal to each of them, including orphans, which the guard adopts as their subreaper.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, getpid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal},
};

/// A process, as `/proc` showed it.
#[derive(Clone, Copy)]
struct ProcessInfo {
    pid: Pid,
    parent: Pid,
    group: Pid,
    /// Whether it can still fork: it is neither stopped nor dead.
    can_fork: bool,
}

/// Rounds in which descendants are stopped, each with one look at the process table and several at the guard's own children.
const STOP_ROUNDS: usize = 30;
const CHILD_ROUNDS: usize = 20;

/// Stops every descendant of this process, so that none forks while they are killed. A process that forks and exits before
/// `/proc` is read becomes a child of the guard, and the kernel lists those at once. Gives up after some rounds.
pub(super) fn stop_all() {
    let me = getpid();
    for _ in 0..STOP_ROUNDS {
        for _ in 0..CHILD_ROUNDS {
            // A child keeps its PID until the guard reaps it, so these PIDs are not reused meanwhile.
            for child in own_children() {
                let _ = kill_process(child, Signal::STOP);
            }
        }
        let descendants = read_process_table().descendants_of(me);
        let mut running = descendants.into_iter().filter(|process| process.can_fork).peekable();
        if running.peek().is_none() {
            return;
        }
        for process in running {
            send_signal(process, me, Signal::STOP);
        }
    }
}

/// The children of this process, including the orphans it has adopted. Empty if the kernel does not list them.
fn own_children() -> impl Iterator<Item = Pid> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let numbers = lists.flat_map(|list| list.split_ascii_whitespace().map(str::parse).collect::<Vec<_>>());
    numbers.filter_map(|number| Pid::from_raw(number.ok()?))
}

/// Signals every descendant of this process. Processes forked meanwhile are missed, so the caller repeats this until none is left.
pub(super) fn signal_all(signal: Signal) {
    let me = getpid();
    for process in read_process_table().descendants_of(me) {
        send_signal(process, me, signal);
    }
}

/// Signals the process groups of all descendants. The kernel signals a group atomically, which also reaches processes that fork and
/// exit faster than `/proc` can be read. Groups that contain other processes are left out.
pub(super) fn signal_groups(signal: Signal) {
    let me = getpid();
    let table = read_process_table();
    let descendants = table.descendants_of(me);
    let own: HashSet<Pid> = descendants.iter().map(|process| process.pid).collect();
    let foreign: HashSet<Pid> =
        table.0.iter().filter(|process| !own.contains(&process.pid)).map(|process| process.group).collect();
    let groups: HashSet<Pid> =
        descendants.iter().map(|process| process.group).filter(|group| !foreign.contains(group)).collect();
    for group in groups {
        let _ = kill_process_group(group, signal);
    }
}

/// All processes of the machine.
struct ProcessTable(Vec<ProcessInfo>);

fn read_process_table() -> ProcessTable {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()));
    ProcessTable(numbers.filter_map(Pid::from_raw).filter_map(read_stat).collect())
}

impl ProcessTable {
    /// All descendants of a process, parents first.
    fn descendants_of(&self, root: Pid) -> Vec<ProcessInfo> {
        let mut children: HashMap<Pid, Vec<ProcessInfo>> = HashMap::new();
        for process in &self.0 {
            children.entry(process.parent).or_default().push(*process);
        }
        let (mut found, mut next) = (children.remove(&root).unwrap_or_default(), 0);
        while let Some(process) = found.get(next).copied() {
            found.extend(children.remove(&process.pid).into_iter().flatten());
            next += 1;
        }
        found
    }
}

/// Reads `/proc/<pid>/stat`. The program name comes first and may contain any byte, also `)`, so its end is searched from the back.
fn read_stat(pid: Pid) -> Option<ProcessInfo> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = str::from_utf8(stat.get(after + 1..)?).ok()?.split_ascii_whitespace();
    let can_fork = !matches!(fields.next()?, "T" | "t" | "Z" | "X");
    let mut number = || fields.next()?.parse().ok().and_then(Pid::from_raw);
    Some(ProcessInfo { pid, parent: number()?, group: number()?, can_fork })
}

/// Signals a descendant. Its PID may have been reused since the table was read, so this opens a pidfd first and then checks that the
/// process still has the same parent, or was adopted by the guard.
fn send_signal(process: ProcessInfo, me: Pid, signal: Signal) {
    match pidfd_open(process.pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            if read_stat(process.pid).is_some_and(|now| now.parent == process.parent || now.parent == me) {
                // Fails if the process has exited meanwhile, or changed to a user whom we may not signal.
                let _ = pidfd_send_signal(pidfd, signal);
            }
        }
        // The kernel has no pidfds.
        Err(Errno::NOSYS | Errno::PERM) => {
            let _ = kill_process(process.pid, signal);
        }
        Err(_) => {}
    }
}
