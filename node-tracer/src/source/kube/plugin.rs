//! The program that a user's kubeconfig has its credentials from (`exec`), by
//! the protocol of client.authentication.k8s.io.

use std::{
    io::Read as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    error::Problem,
    kubeconfig::{Identity, bearer},
};

/// A program that takes longer waits for somebody to type.
const PATIENCE: Duration = Duration::from_secs(30);
/// Most that it may print.
const MAX_OUTPUT: u64 = 256 << 10;
/// What it has printed is there when it ends, or hardly later.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Where a cluster's entry has what is for its plugin.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// See the module's documentation.
#[derive(Debug, PartialEq)]
pub(super) struct Plugin {
    command: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// `KUBERNETES_EXEC_INFO`
    info: Value,
}

impl Plugin {
    /// The plugin of a kubeconfig's user.
    pub(super) fn of(user: &Value, cluster: &Value, folder: &Path) -> Option<Self> {
        let exec = user.get("exec").filter(|exec| !exec.is_null())?;
        let text = |value: &Value, name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let list = |name: &str| {
            exec.get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
        };
        let mut command = text(exec, "command").unwrap_or_default();
        // A bare name is looked up in PATH.
        if command.contains('/') {
            command = folder.join(command).to_string_lossy().into_owned();
        }
        let mut spec = json!({ "interactive": false });
        if exec.get("provideClusterInfo") == Some(&Value::Bool(true)) {
            spec["cluster"] = cluster_info(cluster);
        }
        let info = json!({
            "apiVersion": exec.get("apiVersion"), "kind": "ExecCredential", "spec": spec,
        });
        Some(Self {
            command,
            arguments: list("args")
                .filter_map(|one| Some(one.as_str()?.to_owned()))
                .collect(),
            environment: list("env")
                .filter_map(|one| Some((text(one, "name")?, text(one, "value")?)))
                .collect(),
            info,
        })
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.command
    }

    /// Runs it. It cannot ask anybody anything.
    pub(super) fn run(&self) -> Result<Identity, Problem> {
        let mut child = Command::new(&self.command)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", self.info.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Problem::Plugin(error.to_string()))?;
        let output = output(&mut child);
        if output.is_err() {
            // It may have ended just now.
            let _ = child.kill();
        }
        let _ = child.wait();
        identity(&output?).ok_or_else(|| Problem::Plugin(String::from("it prints no credentials")))
    }
}

/// What the program prints until it ends.
fn output(child: &mut Child) -> Result<Vec<u8>, Problem> {
    let failed = |text: String| Problem::Plugin(text);
    let Some(stdout) = child.stdout.take() else {
        return Ok(Vec::new());
    };
    let (send, reader) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut output = Vec::new();
        let read = stdout.take(MAX_OUTPUT).read_to_end(&mut output);
        // Nobody listens any more if it took too long.
        let _ = send.send(read.map(|_| output));
    });
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if started.elapsed() < PATIENCE => thread::sleep(LOOK),
            Ok(None) => {
                return Err(failed(format!(
                    "it takes more than {} s",
                    PATIENCE.as_secs()
                )));
            }
            Err(error) => return Err(failed(error.to_string())),
        }
    };
    if !status.success() {
        return Err(failed(status.to_string()));
    }
    // What it has started can live on, and keep the pipe open.
    match reader.recv_timeout(LAST_WORDS) {
        Ok(Ok(output)) => Ok(output),
        _ => Err(failed(String::from("what it prints cannot be read"))),
    }
}

/// The `ExecCredential` that a plugin prints.
fn identity(output: &[u8]) -> Option<Identity> {
    let printed: Value = serde_json::from_slice(output).ok()?;
    let status = printed.get("status")?;
    let text = |name: &str| status.get(name)?.as_str().filter(|text| !text.is_empty());
    let pem = |name: &str| text(name).map(|pem| pem.as_bytes().to_vec());
    let identity = Identity {
        certificate: pem("clientCertificateData"),
        key: pem("clientKeyData"),
        authorization: text("token").map(bearer),
    };
    (identity.certificate.is_some() || identity.authorization.is_some()).then_some(identity)
}

/// A cluster's entry as a plugin is told it.
fn cluster_info(cluster: &Value) -> Value {
    let mut info = json!({});
    for name in [
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority-data",
    ] {
        if let Some(value) = cluster.get(name) {
            info[name] = value.clone();
        }
    }
    let extensions = cluster.get("extensions").and_then(Value::as_array);
    let own = extensions
        .into_iter()
        .flatten()
        .find(|one| one["name"] == EXTENSION);
    if let Some(own) = own.and_then(|own| own.get("extension")) {
        info["config"] = own.clone();
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(script: &str) -> Plugin {
        let user = json!({ "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh", "args": ["-c", script],
            "env": [{ "name": "A", "value": "b" }],
            "provideClusterInfo": true,
        } });
        let cluster = json!({ "server": "https://s", "extensions": [
            { "name": EXTENSION, "extension": { "x": 1 } },
        ] });
        Plugin::of(&user, &cluster, Path::new("/etc")).unwrap()
    }

    fn refusal(script: &str) -> String {
        plugin(script).run().err().unwrap().to_string()
    }

    #[test]
    fn a_plugin_is_told_what_it_is_for_and_gives_the_credentials() {
        let script = r#"test "$A" = b && printf '{"status":{"token":"%s"}}' "$(printf '%s' "$KUBERNETES_EXEC_INFO" | tr -d '"')""#;
        let given = plugin(script).run().unwrap().authorization.unwrap();
        assert_eq!(
            given,
            "Bearer {apiVersion:client.authentication.k8s.io/v1,kind:ExecCredential,spec:\
             {cluster:{config:{x:1},server:https://s},interactive:false}}"
        );
    }

    #[test]
    fn a_plugin_that_fails_is_told_without_what_it_prints() {
        for (script, expected) in [
            ("echo s3cr3t; exit 3", "exit status: 3"),
            ("echo s3cr3t", "it prints no credentials"),
            (
                "echo '{\"status\":{\"token\":\"\",\"x\":\"s3cr3t\"}}'",
                "it prints no credentials",
            ),
            ("kill -9 $$", "signal: 9"),
        ] {
            let text = refusal(script);
            assert!(
                text.contains(expected) && !text.contains("s3cr3t"),
                "{text}"
            );
        }
        let user = json!({ "exec": { "command": "bin/no-such-plugin" } });
        let missing = Plugin::of(&user, &Value::Null, Path::new("/etc")).unwrap();
        assert_eq!(missing.name(), "/etc/bin/no-such-plugin");
        assert!(
            missing
                .run()
                .err()
                .unwrap()
                .to_string()
                .contains("No such file")
        );
        assert_eq!(
            Plugin::of(&json!({ "token": "t" }), &Value::Null, Path::new("/")),
            None
        );
    }

    #[test]
    fn a_plugin_that_leaves_a_process_behind_is_not_waited_for() {
        let started = Instant::now();
        assert!(refusal("sleep 40 & exit 0").contains("cannot be read"));
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_plugin_that_prints_without_end_ends() {
        assert!(refusal("exec cat /dev/zero").contains("the credential plugin fails"));
    }
}
