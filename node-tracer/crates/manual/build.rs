//! Makes the man pages and the completions of the command line's definition, and
//! packs them: what makes them is ten times as large as what they are.

use std::{env, error::Error, fs, io::Write as _, path::Path};

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use flate2::{Compression, write::DeflateEncoder};

/// Where the manual has it: commands of administrators.
const SECTION: &str = "8";
const NAME: &str = "node-tracer";

/// (name, content)
type Texts = Vec<(String, Vec<u8>)>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut texts = Vec::new();
    for (name, shell) in [
        ("bash", Shell::Bash),
        ("zsh", Shell::Zsh),
        ("fish", Shell::Fish),
    ] {
        let mut script = Vec::new();
        generate(shell, &mut cli::Cli::command(), NAME, &mut script);
        texts.push((name.to_owned(), script));
    }
    texts.extend(man_pages()?);
    let mut index = String::from("[\n");
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    let mut begin = 0;
    for (name, text) in texts {
        let end = begin + text.len();
        index += &format!("    ({name:?}, {begin}, {end}),\n");
        packed.write_all(&text)?;
        begin = end;
    }
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    fs::write(out.join("index.rs"), index + "]\n")?;
    fs::write(out.join("texts"), packed.finish()?)?;
    Ok(())
}

/// (file name, source) of the man pages: of the command, and of each of its own.
/// The day is whoever releases them to say.
fn man_pages() -> Result<Texts, Box<dyn Error>> {
    let mut whole = cli::Cli::command().disable_help_subcommand(true);
    whole.build();
    let subcommands = whole.get_subcommands().filter(|it| !it.is_hide_set());
    let pages = std::iter::once(whole.clone()).chain(subcommands.cloned());
    let version = env::var("CARGO_PKG_VERSION")?;
    pages
        .map(|command| {
            let after = command.get_after_help().map(ToString::to_string);
            let man = Man::new(command)
                .section(SECTION)
                .date("DAY")
                .source(format!("{NAME} {version}"))
                .manual(NAME);
            let mut source = Vec::new();
            man.render_title(&mut source)?;
            man.render_name_section(&mut source)?;
            man.render_synopsis_section(&mut source)?;
            man.render_description_section(&mut source)?;
            man.render_options_section(&mut source)?;
            let name = man.get_filename();
            let whole = name == format!("{NAME}.{SECTION}");
            if whole {
                man.render_subcommands_section(&mut source)?;
            }
            after_help(&after.unwrap_or_default()).to_writer(&mut source)?;
            if whole {
                files().to_writer(&mut source)?;
            }
            Ok((name, source))
        })
        .collect()
}

/// What stands below the options: examples as they are typed, or what exit
/// codes mean.
fn after_help(text: &str) -> Roff {
    let mut page = Roff::new();
    if let Some(examples) = text.strip_prefix("Examples:\n") {
        page.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples.lines() {
            page.text([roman(line.trim())]);
        }
        page.control("fi", []);
    } else if let Some(codes) = text.strip_prefix("Exit codes: ") {
        page.control("SH", ["EXIT STATUS"]).text([roman(codes)]);
    }
    page
}

/// What belongs to the command on a node.
fn files() -> Roff {
    const FILES: [(&str, &str); 4] = [
        (
            "/usr/lib/systemd/system/node-tracer.service",
            "trace as a service; off until systemctl enable --now node-tracer.",
        ),
        ("/etc/default/node-tracer", "Its options."),
        (
            "/var/lib/node-tracer",
            "For its recordings, and the backups of repair.",
        ),
        (
            "/usr/share/doc/node-tracer/examples",
            "Manifest for Kubernetes, alerts for Prometheus, dashboard for Grafana.",
        ),
    ];
    let mut page = Roff::new();
    page.control("SH", ["FILES"]);
    for (path, what) in FILES {
        page.control("TP", []).text([bold(path)]);
        page.text([roman(what)]);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("journalctl"),
        roman("(1), "),
        bold("crictl"),
        roman("(1)"),
    ]);
    page
}
