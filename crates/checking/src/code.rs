//! Defines the table of a check's finding codes: for each a stable name, the meaning for the user's data, and advice.
//! Each checker fills it with `codes!`; the `spinney` library and reports read it.

use crate::pass::PassTable;

/// Description of a code.
#[derive(Clone, Copy, Debug)]
pub struct CodeInfo<C, P> {
    /// The code.
    pub code: C,
    /// Its name, stable across versions.
    pub id: &'static str,
    /// The pass that finds it.
    pub pass: P,
    /// The damage.
    pub what: &'static str,
    /// Its meaning for the data.
    pub means: &'static str,
    /// Advice.
    pub advice: &'static str,
}

/// The codes of a format's check; [`codes`](crate::codes) makes it.
pub trait CodeTable: Copy + Ord + 'static {
    /// The passes that report the codes.
    type Pass: PassTable;

    /// Every code, in the order of the passes.
    fn all() -> &'static [CodeInfo<Self, Self::Pass>];

    /// The code with this name.
    #[must_use]
    fn from_id(id: &str) -> Option<Self> {
        Self::all().iter().find(|info| info.id == id).map(|info| info.code)
    }

    /// Its description.
    #[must_use]
    fn info(self) -> Option<&'static CodeInfo<Self, Self::Pass>> {
        Self::all().iter().find(|info| info.code == self)
    }

    /// Its name.
    #[must_use]
    fn id(self) -> &'static str {
        self.info().map_or("", |info| info.id)
    }
}

/// Defines `Code`, an enumeration of kinds of damage, and its table. Each row has: variant, name, variant of `Pass`,
/// damage, meaning, advice. The last two are names of constants; `Pass` must be in scope.
#[macro_export]
macro_rules! codes {
    ($($name:ident $id:literal $pass:ident $what:literal $means:ident $advice:ident;)*) => {
        /// A kind of damage.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $what] $name,)*
        }

        const TABLE: &[$crate::CodeInfo<Code, Pass>] = &[$($crate::CodeInfo {
            code: Code::$name, id: $id, pass: Pass::$pass, what: $what, means: $means, advice: $advice,
        }),*];

        impl $crate::CodeTable for Code {
            type Pass = Pass;

            fn all() -> &'static [$crate::CodeInfo<Self, Pass>] {
                TABLE
            }
        }

        impl ::std::fmt::Display for Code {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str($crate::CodeTable::id(*self))
            }
        }
    };
}
