//! Defines the passes of a check: their order, descriptions and dependencies. Each checker defines the table of its
//! format; the `spinney` library looks up the passes that a caller names.

/// Description of a pass.
#[derive(Clone, Copy, Debug)]
pub struct PassInfo<P: 'static> {
    /// The pass.
    pub pass: P,
    /// Its name, stable across versions.
    pub id: &'static str,
    /// Passes that must run before it.
    pub needs: &'static [P],
    /// One line about its subject.
    pub about: &'static str,
}

/// The passes of a format's check.
pub trait PassTable: Copy + Ord + 'static {
    /// Every pass, in the order in which they report.
    fn all() -> &'static [PassInfo<Self>];

    /// The pass with this name.
    #[must_use]
    fn from_id(id: &str) -> Option<Self> {
        Self::all().iter().find(|info| info.id == id).map(|info| info.pass)
    }

    /// Its name.
    #[must_use]
    fn id(self) -> &'static str {
        Self::all().iter().find(|info| info.pass == self).map_or("", |info| info.id)
    }

    /// These passes and all their dependencies, in order.
    #[must_use]
    fn and_needs(mut wanted: Vec<Self>) -> Vec<Self> {
        // Dependencies may have dependencies of their own.
        loop {
            let needs = Self::all().iter().filter(|info| wanted.contains(&info.pass)).flat_map(|info| info.needs);
            let missing: Vec<Self> = needs.copied().filter(|pass| !wanted.contains(pass)).collect();
            if missing.is_empty() {
                wanted.sort_unstable();
                wanted.dedup();
                return wanted;
            }
            wanted.extend(missing);
        }
    }
}
