//! What was written into a pipe: a CNI plugin's configuration and its result.
//!
//! No hook on reads and writes tells of it, for that would cost every process
//! of the node. But a pipe keeps what goes through it for a while: its ring
//! still has the page and the length of each buffer that was emptied, and a few
//! emptied pages are kept for the next write. A configuration and a result are
//! written once, in a page or less; so when the plugin ends, or while it runs,
//! they are still there, read or not. What was written over is told as such.

use core::{ffi::c_void, hint::black_box};

use aya_ebpf::{helpers::generated, macros::map, maps::Array};
use node_tracer_ebpf::{
    layout::ABSENT,
    record::{PIPE_LEN, PageProbe, pipe},
};

use crate::kernel::{current, load, load_into, offset};

/// Written by `page_probe`, once.
#[map]
static PAGES: Array<PageProbe> = Array::with_max_entries(1, 0);

/// Buffers whose pages are compared, and those of them that are copied.
const SLOTS: usize = 8;
const COPIED: usize = 4;
/// Places of emptied pages, at most (`PIPE_PREALLOC_MAX`).
const KEPT: usize = 8;
/// `S_IFMT`, `S_IFIFO`
const TYPE: u16 = 0o170_000;
const FIFO: u16 = 0o010_000;
/// Places that are tried at each task: few enough to be unrolled.
const PLACES: u32 = 16;

pub(super) struct Taken {
    /// One of [`pipe`].
    pub(super) state: u32,
    /// Bytes copied, less than [`PIPE_LEN`].
    pub(super) len: u32,
}

const fn nothing(state: u32) -> Taken {
    Taken { state, len: 0 }
}

/// The pipe behind a descriptor, 0 if it is none.
#[inline(always)]
fn pipe_of(task: u64, fd: u32) -> u64 {
    let files: u64 = load(task, offset!(task_files));
    let table: u64 = load(files, offset!(files_fdt));
    if files == 0 || fd >= load(table, offset!(fdt_max_fds)) {
        return 0;
    }
    let fds: u64 = load(table, offset!(fdt_fd));
    let file: u64 = load(fds, fd * 8);
    let inode: u64 = load(file, offset!(file_inode));
    let mode: u16 = load(inode, offset!(inode_mode));
    if file == 0 || mode & TYPE != FIFO {
        return 0;
    }
    load(inode, offset!(inode_pipe))
}

/// Ones if `a < b`, else zeros: without a branch, which would double the
/// verifier's work each time.
#[inline(always)]
fn less(a: u64, b: u64) -> u64 {
    (black_box((a as i64).wrapping_sub(b as i64)) >> 63) as u64
}

/// Ones if `a == b`, else zeros.
#[inline(always)]
fn equal(a: u64, b: u64) -> u64 {
    let differs = a ^ b;
    !((black_box((differs | differs.wrapping_neg()) as i64) >> 63) as u64)
}

/// Ones if a buffer was emptied and has lost its page, which the pipe keeps in
/// one of a few places. Those that are not in use are null, or are beyond the
/// number of those that are.
#[inline(always)]
fn is_gone(pipe: u64, slot: usize, page: u64) -> u64 {
    let tail = u64::from(load::<u32>(pipe, offset!(pipe_tail)));
    let places = offset!(pipe_kept_end).wrapping_sub(offset!(pipe_kept)) / 8;
    let used = match offset!(pipe_kept_count) {
        ABSENT => places,
        count => load(pipe, count),
    };
    let mut kept = [0_u64; KEPT];
    if places > 2 {
        load_into(&mut kept, pipe, offset!(pipe_kept));
    } else {
        // More would be beyond the pipe's own memory.
        let mut few = [0_u64; 2];
        load_into(&mut few, pipe, offset!(pipe_kept));
        kept[..2].copy_from_slice(&few);
    }
    let mut is_kept = 0;
    for (place, kept) in kept.into_iter().enumerate() {
        is_kept |= equal(page, kept) & less(place as u64, u64::from(used));
    }
    less(slot as u64, tail) & !is_kept
}

/// What was taken before is right.
#[inline(always)]
fn written_over(mut taken: Taken) -> Taken {
    taken.state = match taken.len {
        0 => pipe::OVERWRITTEN,
        _ => pipe::CUT,
    };
    taken
}

