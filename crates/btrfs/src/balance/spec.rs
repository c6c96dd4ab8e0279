//! Parses the selection of block groups for a balance, filters in the syntax of `btrfs balance`, and applies it. Used
//! by `run` and by the command `balance`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use btrfs_disk::flags::{BalanceFilters, BalanceFlags, BlockGroupFlags};
use btrfs_disk::items::{BalanceArgs, BalanceItem};
use btrfs_store::{GroupState, NewProfiles};
use zerocopy::FromZeros;
use zerocopy::little_endian::{U32, U64};

/// Names of profiles, with their bits in a balance's arguments.
const PROFILES: [(&str, u64); 9] = [
    ("single", BalanceArgs::SINGLE),
    ("dup", BlockGroupFlags::DUP.bits()),
    ("raid0", BlockGroupFlags::RAID0.bits()),
    ("raid1", BlockGroupFlags::RAID1.bits()),
    ("raid10", BlockGroupFlags::RAID10.bits()),
    ("raid5", BlockGroupFlags::RAID5.bits()),
    ("raid6", BlockGroupFlags::RAID6.bits()),
    ("raid1c3", BlockGroupFlags::RAID1C3.bits()),
    ("raid1c4", BlockGroupFlags::RAID1C4.bits()),
];

/// A resumed balance takes groups less full than this, percent: those it has written are fuller.
const RESUMED_USAGE: u32 = 90;

/// The parameters of a balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceSpec(pub(crate) BalanceItem);

/// Why a text is not a filter of a balance.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotBalance(String);

impl Default for BalanceSpec {
    fn default() -> Self {
        Self(BalanceItem::new_zeroed())
    }
}

/// The three uses of block groups, each with its own filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Data,
    Metadata,
    System,
}

impl Use {
    pub(crate) const ALL: [Self; 3] = [Self::Data, Self::Metadata, Self::System];

    pub(crate) fn flag(self) -> BalanceFlags {
        match self {
            Self::Data => BalanceFlags::DATA,
            Self::Metadata => BalanceFlags::METADATA,
            Self::System => BalanceFlags::SYSTEM,
        }
    }

    pub(crate) fn of(flags: BlockGroupFlags) -> Self {
        if flags.contains(BlockGroupFlags::DATA) {
            Self::Data
        } else if flags.contains(BlockGroupFlags::SYSTEM) {
            Self::System
        } else {
            Self::Metadata
        }
    }

    /// The bit of block groups with this use.
    pub(crate) fn group_flag(self) -> BlockGroupFlags {
        match self {
            Self::Data => BlockGroupFlags::DATA,
            Self::Metadata => BlockGroupFlags::METADATA,
            Self::System => BlockGroupFlags::SYSTEM,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::System => "system",
        }
    }
}

impl BalanceSpec {
    /// A balance of all block groups.
    #[must_use]
    pub fn all() -> Self {
        let mut spec = Self::default();
        spec.0.flags = (BalanceFlags::DATA | BalanceFlags::METADATA | BalanceFlags::SYSTEM).bits().into();
        spec
    }

    /// Adds the block groups of data that these filters select: `usage=50,limit=2`, an empty text for all.
    ///
    /// # Errors
    /// [`NotBalance`] for a text that is not a filter.
    pub fn data(mut self, filters: &str) -> Result<Self, NotBalance> {
        self.0.data = parse(filters)?;
        Ok(self.with(Use::Data))
    }

    /// Adds block groups of metadata, as [`Self::data`].
    ///
    /// # Errors
    /// As [`Self::data`].
    pub fn metadata(mut self, filters: &str) -> Result<Self, NotBalance> {
        self.0.metadata = parse(filters)?;
        Ok(self.with(Use::Metadata))
    }

    /// Adds block groups of the chunk tree, as [`Self::data`].
    ///
    /// # Errors
    /// As [`Self::data`].
    pub fn system(mut self, filters: &str) -> Result<Self, NotBalance> {
        self.0.system = parse(filters)?;
        Ok(self.with(Use::System))
    }

    /// Permits conversions to fewer copies of metadata.
    #[must_use]
    pub fn force(mut self) -> Self {
        self.0.flags |= BalanceFlags::FORCE.bits();
        self
    }

