//! Plans that are not carried out.

use serde_json::json;

use super::*;
use crate::repair::testing::{at, plan, release};
use event::record::Record;

fn applying() -> Applying {
    Applying {
        plan: PathBuf::from("/plan.json"),
        backup: None,
        hurried: false,
    }
}

fn printed(plan: &Plan) -> Value {
    let record = Record::plan("node-1", plan.observed[1], plan, None);
    serde_json::to_value(record).unwrap()
}

fn read(value: &Value) -> Result<(Frame, Plan), Refusal> {
    parse(Path::new("/plan.json"), value.to_string().as_bytes())
}

#[test]
fn a_plan_is_read_as_it_was_printed() {
    let plan = plan(vec![release("10.0.0.5"), release("fd00::5")]);
    let printed = printed(&plan);
    assert_eq!(
        (&printed["schema"], &printed["type"], &printed["node"]),
        (&json!("node-tracer/1"), &json!("plan"), &json!("node-1"))
    );
    let (frame, read) = read(&printed).unwrap();
    assert_eq!((frame.node.as_str(), read), ("node-1", plan));
}

#[test]
fn what_is_no_plan_is_refused_whatever_it_is() {
    let good = printed(&plan(vec![release("10.0.0.5")]));
    let without = |key: &str| {
        let mut other = good.clone();
        other.as_object_mut().unwrap().remove(key);
        other
    };
    for key in [
        "schema", "type", "node", "version", "releases", "expires", "refused",
    ] {
        assert!(
            matches!(read(&without(key)), Err(Refusal::NoPlan { .. })),
            "{key}"
        );
    }
    let mut newer = good.clone();
    newer["version"] = json!(2);
    assert!(matches!(read(&newer), Err(Refusal::Version { found: 2 })));
    let mut more = good.clone();
    more["also"] = json!("/etc/passwd");
    let error = read(&more).unwrap_err().to_string();
    assert!(error.contains("unknown field `also`"), "{error}");
    for text in ["", "[]", "{}", "{", "\0", "null"] {
        let refused = parse(Path::new("/plan.json"), text.as_bytes());
        assert!(matches!(refused, Err(Refusal::NoPlan { .. })), "{text:?}");
    }
}

#[test]
fn looks_that_are_too_near_or_files_too_young_are_no_plan() {
    assert!(possible(&plan(vec![release("10.0.0.5")]), &applying()).is_ok());
    let refused = |edit: fn(&mut Plan)| {
        let mut edited = plan(vec![release("10.0.0.5")]);
        edit(&mut edited);
        let refused = possible(&edited, &applying());
        assert!(matches!(refused, Err(Refusal::Impossible(_))), "{edited:?}");
    };
    refused(|it| it.observed[0] = at(-59));
    refused(|it| it.observed.reverse());
    refused(|it| it.expires = at(601));
    refused(|it| it.refused.push(String::from("CRI does not answer")));
    refused(|it| it.releases.push(it.releases[0].clone()));
    refused(|it| it.releases[0].modified = at(-100));
    refused(|it| it.grace_ms = 29_999);
    let mut hurried = plan(vec![release("10.0.0.5")]);
    hurried.grace_ms = 1;
    let tests = Applying {
        hurried: true,
        ..applying()
    };
    assert!(possible(&hurried, &tests).is_ok());
}

#[test]
fn a_plan_is_for_its_time_by_both_clocks() {
    let plan = plan(Vec::new());
    let up = |seconds: u64| Duration::from_secs(5_000 + seconds);
    let checked = |wall: i64, since: u64| in_time(&plan, at(wall), up(since));
    assert!(checked(0, 0).is_ok());
    assert!(checked(600, 600).is_ok());
    // Old by one of them is old: the other one was set.
    assert!(matches!(checked(601, 1), Err(Refusal::Expired { .. })));
    assert!(matches!(checked(1, 601), Err(Refusal::Expired { .. })));
    assert!(matches!(checked(-2, 1), Err(Refusal::Future { .. })));
    let before = in_time(&plan, at(1), Duration::from_secs(4_999));
    assert!(matches!(before, Err(Refusal::Future { .. })));
}

#[test]
fn a_file_that_others_can_write_or_that_is_no_file_is_no_plan_and_keeps_nobody_waiting() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    std::fs::write(&path, "{}").unwrap();
    let mode = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let why = |path: &Path| match super::read(path) {
        Ok(_) => "",
        Err(Refusal::Untrusted { why, .. }) => why,
        Err(other) => panic!("{other}"),
    };
    for (bits, wrong) in [
        (0o644, ""),
        (0o664, "can be written by its group"),
        (0o646, "can be written by everybody"),
    ] {
        mode(bits);
        assert_eq!(why(&path), wrong, "{bits:o}");
    }
    mode(0o600);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(why(&link), "is a symbolic link");
    let fifo = folder.path().join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(CWD, &fifo, kind, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert_eq!(why(&fifo), "is no regular file");
    assert_eq!(why(folder.path()), "is no regular file");
}
