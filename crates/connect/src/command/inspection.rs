//! Protects the memory and environment of the hub from the programs that it runs.
//!
//! In: nothing. Out: on Linux, a process that is not dumpable: other processes of its user can neither read its
//! `/proc/<pid>/environ`, memory and open files nor attach a debugger. Processes with capabilities such as
//! `CAP_SYS_PTRACE`, which root has, still can.

/// Makes this process not dumpable. Call it first in `main`: a command tool runs as the same user and could otherwise read the
/// secrets in the environment of the hub. The programs themselves are not affected. Does nothing on other systems.
///
/// # Errors
/// When the kernel refuses.
pub fn deny_inspection() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}
