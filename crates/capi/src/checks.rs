//! Checks volumes, and tells the findings one after the other.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::size_of;
use std::ptr;

use spinney::{CheckOptions, CheckReport, Finding, Result};

use crate::device::devices;
use crate::handle::{self, Handle, SpinneyDevice, SpinneyReport, alone, on};
use crate::list::{List, c_text};
use crate::pointer::{HandlePlace, Struct, StructPlace, check_flags, path, read_struct_or_null};
use crate::progress::{SpinneyProgressFn, watch};

/// Reads all file data too.
pub const SPINNEY_CHECK_DATA: u32 = 1;

/// Most threads of a check: what a caller forgot to set may be any number.
const THREADS_MAX: u32 = 256;

/// `spinney_check_options`: the extent of a check.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyCheckOptions {
    pub struct_size: usize,
    pub flags: u32,
    pub threads: u32,
}

// SAFETY: it begins with its size; all fields are numbers.
unsafe impl Struct for SpinneyCheckOptions {
    const NAME: &'static str = "spinney_check_options";
}

/// `spinney_summary`: how much was checked and found.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneySummary {
    pub struct_size: usize,
    pub errors: u64,
    pub inodes: u64,
    pub bytes: u64,
}

// SAFETY: it begins with its size; all fields are numbers.
unsafe impl Struct for SpinneySummary {
    const NAME: &'static str = "spinney_summary";
}

/// `spinney_finding`: something that is wrong with a volume.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SpinneyFinding {
    pub struct_size: usize,
    pub code: *const c_char,
    pub pass: *const c_char,
    pub about: *const c_char,
    pub what: *const c_char,
    pub path: *const c_char,
    pub place: *const c_char,
    pub expected: *const c_char,
    pub found: *const c_char,
}

// SAFETY: it begins with its size; all fields are pointers.
unsafe impl Struct for SpinneyFinding {
    const NAME: &'static str = "spinney_finding";
}

/// The texts of a finding, in the order of the struct.
#[derive(Debug)]
pub(crate) struct Row {
    texts: [CString; 7],
    path: Option<CString>,
}

/// A report with texts for C.
#[derive(Debug)]
pub(crate) struct Report {
    summary: SpinneySummary,
    findings: List<Row>,
}

impl Handle for SpinneyReport {
    type Object = Report;
    const NAME: &'static str = "a report";
}

impl Row {
    fn new(finding: &Finding) -> Result<Self> {
        // A path of a damaged image may hold anything.
        let text = |text: &str| c_text(text.replace('\0', "\u{fffd}"), "a finding");
        let place: Vec<&str> = finding.place.iter().map(|part| &*part.text).filter(|text| !text.is_empty()).collect();
        Ok(Self {
            texts: [
                text(finding.code)?,
                text(finding.pass)?,
                text(finding.about)?,
                text(&finding.what)?,
                text(&place.join(", "))?,
                text(&finding.expected)?,
                text(&finding.found)?,
            ],
            path: finding.path.as_deref().map(text).transpose()?,
        })
    }
}

impl Report {
    fn new(report: &CheckReport) -> Result<Self> {
        let summary = SpinneySummary {
            struct_size: size_of::<SpinneySummary>(),
            errors: report.errors(),
            inodes: report.inodes,
            bytes: report.bytes,
        };
        let findings = report.findings.iter().map(Row::new).collect::<Result<Vec<_>>>()?;
        Ok(Self { summary, findings: List::new(findings) })
    }
}

/// Checks a volume; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_check(
    image: *const c_char,
    options: *const SpinneyCheckOptions,
    progress: SpinneyProgressFn,
    context: *mut c_void,
    report: *mut *mut SpinneyReport,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (image, options, mut watch, place) = unsafe {
        let place = HandlePlace::new(report, "report");
        (path(image, "image"), check_options(options), watch(progress, context), place)
    };
    alone(|| {
        let place = place?;
        place.fill(handle::new(Report::new(&spinney::check(image?, &options?, &mut watch)?)?));
        Ok(0)
    })
}

/// Checks a volume on devices; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_check_devices(
    devices: *const *mut SpinneyDevice,
    count: usize,
    options: *const SpinneyCheckOptions,
    progress: SpinneyProgressFn,
    context: *mut c_void,
    report: *mut *mut SpinneyReport,
) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let (devices, options, mut watch, place) = unsafe {
        let place = HandlePlace::new(report, "report");
        (self::devices(devices, count), check_options(options), watch(progress, context), place)
    };
    alone(|| {
        let place = place?;
        place.fill(handle::new(Report::new(&spinney::check_devices(devices?, &options?, &mut watch)?)?));
        Ok(0)
    })
}

/// # Safety
/// `options` is NULL, or a struct of the header.
unsafe fn check_options(options: *const SpinneyCheckOptions) -> Result<CheckOptions> {
    // SAFETY: as this function demands.
    let Some(given) = unsafe { read_struct_or_null(options) }? else { return Ok(CheckOptions::default()) };
    check_flags(given.flags, SPINNEY_CHECK_DATA)?;
    let threads = usize::try_from(given.threads.min(THREADS_MAX)).ok().filter(|threads| *threads > 0);
    Ok(CheckOptions { data: given.flags == SPINNEY_CHECK_DATA, threads, ..CheckOptions::default() })
}

/// Tells how much was checked and found; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_report_summary(report: *mut SpinneyReport, summary: *mut SpinneySummary) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let place = unsafe { StructPlace::new(summary) };
    on(report, |report| {
        place?.fill(&report.summary);
        Ok(0)
    })
}

/// Tells the next finding; see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn spinney_report_next(report: *mut SpinneyReport, finding: *mut SpinneyFinding) -> c_int {
    // SAFETY: the caller keeps the contract of the header.
    let place = unsafe { StructPlace::new(finding) };
    on(report, |report| {
        let place = place?;
        let Some(row) = report.findings.next() else { return Ok(0) };
        let [code, pass, about, what, place_text, expected, found] = row.texts.each_ref().map(|text| text.as_ptr());
        place.fill(&SpinneyFinding {
            struct_size: size_of::<SpinneyFinding>(),
            code,
            pass,
            about,
            what,
            path: row.path.as_ref().map_or(ptr::null(), |path| path.as_ptr()),
            place: place_text,
            expected,
            found,
        });
        Ok(1)
    })
}
