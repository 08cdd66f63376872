//! What is run in the guests: suites of tests, and the boots that each takes.

use clap::ValueEnum;

/// Tests that run in the same kind of guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Every signal by every mechanism
    Matrix,
    /// With one fact taken away at a time: capabilities, lockdown, BTF, memlock
    Privileges,
}

/// One start of a guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boot {
    /// What runs in it.
    pub(crate) suite: Suite,
    /// What is added to the kernel's command line.
    pub(crate) append: &'static str,
}

impl Suite {
    /// As the guest is told.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Privileges => "privileges",
        }
    }

    /// All that it takes.
    pub(crate) fn boots(self) -> Vec<Boot> {
        let appends: &[&str] = match self {
            Self::Matrix => &[""],
            Self::Privileges => &["", "lockdown=integrity", "lockdown=confidentiality"],
        };
        let boots = appends.iter().map(|append| Boot {
            suite: self,
            append,
        });
        boots.collect()
    }
}
