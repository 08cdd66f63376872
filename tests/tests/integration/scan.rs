//! `scan` on a real node.
use node_tracer_tests::containerd::incident::{self, RealIncident};
use node_tracer_tests::harness::Test;
use node_tracer_tests::look::on_node;
pub(crate) const TESTS: &[Test] = &[
    Test { name: "scan_probe", needs: incident::NEEDS, run: probe },
];
fn probe() -> anyhow::Result<()> {
    let mut incident = RealIncident::new()?;
    let (old, stuck, new) = incident.stage()?;
    let pods = incident.pods_file().display().to_string();
    println!("{old:?} {stuck:?} {new:?}");
    for (n, sub, args) in [
        ("full", "scan", &["--pods", &pods][..]),
        ("nocri", "scan", &["--pods", &pods, "--cri", "none"]),
        ("nopods", "scan", &["--pods", "none"]),
        ("none", "scan", &["--pods", "none", "--cri", "none"]),
        ("explain", "explain", &["--pods", &pods, &old.ip.unwrap().to_string()]),
    ] {
        let look = on_node(incident.node(), sub, args)?;
        println!("==== {n} {:?} {:?}", look.ended.code, look.elapsed);
        for r in &look.ended.records { println!("{r:#}"); }
        println!("{}", look.ended.stderr);
    }
    incident.node().freeze()?;
    let look = on_node(incident.node(), "scan", &["--pods", &pods])?;
    println!("==== frozen {:?} {:?}", look.ended.code, look.elapsed);
    for r in &look.ended.records { println!("{r:#}"); }
    incident.node().thaw()?;
    incident.release()?;
    incident.clean()
}