    fn with(mut self, one: Use) -> Self {
        self.0.flags |= one.flag().bits();
        self
    }

    pub(crate) fn has(&self, one: Use) -> bool {
        self.0.balance_flags().contains(one.flag())
    }

    pub(crate) fn is_forced(&self) -> bool {
        self.0.balance_flags().contains(BalanceFlags::FORCE)
    }

    pub(crate) fn args(&self, one: Use) -> &BalanceArgs {
        match one {
            Use::Data => &self.0.data,
            Use::Metadata => &self.0.metadata,
            Use::System => &self.0.system,
        }
    }

    fn args_mut(&mut self, one: Use) -> &mut BalanceArgs {
        match one {
            Use::Data => &mut self.0.data,
            Use::Metadata => &mut self.0.metadata,
            Use::System => &mut self.0.system,
        }
    }

    /// The profile that groups of this use become.
    pub(crate) fn target(&self, one: Use) -> Option<BlockGroupFlags> {
        let args = self.args(one);
        let converts = self.has(one) && args.filters().contains(BalanceFilters::CONVERT);
        converts.then(|| BlockGroupFlags::from_bits_retain(args.target.get() & !BalanceArgs::SINGLE))
    }

    /// The profiles of new groups.
    pub(crate) fn new_profiles(&self) -> NewProfiles {
        let [data, metadata, system] = [Use::Data, Use::Metadata, Use::System].map(|one| self.target(one));
        NewProfiles { data, metadata, system }
    }

    /// The same, for a resumed balance: skips finished groups, as far as they can be recognised.
    pub(crate) fn resumed(mut self) -> Self {
        self.0.flags |= BalanceFlags::RESUME.bits();
        for one in Use::ALL {
            let is_selected = self.has(one);
            let args = self.args_mut(one);
            let filters = args.filters();
            let narrows = BalanceFilters::USAGE | BalanceFilters::USAGE_RANGE | BalanceFilters::CONVERT;
            if filters.contains(BalanceFilters::CONVERT) {
                args.flags |= BalanceFilters::SOFT.bits();
            } else if is_selected && !filters.intersects(narrows) {
                args.flags |= BalanceFilters::USAGE.bits();
                args.usage = [RESUMED_USAGE.into(), 0.into()];
            }
        }
        self
    }

    /// Whether the group is balanced, limits on their number apart.
    pub(crate) fn selects(&self, group: &GroupState) -> bool {
        let one = Use::of(group.flags);
        // A mixed group has to be selected by both uses.
        let is_mixed = group.flags.contains(BlockGroupFlags::MIXED);
        if !self.has(one) || (is_mixed && !self.has(Use::Metadata)) {
            return false;
        }
        let args = self.args(one);
        let filters = args.filters();
        let profile = profile_bit(group.flags);
        let on_device = |device: u64| group.stripes.iter().filter(move |stripe| stripe.device.0 == device);
        let end = group.start.0.saturating_add(group.len);
        let overlaps = |range: [u64; 2], start: u64, end: u64| start < range[1] && end > range[0];
        let lies_in = |range: [u64; 2]| {
            let mut stripes = on_device(args.devid.get());
            stripes.any(|stripe| overlaps(range, stripe.offset, stripe.offset.saturating_add(group.stripe_bytes)))
        };
        let stripe_count = u32::try_from(group.stripes.len()).unwrap_or(u32::MAX);
        let passes = [
            (BalanceFilters::PROFILES, args.profiles.get() & profile != 0),
            (BalanceFilters::USAGE, group.used < below(group.len, BalanceArgs::whole(args.usage))),
            (BalanceFilters::USAGE_RANGE, is_in_usage(group, args)),
            (BalanceFilters::DEVID, on_device(args.devid.get()).next().is_some()),
            (BalanceFilters::DRANGE, lies_in(args.drange.map(|at| at.get()))),
            (BalanceFilters::VRANGE, overlaps(args.vrange.map(|at| at.get()), group.start.0, end)),
            (BalanceFilters::STRIPES_RANGE, (args.stripes[0].get()..=args.stripes[1].get()).contains(&stripe_count)),
        ];
        let is_converted = filters.contains(BalanceFilters::CONVERT | BalanceFilters::SOFT) && args.target == profile;
        !is_converted && passes.into_iter().all(|(filter, passes)| !filters.contains(filter) || passes)
    }

