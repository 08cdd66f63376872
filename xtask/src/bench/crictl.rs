//! A stand-in for crictl, where that is not installed: what the usual shell
//! line needs of it, asked of the same socket in the same way.
//!
//! It is this program under the name `crictl`. It starts faster than crictl,
//! and so flatters the line.

use std::path::Path;

use anyhow::Context as _;
use node_tracer_tests::cri::Cri;

/// Where crictl's own variable for the socket is, and its form.
pub(crate) const ENDPOINT: &str = "CONTAINER_RUNTIME_ENDPOINT";
const SCHEME: &str = "unix://";

/// Acts as crictl and ends the process, if it was started under that name.
pub(crate) fn act_if_called() {
    let mut args = std::env::args();
    let name = args.next().unwrap_or_default();
    if Path::new(&name).file_name() != Some("crictl".as_ref()) {
        return;
    }
    let args: Vec<String> = args.collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match answer(&args) {
        Ok(text) => {
            print!("{text}");
            std::process::exit(0)
        }
        Err(error) => {
            eprintln!("crictl: {error:#}");
            std::process::exit(1)
        }
    }
}

pub(crate) fn endpoint(socket: &Path) -> String {
    format!("{SCHEME}{}", socket.display())
}

fn answer(args: &[&str]) -> anyhow::Result<String> {
    let endpoint = std::env::var(ENDPOINT).context(ENDPOINT)?;
    let socket = endpoint.strip_prefix(SCHEME).unwrap_or(&endpoint);
    let cri = Cri::connect(Path::new(socket))?;
    match args {
        ["pods"] => {
            let mut text = format!(
                "{:<20}{:<10}{:<30}{:<20}ATTEMPT\n",
                "POD ID", "STATE", "NAME", "NAMESPACE"
            );
            for sandbox in cri.sandboxes()? {
                let metadata = sandbox.metadata.unwrap_or_default();
                let state = match sandbox.state {
                    0 => "Ready",
                    _ => "NotReady",
                };
                // crictl cuts IDs as well.
                let id: String = sandbox.id.chars().take(13).collect();
                text += &format!(
                    "{id:<20}{state:<10}{:<30}{:<20}{}\n",
                    metadata.name, metadata.namespace, metadata.attempt
                );
            }
            Ok(text)
        }
        ["inspectp", id] => Ok(format!("{:#}\n", cri.sandbox_status(id)?.all)),
        _ => anyhow::bail!("only `pods` and `inspectp ID` are re-made here"),
    }
}
