//! The kernel of tfod: record framing, Examples as columns, and byte strings hashed, coded and
//! gathered, behind a plain C interface.
//!
//! It knows bytes, not meaning, and never trusts a length: whatever a record claims, memory stays
//! below 128 times the bytes that are handed in (for real records it is about twice), and time is
//! linear in them. All logic is safe Rust,
//! but for the processor's instructions in [`crc`]; this file alone touches raw pointers, which its
//! caller (`compiled.py`) has made from arrays.

pub mod columns;
pub mod crc;
pub mod dictionary;
pub mod parse;
pub mod records;
pub mod spans;
pub mod wire;

use columns::Columns;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

/// What a function returns in place of a count if there is a defect in it.
const DEFECT: usize = usize::MAX;

/// Changes with every change of a signature or a layout below.
#[no_mangle]
pub extern "C" fn tfod_abi() -> u32 {
    3
}

/// A slice of what a caller has handed in; NumPy's empty arrays may have any address.
unsafe fn view<'a, T>(data: *const T, length: usize) -> &'a [T] {
    if length == 0 {
        &[]
    } else {
        slice::from_raw_parts(data, length)
    }
}

unsafe fn view_mut<'a, T>(data: *mut T, length: usize) -> &'a mut [T] {
    if length == 0 {
        &mut []
    } else {
        slice::from_raw_parts_mut(data, length)
    }
}

/// A panic must not cross into C.
fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// As [`records::find`]; returns the count, and writes where the walk ended and why.
#[no_mangle]
pub unsafe extern "C" fn tfod_find_records(
    buffer: *const u8,
    length: usize,
    longest: u64,
    verify: u32,
    starts: *mut i64,
    lengths: *mut i64,
    room: usize,
    position: *mut usize,
    end: *mut i32,
) -> usize {
    let buffer = view(buffer, length);
    let (starts, lengths) = (view_mut(starts, room), view_mut(lengths, room));
    guarded(DEFECT, || {
        let (count, at, why) = records::find(buffer, longest, verify != 0, starts, lengths);
        *position = at;
        *end = why as i32;
        count
    })
}

/// As [`parse::parse`]; writes the three [`Columns::sizes`]. To be given to [`tfod_free`], up to
/// which the buffer has to stay; null if there is a defect.
#[no_mangle]
pub unsafe extern "C" fn tfod_parse(
    buffer: *const u8,
    length: usize,
    starts: *const i64,
    lengths: *const i64,
    rows: usize,
    sizes: *mut [u64; 3],
) -> *mut Columns<'static> {
    let (buffer, starts, lengths) = (view(buffer, length), view(starts, rows), view(lengths, rows));
    guarded(std::ptr::null_mut(), || {
        let columns = parse::parse(buffer, starts, lengths);
        *sizes = columns.sizes();
        Box::into_raw(Box::new(columns))
    })
}

/// As [`Columns::write`], into a block of the size that [`tfod_parse`] has said.
#[no_mangle]
pub unsafe extern "C" fn tfod_write(
    columns: *const Columns<'static>,
    buffer: *const u8,
    length: usize,
    block: *mut u8,
    room: usize,
) -> usize {
    let (buffer, block) = (view(buffer, length), view_mut(block, room));
    guarded(DEFECT, || {
        (*columns).write(buffer, block);
        room
    })
}

#[no_mangle]
pub unsafe extern "C" fn tfod_free(columns: *mut Columns<'static>) {
    guarded((), || drop(Box::from_raw(columns)));
}

/// As [`spans::hash`].
#[no_mangle]
pub unsafe extern "C" fn tfod_hash_spans(
    buffer: *const u8,
    length: usize,
    spans: *const [i64; 2],
    count: usize,
    out: *mut u64,
) -> usize {
    let (buffer, spans, out) = (view(buffer, length), view(spans, count), view_mut(out, count));
    guarded(DEFECT, || {
        spans::hash(buffer, spans, out);
        count
    })
}

/// As [`spans::code`]; both outputs have room for `count`.
#[no_mangle]
pub unsafe extern "C" fn tfod_code_spans(
    buffer: *const u8,
    length: usize,
    spans: *const [i64; 2],
    count: usize,
    codes: *mut i64,
    firsts: *mut i64,
) -> usize {
    let (buffer, spans) = (view(buffer, length), view(spans, count));
    let (codes, firsts) = (view_mut(codes, count), view_mut(firsts, count));
    guarded(DEFECT, || spans::code(buffer, spans, codes, firsts))
}

/// As [`spans::gather`], a separator below 0 being none; returns how many bytes there are, and
/// writes them where `room` is so many.
#[no_mangle]
pub unsafe extern "C" fn tfod_gather_spans(
    buffer: *const u8,
    length: usize,
    spans: *const [i64; 2],
    count: usize,
    separator: i32,
    out: *mut u8,
    room: usize,
) -> usize {
    let (buffer, spans, out) = (view(buffer, length), view(spans, count), view_mut(out, room));
    guarded(DEFECT, || {
        let separator = u8::try_from(separator).ok();
        let needed = spans::gathered(buffer, spans, separator);
        if needed == room {
            spans::gather(buffer, spans, separator, out);
        }
        needed
    })
}