    /// Most groups of this use that are balanced, and fewest that are worth it.
    pub(crate) fn limits(&self, one: Use) -> RangeInclusive<u64> {
        let args = self.args(one);
        if args.filters().contains(BalanceFilters::LIMIT) {
            return 0..=BalanceArgs::whole(args.limit);
        }
        match args.filters().contains(BalanceFilters::LIMIT_RANGE) {
            true => u64::from(args.limit[0].get())..=u64::from(args.limit[1].get()),
            false => 0..=u64::MAX,
        }
    }
}

/// The bit of a group's profile in a balance's arguments.
pub(crate) fn profile_bit(flags: BlockGroupFlags) -> u64 {
    match (flags & BlockGroupFlags::PROFILE_MASK).bits() {
        0 => BalanceArgs::SINGLE,
        bits => bits,
    }
}

/// Bytes that a group of this length has less in use than, at `percent`. Of 0 percent is a group without any.
fn below(len: u64, percent: u64) -> u64 {
    match percent {
        0 => 1,
        // A full group is not below a hundred percent: "every group" is said by no filter.
        1..=100 => part(len, percent),
        _ => len,
    }
}

fn part(len: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(len) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}

fn is_in_usage(group: &GroupState, args: &BalanceArgs) -> bool {
    let [min, max] = args.usage.map(|half| u64::from(half.get()));
    group.used >= part(group.len, min) && group.used < below(group.len, max)
}

fn wrong(text: String) -> NotBalance {
    NotBalance(text)
}

/// Reads filters: names, most with a value, parted by commas.
fn parse(text: &str) -> Result<BalanceArgs, NotBalance> {
    let mut args = BalanceArgs::all();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let filter = set(&mut args, name, value)?;
        args.flags |= filter.bits();
    }
    check(&args)?;
    Ok(args)
}

/// Sets the fields of one filter.
fn set(args: &mut BalanceArgs, name: &str, value: Option<&str>) -> Result<BalanceFilters, NotBalance> {
    let value = |what: &str| value.ok_or_else(|| wrong(format!("{name}: expected {name}={what}")));
    match name {
        "profiles" => {
            args.profiles = profiles(value("PROFILE|...")?)?.into();
            Ok(BalanceFilters::PROFILES)
        }
        "convert" => {
            args.target = profiles(value("PROFILE")?)?.into();
            Ok(BalanceFilters::CONVERT)
        }
        "soft" => Ok(BalanceFilters::SOFT),
        "usage" => {
            let (min, max) = range(name, value("PERCENT or MIN..MAX")?, 100)?;
            if max > 100 {
                return Err(wrong(format!("usage: {max} is more than 100 percent")));
            }
            let (halves, is_range) = halves(min, max);
            args.usage = halves;
            Ok(if is_range { BalanceFilters::USAGE_RANGE } else { BalanceFilters::USAGE })
        }
        "limit" => {
            let (min, max) = range(name, value("NUMBER or MIN..MAX")?, u32::MAX.into())?;
            let (halves, is_range) = halves(min, max);
            args.limit = halves;
            Ok(if is_range { BalanceFilters::LIMIT_RANGE } else { BalanceFilters::LIMIT })
        }
        "stripes" => {
            let (min, max) = range(name, value("NUMBER or MIN..MAX")?, u32::MAX.into())?;
            args.stripes = halves(Some(min.unwrap_or(max)), max).0;
            Ok(BalanceFilters::STRIPES_RANGE)
        }
        "devid" => {
            args.devid = number(name, value("NUMBER")?)?.into();
            Ok(BalanceFilters::DEVID)
        }
        "drange" => {
            args.drange = addresses(name, value("START..END")?)?;
            Ok(BalanceFilters::DRANGE)
        }
        "vrange" => {
            args.vrange = addresses(name, value("START..END")?)?;
            Ok(BalanceFilters::VRANGE)
        }
        _ => Err(wrong(format!("{name}: no such filter"))),
    }
}

/// A range as two numbers, or one number as their lower half; and whether it is a range.
fn halves(min: Option<u64>, max: u64) -> ([U32; 2], bool) {
    let half = |number: u64| U32::new(u32::try_from(number).unwrap_or(u32::MAX));
    match min {
        Some(min) => ([half(min), half(max)], true),
        None => ([half(max), U32::new(0)], false),
    }
}

