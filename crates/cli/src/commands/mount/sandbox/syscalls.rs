//! Restricts the server to the system calls that it needs, by seccomp. Others fail with `EPERM`, as if this user were
//! not permitted: a library that makes a superfluous call goes on without it. Called by `sandbox`.
//!
//! Calls whose arguments matter are allowed with some arguments only: memory cannot be made executable, `clone` makes
//! threads and no processes, `ioctl` has one command.

use std::collections::BTreeMap;

use anyhow::Result;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// Calls allowed with any argument.
const ALLOWED: &[i64] = &[
    // Descriptors that are open: the image, the connection, the channel, standard error.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fadvise64,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_flock,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    // Clients, at a socket that is open.
    libc::SYS_accept4,
    libc::SYS_shutdown,
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    // The queues of a virtual machine.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_membarrier,
    // Threads, and waiting.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Allowed here, but answered with "no such call" by the other filter: a library that makes threads
    // then uses `clone`, whose flags a filter can see.
    libc::SYS_clone3,
    // Signals to oneself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Facts.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
];

/// Of an older generation, and not on every architecture.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[libc::SYS_poll, libc::SYS_epoll_wait, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[];

/// Further calls for rings, of requests or of writes. Rings are made before, and each takes only commands to devices,
/// or only writes.
const ALLOWED_WITH_RING: &[i64] = &[libc::SYS_io_uring_enter];
/// Enables a ring that was created disabled (`IORING_REGISTER_ENABLE_RINGS`).
const ENABLE_RINGS: u64 = 12;

/// Duplicates the kernel's connection for another thread (`FUSE_DEV_IOC_CLONE`).
const IOCTL_CLONE: u64 = 0x8004_e500;
/// The name of a memory area (`PR_SET_VMA`), which the allocator may set.
const PRCTL_SET_VMA: u64 = 0x5356_4d41;

/// Installs the filter for all threads.
pub(super) fn restrict(with_ring: bool) -> Result<Option<&'static str>> {
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        return Ok(Some("no filter of system calls is known for this processor"));
    };
    // Both filters apply, and the stricter answer counts.
    let no_such_call = SeccompFilter::new(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(u32::try_from(libc::ENOSYS)?),
        arch,
    )?;
    let forbidden = SeccompAction::Errno(u32::try_from(libc::EPERM)?);
    let allowed = SeccompFilter::new(rules(with_ring)?, forbidden, SeccompAction::Allow, arch)?;
    for (index, filter) in [no_such_call, allowed].into_iter().enumerate() {
        let program = BpfProgram::try_from(filter)?;
        match seccompiler::apply_filter_all_threads(&program) {
            Ok(()) => {}
            Err(seccompiler::Error::Seccomp(error)) if index == 0 && is_absent(&error) => {
                return Ok(Some("this kernel has no seccomp: system calls are not limited"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL))
}

fn rules(with_ring: bool) -> Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let ring = if with_ring { ALLOWED_WITH_RING } else { &[] };
    let plain = [ALLOWED, ALLOWED_HERE, ring].concat();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = plain.into_iter().map(|call| (call, Vec::new())).collect();
    let pid = u64::from(std::process::id());
    let bits = |value: libc::c_int| u64::from(value.cast_unsigned());
    let empty_path = bits(libc::AT_EMPTY_PATH);
    let executable = Op::MaskedEq(bits(libc::PROT_EXEC));
    let mut add = |call, argument, op, value| -> Result<()> {
        let condition = SeccompCondition::new(argument, Len::Dword, op, value)?;
        let rule = SeccompRule::new(vec![condition])?;
        rules.entry(call).or_default().push(rule);
        Ok(())
    };
    // Facts about an open file, not about a path.
    add(libc::SYS_statx, 2, Op::MaskedEq(empty_path), empty_path)?;
    add(libc::SYS_newfstatat, 3, Op::MaskedEq(empty_path), empty_path)?;
    add(libc::SYS_mmap, 2, executable.clone(), 0)?;
    add(libc::SYS_mprotect, 2, executable, 0)?;
    let thread = bits(libc::CLONE_THREAD);
    add(libc::SYS_clone, 0, Op::MaskedEq(thread), thread)?;
    add(libc::SYS_tgkill, 0, Op::Eq, pid)?;
    // A thread that runs only when no other program wants the processor.
    add(libc::SYS_sched_setscheduler, 1, Op::Eq, bits(libc::SCHED_IDLE))?;
    add(libc::SYS_prlimit64, 0, Op::Eq, 0)?;
    add(libc::SYS_ioctl, 1, Op::Eq, IOCTL_CLONE)?;
    if with_ring {
        add(libc::SYS_io_uring_register, 1, Op::Eq, ENABLE_RINGS)?;
    }
    // Identify the directory of a descriptor, and the user of a client, and whether it sent a socket.
    add(libc::SYS_name_to_handle_at, 4, Op::Eq, empty_path)?;
    for option in [libc::SO_PEERCRED, libc::SO_PEERGROUPS, libc::SO_DOMAIN, libc::SO_TYPE] {
        add(libc::SYS_getsockopt, 2, Op::Eq, bits(option))?;
    }
    for option in [bits(libc::PR_SET_NAME), PRCTL_SET_VMA] {
        add(libc::SYS_prctl, 0, Op::Eq, option)?;
    }
    for command in [libc::F_GETFD, libc::F_SETFD, libc::F_GETFL, libc::F_SETFL, libc::F_DUPFD_CLOEXEC] {
        add(libc::SYS_fcntl, 1, Op::Eq, bits(command))?;
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_reaches_out_is_allowed() {
        let rules = rules(true).unwrap();
        for call in [
            libc::SYS_openat,
            libc::SYS_openat2,
            libc::SYS_open_by_handle_at,
            libc::SYS_socket,
            libc::SYS_socketpair,
            libc::SYS_connect,
            libc::SYS_bind,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_open,
            libc::SYS_pidfd_getfd,
            libc::SYS_kill,
            libc::SYS_unlinkat,
            libc::SYS_renameat2,
            libc::SYS_linkat,
            libc::SYS_symlinkat,
            libc::SYS_mkdirat,
            libc::SYS_fchmod,
            libc::SYS_fchown,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_bpf,
            libc::SYS_memfd_create,
            libc::SYS_userfaultfd,
            libc::SYS_perf_event_open,
            libc::SYS_setuid,
            libc::SYS_capset,
            libc::SYS_io_uring_setup,
        ] {
            assert!(!rules.contains_key(&call), "system call {call}");
        }
        for call in [libc::SYS_clone, libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_ioctl, libc::SYS_io_uring_register]
        {
            assert!(!rules[&call].is_empty(), "system call {call} without condition");
        }
    }
}
