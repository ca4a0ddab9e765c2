//! Who is below this process, and how to reach them.
//!
//! In: what `/proc` tells. Out: signals to every descendant, whoever its parent was, because the guard adopts those whose parent has gone.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, getpid, kill_process, kill_process_group, pidfd_open, pidfd_send_signal},
};

/// A process as it was seen.
#[derive(Clone, Copy)]
struct ProcessInfo {
    pid: Pid,
    parent: Pid,
    group: Pid,
}

/// Sends a signal to everybody below this process. Whoever is born meanwhile is not reached: ask again until nobody is left.
pub(super) fn signal_all(signal: Signal) {
    let me = getpid();
    for seen in read_process_table().descendants_of(me) {
        send_signal(seen, me, signal);
    }
}

/// The same by groups. The kernel reaches all of a group at one moment, also those who fork and end faster than anybody can look.
/// Only groups that nobody else is in.
pub(super) fn signal_groups(signal: Signal) {
    let me = getpid();
    let all = read_process_table();
    let below = all.descendants_of(me);
    let ours: HashSet<Pid> = below.iter().map(|seen| seen.pid).collect();
    let foreign: HashSet<Pid> = all.0.iter().filter(|seen| !ours.contains(&seen.pid)).map(|seen| seen.group).collect();
    let groups: HashSet<Pid> = below.iter().map(|seen| seen.group).filter(|group| !foreign.contains(group)).collect();
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
    /// Those below a process; parents first.
    fn descendants_of(&self, root: Pid) -> Vec<ProcessInfo> {
        let mut children: HashMap<Pid, Vec<ProcessInfo>> = HashMap::new();
        for seen in &self.0 {
            children.entry(seen.parent).or_default().push(*seen);
        }
        let (mut found, mut at) = (children.remove(&root).unwrap_or_default(), 0);
        while let Some(seen) = found.get(at).copied() {
            found.extend(children.remove(&seen.pid).into_iter().flatten());
            at += 1;
        }
        found
    }
}

/// What is known of a process. The name of its program stands first and may hold anything, so its end is looked for from behind.
fn read_stat(pid: Pid) -> Option<ProcessInfo> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = str::from_utf8(stat.get(after + 1..)?).ok()?.split_ascii_whitespace().skip(1);
    let mut number = || fields.next()?.parse().ok().and_then(Pid::from_raw);
    Some(ProcessInfo { pid, parent: number()?, group: number()? })
}

/// Sends a signal to a process that was seen below. Its number may belong to a stranger by now, so the process is held first and
/// looked at again: it has the parent it had, or the guard has adopted it.
fn send_signal(seen: ProcessInfo, me: Pid, signal: Signal) {
    match pidfd_open(seen.pid, PidfdFlags::empty()) {
        Ok(held) => {
            if read_stat(seen.pid).is_some_and(|now| now.parent == seen.parent || now.parent == me) {
                // It may have ended meanwhile, or have become somebody we may not end.
                let _ = pidfd_send_signal(held, signal);
            }
        }
        // A kernel that cannot hold processes.
        Err(Errno::NOSYS | Errno::PERM) => {
            let _ = kill_process(seen.pid, signal);
        }
        Err(_) => {}
    }
}