fn addresses(name: &str, text: &str) -> Result<[U64; 2], NotBalance> {
    match range(name, text, u64::MAX)? {
        (Some(start), end) => Ok([start.into(), end.into()]),
        (None, _) => Err(wrong(format!("{name}: expected {name}=START..END"))),
    }
}

fn check(args: &BalanceArgs) -> Result<(), NotBalance> {
    let has = |filter| args.filters().contains(filter);
    if has(BalanceFilters::DRANGE) && !has(BalanceFilters::DEVID) {
        return Err(wrong("drange: of which device? (devid=NUMBER)".to_owned()));
    }
    if has(BalanceFilters::SOFT) && !has(BalanceFilters::CONVERT) {
        return Err(wrong("soft: only with convert=PROFILE".to_owned()));
    }
    let unwritten = BlockGroupFlags::RAID5.bits() | BlockGroupFlags::RAID6.bits();
    if has(BalanceFilters::CONVERT) && (args.target & unwritten != 0 || args.target.get().count_ones() != 1) {
        return Err(wrong("convert: expected one profile, other than raid5 and raid6".to_owned()));
    }
    Ok(())
}

fn profiles(text: &str) -> Result<u64, NotBalance> {
    text.split('|').try_fold(0, |bits, word| {
        let found = PROFILES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        found.map(|(_, bit)| bits | bit).ok_or_else(|| wrong(format!("{word}: no such profile")))
    })
}

fn number(name: &str, text: &str) -> Result<u64, NotBalance> {
    text.parse().map_err(|_| wrong(format!("{name}: {text} is no number")))
}

/// `NUMBER`, which is the end, or `START..END`, of which either may be missing.
fn range(name: &str, text: &str, last: u64) -> Result<(Option<u64>, u64), NotBalance> {
    let Some((start, end)) = text.split_once("..") else {
        return Ok((None, number(name, text)?));
    };
    let start = if start.is_empty() { 0 } else { number(name, start)? };
    let end = if end.is_empty() { last } else { number(name, end)? };
    match start <= end {
        true => Ok((Some(start), end)),
        false => Err(wrong(format!("{name}: {start} is beyond {end}"))),
    }
}

impl FromStr for BalanceSpec {
    type Err = NotBalance;

    /// Reads what [`fmt::Display`] writes: `data:usage=50 metadata force`.
    fn from_str(text: &str) -> Result<Self, NotBalance> {
        text.split_ascii_whitespace().try_fold(Self::default(), |spec, word| {
            let (name, filters) = word.split_once(':').unwrap_or((word, ""));
            match name {
                "data" => spec.data(filters),
                "metadata" => spec.metadata(filters),
                "system" => spec.system(filters),
                "force" => Ok(spec.force()),
                _ => Err(wrong(format!("{name}: expected data, metadata, system or force"))),
            }
        })
    }
}

impl fmt::Display for BalanceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for one in Use::ALL.into_iter().filter(|one| self.has(*one)) {
            write!(f, "{separator}{}", one.name())?;
            separator = " ";
            write_filters(f, self.args(one))?;
        }
        if self.is_forced() {
            write!(f, "{separator}force")?;
        }
        Ok(())
    }
}

