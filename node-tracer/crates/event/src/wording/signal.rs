//! Signals by their names.

/// As `kill -l` has it; by its number if it is a rare one.
pub fn name(signal: i32) -> String {
    let name = match signal {
        6 => "SIGABRT",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
