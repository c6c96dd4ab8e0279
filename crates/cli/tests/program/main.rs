//! The program as its users run it: the binary, real files, exit statuses.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "tests fail by panicking")]

mod backup;
mod balance;
mod changes;
mod check;
mod check_mount;
mod copies;
mod du;
mod failures;
mod flushes;
mod generations;
mod harness;
mod interrupted;
mod layout;
mod make_f2fs;
mod mount;
mod mount_commands;
mod mount_dedupe;
mod mount_ends;
mod mount_guard;
mod mount_handles;
mod mount_host_full;
mod mount_idmapped;
mod mount_inherited;
mod mount_names;
mod mount_second;
mod mount_subvolumes;
mod mount_sync;
mod mount_times;
mod mount_truncate;
mod mount_whole;
mod mounted;
mod quotas;
mod receive;
mod repair;
mod reports;
mod rescue;
mod rescue_damaged;
mod scrub;
mod send;
mod sizes;
mod subvolumes;
mod trim;
mod trust;
mod verify_crash;
