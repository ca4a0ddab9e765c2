//! Who is below this process, and how to reach them.
//!
//! In: what `/proc` tells. Out: every descendant, whoever its parent was, because the guard adopts those whose parent has gone.

use std::{collections::HashMap, fs};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal},
};

/// Sends a signal to everybody below this process. Whoever is born meanwhile is not reached: ask again until nobody is left.
pub(super) fn signal_all(signal: Signal) {
    let me = getpid();
    for (pid, parent) in everybody(me) {
        send(pid, parent, me, signal);
    }
}

/// Every process below, with the parent it had when it was seen; parents first.
fn everybody(me: Pid) -> Vec<(Pid, Pid)> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    for entry in all.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else { continue };
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut at) = (vec![(me, me)], 0);
    while let Some((pid, _)) = found.get(at).copied() {
        found.extend(children.remove(&pid).into_iter().flatten().map(|child| (child, pid)));
        at += 1;
    }
    found.split_off(1)
}

/// The parent of a process. The name of its program stands before it and may hold anything, so it is looked for from behind.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = str::from_utf8(stat.get(after + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok().and_then(Pid::from_raw)
}

/// Sends a signal to a process that was seen below. Its number may belong to a stranger by now, so the process is held first and
/// looked at again: it has the parent it had, or the guard has adopted it.
fn send(pid: Pid, parent_then: Pid, me: Pid, signal: Signal) {
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(held) => {
            if parent(pid).is_some_and(|now| now == parent_then || now == me) {
                // It may have ended meanwhile, or have become somebody we may not end.
                let _ = pidfd_send_signal(held, signal);
            }
        }
        // A kernel that cannot hold processes.
        Err(Errno::NOSYS | Errno::PERM) => {
            let _ = kill_process(pid, signal);
        }
        Err(_) => {}
    }
}
