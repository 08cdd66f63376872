use super::*;

/// A frame of raw blocks, as any writer may make it.
fn frame(text: &[u8]) -> Vec<u8> {
    // A window of 128 KiB, no checksum, no content size.
    let mut frame = Vec::from(FRAME);
    frame.extend([0x00, 0x38]);
    let mut blocks = text.chunks(1 << 10).peekable();
    while let Some(block) = blocks.next() {
        let last = u32::from(blocks.peek().is_none());
        let header = (block.len() as u32) << 3 | last;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(block);
    }
    frame
}

fn skippable(length: u32) -> Vec<u8> {
    let mut frame = vec![0x5a, 0x2a, 0x4d, 0x18];
    frame.extend(length.to_le_bytes());
    frame.resize(8 + length as usize, 0xaa);
    frame
}

fn unpack(packed: &[u8]) -> (Vec<u8>, io::Result<usize>) {
    let mut text = Vec::new();
    let ended = Frames::new(packed).read_to_end(&mut text);
    (text, ended)
}

#[test]
fn frames_follow_each_other_and_some_are_passed_over() {
    let long: Vec<u8> = (0..300_000_u32).map(|n| (n / 7) as u8).collect();
    let packed = [
        skippable(5),
        frame(b"one "),
        skippable(0),
        frame(&long),
        skippable(70_000),
    ]
    .concat();
    let (text, ended) = unpack(&packed);
    assert!(ended.is_ok());
    assert_eq!(text, [b"one ".as_slice(), &long].concat());
}

#[test]
fn what_was_unpacked_before_the_end_that_is_missing_is_given_out() {
    let text: Vec<u8> = (0..5_000_u32).map(|n| (n / 9) as u8).collect();
    let packed = frame(&text);
    for length in 1..packed.len() {
        let (read, ended) = unpack(&packed[..length]);
        assert!(ended.is_err(), "{length}");
        assert_eq!(read, text[..read.len()], "{length}");
        // Nothing but the block that is not whole may be missing.
        let blocks = length.saturating_sub(6) / (1024 + 3);
        assert_eq!(read.len(), blocks.min(5) * 1024, "{length}");
    }
}

#[test]
fn a_window_that_is_too_large_is_refused_before_it_is_made() {
    let mut packed = Vec::from(FRAME);
    packed.extend([0x00, 0x98, 0, 0, 0]);
    let error = unpack(&packed).1.unwrap_err();
    assert!(
        error.get_ref().is_some_and(|why| why.is::<TooLarge>()),
        "{error}"
    );
}

#[test]
fn what_follows_a_frame_must_be_one() {
    let packed = [frame(b"one"), b"text".to_vec()].concat();
    let (text, ended) = unpack(&packed);
    assert_eq!(text, b"one");
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidData);
}
