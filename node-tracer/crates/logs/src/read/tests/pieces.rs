//! Lines that container runtimes cut.

use super::*;

#[test]
fn pieces_of_a_cri_log_are_joined_by_stream() {
    let text = "2023-11-05T10:11:12.5Z stderr P time=\"2023-11-05T10:11:12.25Z\" level=info msg=\"CNI_COM\n\
                2023-11-05T10:11:12.5Z stdout F other\n\
                2023-11-05T10:11:12.6Z stderr P MAND=ADD and\n\
                2023-11-05T10:11:12.7Z stderr F  more\"\n\
                2023-11-05T10:11:12.8Z stderr F next\n\
                2023-11-05T10:11:12.9Z stdout P never CNI_COMMAND\n";
    let mut reader = reader(text.as_bytes(), &["CNI_COMMAND"], LogOptions::default());
    let messages: Vec<String> = rest(&mut reader)
        .into_iter()
        .map(|told| told.message)
        .collect();
    assert_eq!(messages, ["CNI_COMMAND=ADD and more", "never CNI_COMMAND"]);
}

#[test]
fn pieces_of_dockers_log_are_joined() {
    let long = "x".repeat((16 << 10) - 8);
    let line = |log: &str| {
        let log = serde_json::to_string(log).unwrap();
        format!("{{\"log\":{log},\"stream\":\"stderr\",\"time\":\"2023-11-05T10:11:12.5Z\"}}\n")
    };
    let text = line(&format!("{long}CNI_COMM")) + &line("AND=ADD\n") + &line("next\n");
    let mut reader = reader(text.as_bytes(), &["CNI_COMMAND"], LogOptions::default());
    let found = rest(&mut reader);
    assert_eq!(found.len(), 1);
    assert!(found[0].message.ends_with("xCNI_COMMAND=ADD"));
    assert_eq!(
        found[0].time.as_deref(),
        Some("2023-11-05T10:11:12.500000Z")
    );
}
