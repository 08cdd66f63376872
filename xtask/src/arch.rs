//! The architectures that the tool is for, and what is called after them.

use clap::ValueEnum;
use node_tracer_tests::stage::in_path;

/// One of them, by its name in Debian, in images and for krew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Arch {
    /// x86-64
    Amd64,
    /// AArch64, little endian
    Arm64,
}

impl Arch {
    pub(crate) const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// This machine's.
    pub(crate) const HOST: Self = if cfg!(target_arch = "aarch64") {
        Self::Arm64
    } else {
        Self::Amd64
    };

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// What `uname -m`, QEMU and compilers call it.
    pub(crate) const fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// For programs that bring their own C library: they run on any node.
    pub(crate) const fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// The C compiler, which links, too, where it is not this machine's own.
    pub(crate) fn compiler(self) -> Option<String> {
        (self != Self::HOST).then(|| format!("{}-linux-gnu-gcc", self.machine()))
    }

    /// Where cargo and the `cc` crate look for that.
    pub(crate) fn variables(self) -> Vec<(String, String)> {
        let target = self.target().replace('-', "_");
        let compiler = self.compiler().into_iter();
        compiler
            .flat_map(|compiler| {
                let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase());
                [
                    (format!("CC_{target}"), compiler.clone()),
                    (linker, compiler),
                ]
            })
            .collect()
    }

    /// # Errors
    /// There is no compiler for it.
    pub(crate) fn can_be_compiled(self) -> anyhow::Result<()> {
        match self.compiler().filter(|name| in_path(name).is_none()) {
            None => Ok(()),
            Some(compiler) => anyhow::bail!(
                "no {compiler} for {}: cargo xtask setup brings it",
                self.name()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_architecture_takes_a_compiler_of_its_own() {
        assert!(Arch::HOST.variables().is_empty());
        let other = Arch::ALL.into_iter().find(|arch| *arch != Arch::HOST);
        let variables = other.unwrap().variables();
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        let machine = other.unwrap().machine();
        let linker = format!(
            "CARGO_TARGET_{}_UNKNOWN_LINUX_MUSL_LINKER",
            machine.to_uppercase()
        );
        assert_eq!(
            names,
            [&format!("CC_{machine}_unknown_linux_musl"), &linker]
        );
        for (_, compiler) in &variables {
            assert_eq!(*compiler, format!("{machine}-linux-gnu-gcc"));
        }
    }
}