/// Copies the beginning of what was written into a task's pipe.
///
/// # Safety
/// `into` must have room for twice [`PIPE_LEN`].
#[inline(always)]
pub(super) unsafe fn take(task: u64, fd: u32, into: *mut u8) -> Taken {
    let Some(pages) = PAGES.get(0) else {
        return nothing(pipe::NOT_READ);
    };
    let pipe = match pages.direct {
        0 => return nothing(pipe::NOT_READ),
        _ => pipe_of(task, fd),
    };
    if pipe == 0 {
        return nothing(pipe::NO_PIPE);
    }
    let head = u64::from(load::<u32>(pipe, offset!(pipe_head)));
    let ring = u64::from(load::<u32>(pipe, offset!(pipe_ring_size)));
    if head == 0 {
        return nothing(pipe::EMPTY);
    }
    if head > SLOTS as u64 || head > ring {
        return nothing(pipe::OVERWRITTEN);
    }
    let bufs: u64 = load(pipe, offset!(pipe_bufs));
    let mut page = [0_u64; SLOTS];
    let mut end = [0_u64; SLOTS];
    for slot in 0..SLOTS {
        let buffer = bufs + slot as u64 * u64::from(offset!(pipe_buffer_size));
        let used = less(slot as u64, head);
        let offset: u32 = load(buffer, offset!(pipe_buffer_offset));
        let len: u32 = load(buffer, offset!(pipe_buffer_len));
        page[slot] = load::<u64>(buffer, offset!(pipe_buffer_page)) & used;
        // What was read of it is counted in `offset`, the rest in `len`.
        end[slot] = (u64::from(offset) + u64::from(len)) & used;
    }
    let mut taken = nothing(pipe::WHOLE);
    for slot in 0..COPIED {
        if page[slot] == 0 {
            return taken;
        }
        // Ones if a later buffer has its page.
        let mut reused = 0;
        for later in slot + 1..SLOTS {
            reused |= equal(page[slot], page[later]);
        }
        if reused | is_gone(pipe, slot, page[slot]) != 0 {
            return written_over(taken);
        }
        let size = u64::from(offset!(page_size));
        if size == 0 || page[slot] < pages.memmap {
            taken.state = pipe::UNREADABLE;
            return taken;
        }
        let frame = (page[slot] - pages.memmap) / size;
        let address = pages.direct + frame * pages.page_bytes;
        let room = PIPE_LEN as u64 - 1 - u64::from(taken.len);
        let length = black_box(end[slot].min(room)) & (PIPE_LEN as u64 - 1);
        let at = black_box(taken.len) as usize & (PIPE_LEN - 1);
        // SAFETY: less than PIPE_LEN from less than PIPE_LEN on, in room for
        // twice that; the helper checks the source.
        let error = unsafe {
            generated::bpf_probe_read_kernel(
                into.add(at).cast(),
                length as u32,
                address as *const c_void,
            )
        };
        if error != 0 {
            taken.state = pipe::UNREADABLE;
            return taken;
        }
        // It may have been read, and its page be another's, meanwhile.
        if is_gone(pipe, slot, page[slot]) != 0 {
            return written_over(taken);
        }
        taken.len = (at as u32 + length as u32) & (PIPE_LEN as u32 - 1);
        if length < end[slot] {
            taken.state = pipe::CUT;
            return taken;
        }
    }
    if page[COPIED] != 0 {
        taken.state = pipe::CUT;
    }
    taken
}

/// Finds where the kernel's pages lie: the tracer has written a pattern into a
/// page, put the page into a pipe and told its frame. The pipe tells the page's
/// `struct page`; where the page itself is mapped is tried, from the highest
/// place on at which the mapping can begin, which is below this task.
///
/// A few places at each task that the iterator comes by: a loop over all would
/// take the verifier minutes.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
extern "C" fn page_probe(_: *mut c_void) -> i32 {
    let Some(probe) = PAGES.get_ptr_mut(0) else {
        return 0;
    };
    // SAFETY: the map's own value; the tracer runs this alone.
    let probe = unsafe { &mut *probe };
    if probe.places < PLACES || probe.direct != 0 {
        return 0;
    }
    probe.places -= PLACES;
    // Whichever task the iterator is at: this runs in the tracer.
    let task = current();
    if probe.place == 0 {
        probe.place = task & !(probe.step - 1);
    }
    let pipe = pipe_of(task, probe.fd);
    let bufs: u64 = load(pipe, offset!(pipe_bufs));
    // Nothing else was ever written to it.
    let page: u64 = load(bufs, offset!(pipe_buffer_page));
    if pipe == 0 || page == 0 {
        return 0;
    }
    let within = probe.frame * probe.page_bytes;
    for _ in 0..PLACES {
        let mut seen = [0_u64; 4];
        load_into(&mut seen, probe.place.wrapping_add(within), 0);
        let differs = (seen[0] ^ probe.pattern[0])
            | (seen[1] ^ probe.pattern[1])
            | (seen[2] ^ probe.pattern[2])
            | (seen[3] ^ probe.pattern[3]);
        if differs == 0 {
            probe.memmap = page - probe.frame * u64::from(offset!(page_size));
            probe.direct = probe.place;
            return 0;
        }
        probe.place = probe.place.wrapping_sub(probe.step);
    }
    0
}
