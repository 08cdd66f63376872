//! Whatever stands in a log, it is read to its end in bounded memory.

use super::{super::lines::LONGEST, *};

#[test]
fn what_is_too_long_is_cut_and_counted() {
    let long = "y".repeat(3 << 20);
    let text = format!(
        "Nov  5 10:11:12 n kubelet[1]: needle {long}\n\
         Nov  5 10:11:13 n kubelet[1]: short needle\n\
         {long}\n\
         Nov  5 10:11:14 n kubelet[1]: last needle\n"
    );
    let mut reader = reader(text.as_bytes(), &["needle"], LogOptions::default());
    let found = rest(&mut reader);
    let lengths: Vec<usize> = found.iter().map(|told| told.message.len()).collect();
    assert_eq!(lengths, [LONGEST - 30, 12, LONGEST, 11]);
    assert_eq!(
        found.iter().map(|told| told.line).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    assert_eq!(reader.gaps().cut, 2);
}

#[test]
fn a_record_that_never_closes_is_cut_too() {
    let mut text = String::from("Nov  5 10:11:12 n kubelet[1]: msg=\"needle\n");
    text += &"an unindented line of many\n".repeat(40_000);
    text += "Nov  5 10:11:13 n kubelet[1]: last needle\n";
    let mut reader = reader(text.as_bytes(), &["needle"], LogOptions::default());
    let found = rest(&mut reader);
    assert!(found.iter().all(|told| told.message.len() <= LONGEST));
    assert_eq!(found.last().unwrap().message, "last needle");
    assert_eq!(reader.gaps().cut, 1);
}

#[test]
fn nothing_and_bytes_that_are_no_text_do_not_stop_it() {
    let mut text = vec![0; 5 << 20];
    text.extend(b"Nov  5 10:11:12 n kubelet[1]: \xff\xfe needle \x00 here\r\n\0\0\n\n");
    text.extend(b"Nov  5 10:11:13 n kubelet[1]: needle without an end");
    let mut reader = reader(&text, &["needle"], LogOptions::default());
    let messages: Vec<String> = rest(&mut reader)
        .into_iter()
        .map(|told| told.message)
        .collect();
    assert_eq!(
        messages,
        ["\u{fffd}\u{fffd} needle \0 here", "needle without an end"]
    );
    assert_eq!(reader.gaps().cut, 0);
    assert!(all("").is_empty());
    assert!(all("\n\n").is_empty());
}

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

/// Pieces of all forms, and what could trip a reader up.
const PIECES: &[&[u8]] = &[
    b"Nov  5 10:11:12 n kubelet[1]: ",
    b"2023-11-05T10:11:12Z stderr P ",
    b" stdout F ",
    b"E1105 10:11:12.345678 811 w.go:2] ",
    b"\"m\" err=\"",
    b"err=<\n\t",
    b"\n >",
    b"\\\"",
    b"\\",
    b"time=\"2023-11-05T10:11:12Z\" level=info msg=\"",
    b"\"",
    b"key=",
    b"{\"log\":\"",
    b"\\n\"",
    b"{\"__REALTIME_TIMESTAMP\":\"1\",\"MESSAGE\":[1,2",
    b"]}",
    b"__CURSOR=s=1\nMESSAGE\n",
    b"\x05\0\0\0\0\0\0\0hello\n",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"\t",
    b"    ",
    b"\0",
    b"\xff",
    b"\xe4\xb8\xad",
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b"<30>",
    b"<6>[ 1.2] ",
    b"[   12.345678] ",
    b"2023-11-05 10:11:12.345 [INFO][1] a.go 1: ",
    b"x y=z ",
    b"\xef\xbb\xbf",
    b"-- Boot ",
    b"1699179072.345678 ",
    b"2023/11/05 10:11:12 ",
    b"Sun 2023-11-05 10:11:12 CET ",
    b"kern  :warn  : ",
    b"Feb 30 10:11:12 ",
    b"9999-12-31T23:59:59Z ",
    b"0000-01-01T00:00:00+14:00 ",
    b"\x1e{",
    b"data: {",
    b"<34>1 - - - - - ",
    b"\xf0\x9f\x98",
    b"needle",
];

#[test]
fn whatever_it_holds_it_is_read_to_its_end() {
    let mut numbers = Numbers(0x5eed);
    for round in 0..3_000 {
        let mut text = Vec::new();
        for _ in 0..numbers.below(40) {
            match numbers.below(12) {
                0 => text.push(numbers.below(256) as u8),
                _ => text.extend_from_slice(PIECES[numbers.below(PIECES.len())]),
            }
        }
        let needles: &[&str] = if round % 2 == 0 { &[] } else { &["needle"] };
        let raw = Slowly(io::Cursor::new(text.clone()), 1 + numbers.below(50));
        let Ok(input) = Input::new(String::from("a log"), Some(modified()), Box::new(raw)) else {
            continue;
        };
        let mut slow = LogReader::new(input, Words::new(needles), LogOptions::default());
        let slowly = rest(&mut slow);
        let mut whole = reader(&text, needles, LogOptions::default());
        assert_eq!(
            rest(&mut whole),
            slowly,
            "{:?}",
            String::from_utf8_lossy(&text)
        );
        for told in &slowly {
            assert!(told.message.len() <= LONGEST);
        }
    }
}
