//! The node's own network devices as one table, and what is wrong below each.

use super::style::{Painter, Style};
use event::{
    eni::{Eni, Enis},
    wording::{escape::Printable, plural::counted},
};

/// Rules and pods that are listed of one device, with -v.
const LISTED: usize = 16;
const HEAD: [&str; 9] = [
    "DEVICE", "KIND", "MAC", "PCI", "NETNS", "ADDRESS", "TABLES", "RULES", "PODS",
];

/// The table's lines, each with its newline, and what is unknown.
pub(super) fn text(paint: Painter, enis: &Enis, verbose: u8) -> String {
    let mut text = table(paint, &enis.interfaces, verbose);
    for unknown in &enis.unknown {
        let said = paint.hanging(&format!("unknown   {}", Printable(unknown)), 0, 10);
        text += &format!("{said}\n");
    }
    text
}

pub(super) fn table(paint: Painter, enis: &[Eni], verbose: u8) -> String {
    let mut text = String::new();
    let rows: Vec<[String; 9]> = enis.iter().map(row).collect();
    let head = HEAD.map(str::to_owned);
    let width = |column: usize| {
        let all = rows.iter().chain([&head]);
        let widest = all.map(|row| row[column].chars().count()).max();
        widest.unwrap_or_default()
    };
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |row: &[String; 9]| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    if rows.is_empty() {
        text += "no physical network device, and none that pods are stacked on\n";
    } else {
        text += &format!("{}\n", paint.paint(Style::Quiet, line(&head)));
    }
    for (eni, row) in enis.iter().zip(&rows) {
        text += &format!("{}\n", line(row));
        for problem in &eni.problems {
            let said = Printable(&problem.text).to_string();
            let said = format!("  {}  {said}", problem.severity.as_str().to_uppercase());
            let said = paint.hanging(&said, 0, 4);
            text += &format!("{}\n", paint.paint(Style::from(problem.severity), said));
        }
        if verbose > 0 {
            let rules = eni.rules.iter().map(|rule| format!("rule {rule}"));
            let pods = eni.pods.iter().map(|pod| {
                let address = pod.address.map(|address| format!(" {address}"));
                format!(
                    "pod {}{} ({})",
                    pod.pod.label(),
                    address.unwrap_or_default(),
                    pod.by
                )
            });
            for each in rules.take(LISTED).chain(pods.take(LISTED)) {
                text += &format!(
                    "{}\n",
                    paint.hanging(&format!("  {}", Printable(each)), 0, 4)
                );
            }
        }
    }
    text
}

fn row(eni: &Eni) -> [String; 9] {
    let absent = || String::from("-");
    let some = |list: Vec<String>| match list.as_slice() {
        [] => absent(),
        [first] => first.clone(),
        [first, rest @ ..] => format!("{first} +{}", rest.len()),
    };
    let texts = |list: &[std::net::IpAddr]| list.iter().map(ToString::to_string).collect();
    let pods: Vec<String> = eni.pods.iter().map(|pod| pod.pod.label()).collect();
    [
        eni.name
            .as_ref()
            .map_or_else(absent, |it| Printable(it).to_string()),
        eni.kind.as_str().to_owned(),
        eni.mac.clone().unwrap_or_else(absent),
        eni.pci
            .as_ref()
            .map_or_else(absent, |it| Printable(it).to_string()),
        match (&eni.netns, eni.host) {
            (_, true) => String::from("host"),
            (Some(netns), false) => netns.inode.to_string(),
            (None, false) => String::from("none found"),
        },
        some(texts(&eni.addresses)),
        some(eni.tables.iter().map(ToString::to_string).collect()),
        match eni.rules.len() {
            0 => absent(),
            count => count.to_string(),
        },
        match pods.as_slice() {
            [only] => Printable(only).to_string(),
            [] => absent(),
            many => counted(many.len(), "pod"),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use event::{
        Netns, PodRef,
        eni::{EniKind, EniPod, EniProblem},
        finding::Severity,
    };

    #[test]
    fn each_device_is_a_row_and_what_is_wrong_stands_below_it() {
        let pod = |name: &str| EniPod {
            pod: PodRef {
                namespace: Some("shop".into()),
                name: Some(name.into()),
                uid: None,
            },
            address: None,
            by: "rule".into(),
        };
        let of = |name: &str| Eni {
            name: Some(name.into()),
            kind: EniKind::Physical,
            mac: Some("02:00:00:00:00:03".into()),
            pci: Some("0000:00:06.0".into()),
            physical_function: None,
            netns: Some(Netns {
                inode: 4_026_532_249,
                cookie: None,
            }),
            host: true,
            up: true,
            addresses: vec!["10.0.0.9".parse().unwrap()],
            tables: vec![2, 1_003],
            rules: vec!["1536: from 10.0.0.5 lookup 2".into()],
            pods: vec![pod("a"), pod("b")],
            problems: Vec::new(),
        };
        let lost = Eni {
            name: None,
            kind: EniKind::VirtualFunction,
            mac: None,
            pci: Some("0000:00:06.2".into()),
            netns: None,
            host: false,
            addresses: Vec::new(),
            tables: Vec::new(),
            rules: Vec::new(),
            pods: Vec::new(),
            problems: vec![EniProblem {
                severity: Severity::Warning,
                text: "it is in no netns".into(),
                finding: None,
            }],
            ..of("")
        };
        let enis = Enis {
            interfaces: vec![of("eth1"), lost],
            unknown: Vec::new(),
        };
        let paint = Painter {
            colour: false,
            width: 110,
        };
        let expected = "\
DEVICE  KIND      MAC                PCI           NETNS       ADDRESS   TABLES  RULES  PODS
eth1    physical  02:00:00:00:00:03  0000:00:06.0  host        10.0.0.9  2 +1    1      2 pods
-       VF        -                  0000:00:06.2  none found  -         -       -      -
  WARNING  it is in no netns
";
        assert_eq!(text(paint, &enis, 0), expected);
        assert!(text(paint, &enis, 1).contains("\n  rule 1536: from 10.0.0.5 lookup 2\n"));
    }
}
