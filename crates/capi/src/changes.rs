//! Lists the differences between two subvolumes.

use std::ffi::{CString, c_char, c_int};
use std::mem::size_of;
use std::ptr;

use spinney::Result;
use spinney::btrfs::{Change, ChangeKind, Named};

use crate::handle::{Handle, SpinneyChanges, SpinneyVolume, on};
use crate::list::{List, c_text};
use crate::pointer::{HandlePlace, Struct, StructPlace, path};
use crate::subvolumes::own;

/// Only the new subvolume has it.
pub const SPINNEY_ADDED: u32 = 1;
/// Only the old subvolume has it.
pub const SPINNEY_REMOVED: u32 = 2;
/// Both have it.
pub const SPINNEY_CHANGED: u32 = 3;
/// It has another name, or is in another directory.
pub const SPINNEY_RENAMED: u32 = 4;

/// `spinney_range`: bytes of a file.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyRange {
    pub begin: u64,
    pub end: u64,
}

/// `spinney_name_change`: the change of a name.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyNameChange {
    pub kind: u32,
    pub reserved: u32,
    pub from: *const c_char,
    pub to: *const c_char,
}

/// `spinney_change`: an inode that differs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyChange {
    pub struct_size: usize,
    pub ino: u64,
    pub kind: u32,
    pub r#type: u32,
    pub path: *const c_char,
    pub metadata: u32,
    pub resized: u32,
    pub size_before: u64,
    pub size_after: u64,
    pub data: *const SpinneyRange,
    pub data_count: usize,
    pub names: *const SpinneyNameChange,
    pub name_count: usize,
}

// SAFETY: it begins with its size; all fields are numbers and pointers.
unsafe impl Struct for SpinneyChange {
    const NAME: &'static str = "spinney_change";
}

/// A change, with everything that its struct points to.
#[derive(Debug)]
pub(crate) struct Row {
    shown: SpinneyChange,
    /// The struct points into these; they are never changed.
    _texts: Vec<CString>,
    _data: Vec<SpinneyRange>,
    _names: Vec<SpinneyNameChange>,
}

// SAFETY: its pointers lead into its own vectors, which nobody changes.
unsafe impl Send for Row {}
// SAFETY: as above.
unsafe impl Sync for Row {}

impl Handle for SpinneyChanges {
    type Object = List<Row>;
    const NAME: &'static str = "a list of differences";
}

impl Row {
    fn new(change: &Change) -> Result<Self> {
        let mut texts = Vec::new();
        let mut keep = |path: &std::path::Path| -> Result<*const c_char> {
            let text = c_text(path, "a path")?;
            let pointer = text.as_ptr();
            // The text itself does not move with its owner.
            texts.push(text);
            Ok(pointer)
        };
        let mut shown = SpinneyChange {
            struct_size: size_of::<SpinneyChange>(),
            ino: change.ino.0,
            kind: SPINNEY_ADDED,
            r#type: change.kind.mode_bits(),
            path: ptr::null(),
            metadata: 0,
            resized: 0,
            size_before: 0,
            size_after: 0,
            data: ptr::null(),
            data_count: 0,
            names: ptr::null(),
            name_count: 0,
        };
        let mut data = Vec::new();
        match &change.what {
            ChangeKind::Added => {}
            ChangeKind::Removed => shown.kind = SPINNEY_REMOVED,
            ChangeKind::Changed { path, data: ranges, size, metadata } => {
                shown.kind = SPINNEY_CHANGED;
                shown.path = keep(path)?;
                shown.metadata = (*metadata).into();
                shown.resized = size.is_some().into();
                (shown.size_before, shown.size_after) = size.unwrap_or_default();
                data = ranges.iter().map(|range| SpinneyRange { begin: range.start, end: range.end }).collect();
            }
        }
        let none = ptr::null();
        let names = change.names.iter().map(|named| {
            let (kind, from, to) = match named {
                Named::Added(to) => (SPINNEY_ADDED, none, keep(to)?),
                Named::Removed(from) => (SPINNEY_REMOVED, keep(from)?, none),
                Named::Renamed(from, to) => (SPINNEY_RENAMED, keep(from)?, keep(to)?),
            };
            Ok(SpinneyNameChange { kind, reserved: 0, from, to })
        });
        let names = names.collect::<Result<Vec<_>>>()?;
        (shown.data, shown.data_count) = (data.as_ptr(), data.len());
        (shown.names, shown.name_count) = (names.as_ptr(), names.len());
        Ok(Self { shown, _texts: texts, _data: data, _names: names })
    }
}

/// Collects the differences between two subvolumes; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_changes_open(
    volume: *mut SpinneyVolume,
    old_subvolume: *const c_char,
    new_subvolume: *const c_char,
    changes: *mut *mut SpinneyChanges,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (old, new, place) = unsafe {
        (
            path(old_subvolume, "old_subvolume"),
            path(new_subvolume, "new_subvolume"),
            HandlePlace::new(changes, "changes"),
        )
    };
    on(volume, |volume| {
        let place = place?;
        let mut rows = Vec::new();
        own(volume)?.for_each_change(old?, new?, |change| {
            rows.push(Row::new(&change)?);
            Ok::<_, spinney::Error>(())
        })?;
        place.fill(volume.child(List::new(rows)));
        Ok(0)
    })
}

/// Tells the next difference; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_changes_next(changes: *mut SpinneyChanges, change: *mut SpinneyChange) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let place = unsafe { StructPlace::new(change) };
    on(changes, |changes| {
        let place = place?;
        let Some(row) = changes.next() else { return Ok(0) };
        place.fill(&row.shown);
        Ok(1)
    })
}