fn write_filters(f: &mut fmt::Formatter<'_>, args: &BalanceArgs) -> fmt::Result {
    let names = |bits: u64| {
        let names: Vec<&str> = PROFILES.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect();
        names.join("|")
    };
    let [usage_min, usage_max] = args.usage.map(|half| half.get());
    let [limit_min, limit_max] = args.limit.map(|half| half.get());
    let [stripes_min, stripes_max] = args.stripes.map(|half| half.get());
    let words = [
        (BalanceFilters::PROFILES, format!("profiles={}", names(args.profiles.get()))),
        (BalanceFilters::USAGE, format!("usage={}", BalanceArgs::whole(args.usage))),
        (BalanceFilters::USAGE_RANGE, format!("usage={usage_min}..{usage_max}")),
        (BalanceFilters::DEVID, format!("devid={}", args.devid)),
        (BalanceFilters::DRANGE, format!("drange={}..{}", args.drange[0], args.drange[1])),
        (BalanceFilters::VRANGE, format!("vrange={}..{}", args.vrange[0], args.vrange[1])),
        (BalanceFilters::LIMIT, format!("limit={}", BalanceArgs::whole(args.limit))),
        (BalanceFilters::LIMIT_RANGE, format!("limit={limit_min}..{limit_max}")),
        (BalanceFilters::STRIPES_RANGE, format!("stripes={stripes_min}..{stripes_max}")),
        (BalanceFilters::CONVERT, format!("convert={}", names(args.target.get()))),
        (BalanceFilters::SOFT, "soft".to_owned()),
    ];
    let mut separator = ":";
    for (_, word) in words.iter().filter(|(filter, _)| args.filters().contains(*filter)) {
        write!(f, "{separator}{word}")?;
        separator = ",";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use btrfs_disk::{DevId, Logical, Uuid};
    use btrfs_store::Stripe;

    use super::*;

    #[test]
    fn filters_are_read_and_written() {
        for text in [
            "data",
            "data:usage=50 metadata:usage=10..90,limit=2 system force",
            "metadata:profiles=single|dup,devid=1,drange=0..1048576,vrange=4096..8192,stripes=1..2",
            "data:limit=1..3,convert=dup,soft",
        ] {
            let spec: BalanceSpec = text.parse().unwrap();
            assert_eq!(spec.to_string(), text);
        }
        for wrong in [
            "files",
            "data:usage",
            "data:usage=101",
            "data:usage=50..40",
            "data:limit=x",
            "data:soft",
            "data:drange=0..1",
            "data:convert=raid5",
            "data:convert=single|dup",
            "data:profiles=none",
            "data:vrange=7",
            "data:colour=red",
        ] {
            wrong.parse::<BalanceSpec>().unwrap_err();
        }
    }

    fn group(start: u64, used: u64, flags: BlockGroupFlags) -> GroupState {
        let stripe = Stripe { device: DevId(1), offset: start * 2, device_uuid: Uuid([0; 16]) };
        GroupState {
            start: Logical(start),
            len: 1000,
            flags,
            used,
            stripes: vec![stripe],
            stripe_bytes: 1000,
            is_fixed: false,
            is_on_seed: false,
        }
    }

    fn selects(spec: &str, group: &GroupState) -> bool {
        spec.parse::<BalanceSpec>().unwrap().selects(group)
    }

    #[test]
    fn groups_are_selected_as_the_kernel_does() {
        let data = group(5000, 500, BlockGroupFlags::DATA);
        let dup = group(9000, 0, BlockGroupFlags::METADATA | BlockGroupFlags::DUP);
        let yes = [
            "data",
            "data:usage=51",
            "data:usage=50..51",
            "data:devid=1,drange=10999..20000",
            "data:vrange=5999..6000",
            "data:profiles=single|dup",
            "data:convert=dup,soft",
            "data:stripes=1",
        ];
        let no = [
            "metadata",
            "data:usage=50",
            "data:usage=51..90",
            "data:usage=0..50",
            "data:devid=2",
            "data:vrange=0..5000",
            "data:vrange=6000..7000",
            "data:profiles=dup",
            "data:convert=single,soft",
            "data:stripes=2",
            "data:devid=1,drange=0..10000",
            "data:usage=0",
        ];
        for spec in yes {
            assert!(selects(spec, &data), "{spec}");
        }
        for spec in no {
            assert!(!selects(spec, &data), "{spec}");
        }
        assert!(selects("metadata:usage=0", &dup) && selects("metadata:profiles=dup", &dup));
        let mixed = group(0, 1, BlockGroupFlags::MIXED);
        assert!(!selects("data", &mixed) && selects("data metadata", &mixed));
    }

    #[test]
    fn what_goes_on_leaves_what_was_done() {
        let spec: BalanceSpec = "data metadata:convert=dup system:usage=5".parse().unwrap();
        assert_eq!(spec.resumed().to_string(), "data:usage=90 metadata:convert=dup,soft system:usage=5");
        assert_eq!(spec.resumed().limits(Use::Data), 0..=u64::MAX);
        let few: BalanceSpec = "data:limit=2 metadata:limit=3..4".parse().unwrap();
        assert_eq!((few.limits(Use::Data), few.limits(Use::Metadata)), (0..=2, 3..=4));
    }
}
