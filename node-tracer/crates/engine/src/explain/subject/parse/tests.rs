//! Words in every spelling.

use std::path::Path;

use super::{super::same_path, *};

fn forms_of(word: &str) -> Vec<Form> {
    parse(word).unwrap().forms
}

#[test]
fn an_address_is_one_with_or_without_its_prefix_length() {
    for (word, ip) in [
        ("10.0.3.7", "10.0.3.7"),
        (" 10.0.3.7/24 ", "10.0.3.7"),
        ("fd00::7", "fd00::7"),
        ("FD00::7/64", "fd00::7"),
        ("::ffff:10.0.3.7", "10.0.3.7"),
        ("ip:10.0.3.7", "10.0.3.7"),
        ("dead::beef", "dead::beef"),
    ] {
        assert_eq!(
            forms_of(word),
            [Form::Address(ip.parse().unwrap())],
            "{word}"
        );
    }
}

#[test]
fn a_number_is_an_inode_a_process_or_the_beginning_of_an_id() {
    let prefix = |word: &str| Form::Container(word.to_owned());
    assert_eq!(
        forms_of("4026532246"),
        [Form::Inode(4_026_532_246), prefix("4026532246")]
    );
    assert_eq!(forms_of("26310"), [Form::Pid(26_310), prefix("26310")]);
    assert_eq!(forms_of("7"), [Form::Pid(7)]);
    assert_eq!(forms_of("99999999"), [prefix("99999999")]);
    assert_eq!(forms_of("40265322460001"), [prefix("40265322460001")]);
    assert_eq!(forms_of("pid:4026532246"), [Form::Pid(4_026_532_246)]);
    for word in ["inode:100", "net:[100]", "netns:100"] {
        assert_eq!(forms_of(word), [Form::Inode(100)], "{word}");
    }
}

#[test]
fn the_namespaces_that_the_kernel_is_born_with_are_no_processes() {
    assert_eq!(forms_of("4026531833")[0], Form::Inode(4_026_531_833));
    assert_eq!(forms_of("4026531840")[0], Form::Inode(4_026_531_840));
}

#[test]
fn ids_are_read_in_every_spelling() {
    let uid = "0a1b2c3d-0000-4000-8000-000000000001";
    assert_eq!(forms_of(uid), [Form::Uid(uid.to_owned())]);
    assert_eq!(forms_of(&uid.to_uppercase()), [Form::Uid(uid.to_owned())]);
    let bare = uid.replace('-', "");
    let both = [Form::Uid(bare.clone()), Form::Container(bare.clone())];
    assert_eq!(forms_of(&bare), both, "a static pod's, or a container's");
    for word in [
        "d6fe7d",
        "containerd://d6fe7d",
        "cri-o://D6FE7D",
        "sandbox:d6fe7d",
    ] {
        assert_eq!(
            forms_of(word)[0],
            Form::Container("d6fe7d".into()),
            "{word}"
        );
    }
}

#[test]
fn pods_and_paths_are_told_apart() {
    let pod = Form::Pod("shop".into(), "checkout-1.x".into());
    assert_eq!(forms_of("shop/checkout-1.x"), std::slice::from_ref(&pod));
    assert_eq!(forms_of("pod:shop/checkout-1.x"), [pod]);
    let asked = parse("/proc/123/task/124/ns/net").unwrap();
    assert_eq!(asked.pid(), Some(124));
    assert_eq!(asked.path(), Some(Path::new("/proc/123/task/124/ns/net")));
    assert_eq!(parse("/run/netns/a").unwrap().pid(), None);
    assert!(same_path(
        Path::new("/var/run/netns/a"),
        Path::new("/run/netns//a")
    ));
    assert!(!same_path(Path::new("/var/run2/a"), Path::new("/run/a")));
}

#[test]
fn a_word_can_be_a_pods_name_or_an_interface_and_a_mac_is_no_kind() {
    let both = |word: &str| [Form::Name(word.to_owned()), Form::Device(word.to_owned())];
    for word in ["stuck", "veth12zz", "eth0"] {
        assert_eq!(forms_of(word), both(word));
    }
    assert_eq!(forms_of("vethAB12"), [Form::Device("vethAB12".into())]);
    let long = "checkout-5b7d9c-x8k2p";
    assert_eq!(forms_of(long), [Form::Name(long.into())]);
    assert_eq!(forms_of("pod:stuck"), [Form::Name("stuck".into())]);
    assert_eq!(forms_of("dev:cafe"), [Form::Device("cafe".into())]);
    for word in [
        "0A:58:0a:00:00:01",
        "0a-58-0a-00-00-01",
        "mac:0a:58:0a:00:00:01",
    ] {
        assert_eq!(forms_of(word), [Form::Mac("0a:58:0a:00:00:01".into())]);
    }
}

#[test]
fn what_is_nothing_is_refused_with_what_there_is() {
    for word in [
        "",
        "  ",
        "..",
        "x",
        "Shop!",
        "10.0.0.300",
        "10.0.3.7/33",
        "fd00::7/129",
        "10.0.3.7/",
        "Shop/a",
        "a/b/c",
        "/\0",
        "pid:x",
        "inode:-1",
        "net:[12",
        "uid:abc",
        "://abc",
        "containerd://",
        "docker://xyz",
        "ip:10.0.0",
        "pod:Abc",
        "mac:1",
        "dev:a/b",
        "shop/",
        "../../etc",
    ] {
        let error = parse(word).unwrap_err().to_string();
        assert!(
            error.contains("help: ask about one of these"),
            "{word}: {error}"
        );
    }
    let long = parse(&"\u{e4}".repeat(5_000)).unwrap_err().to_string();
    assert!(long.chars().count() < 1_000, "{long}");
}
