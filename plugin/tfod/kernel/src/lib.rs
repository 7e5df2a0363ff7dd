//! The kernel of tfod: functions with a C interface that find records, parse Examples to columns, and
//! hash, number and join byte strings.
//!
//! It never trusts a length: whatever a record claims, memory stays below 128 times the size of the
//! input (about twice for real records), and time is linear in it. Except for the instructions of
//! the processor in [`crc`], all logic is safe Rust. Only this file uses raw pointers, which the
//! caller (`compiled.py`) has got from arrays.

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

/// The return value instead of a count if the kernel has a bug.
const DEFECT: usize = usize::MAX;

/// Returns the version of the interface, which changes with every signature or layout below.
#[no_mangle]
pub extern "C" fn tfod_abi() -> u32 {
    3
}

/// Returns a slice of an array of the caller; empty arrays of NumPy may have any address.
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

/// Runs `work`; a panic, which must not cross into C, becomes `otherwise`.
fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// See [`records::find`]; returns the count, and writes the position and the reason of the end.
#[no_mangle]
pub unsafe extern "C" fn tfod_find_records(
    buffer: *const u8,
    length: usize,
    max_length: u64,
    verify: u32,
    starts: *mut i64,
    lengths: *mut i64,
    capacity: usize,
    position: *mut usize,
    end: *mut i32,
) -> usize {
    let buffer = view(buffer, length);
    let (starts, lengths) = (view_mut(starts, capacity), view_mut(lengths, capacity));
    guarded(DEFECT, || {
        let (count, stop, reason) = records::find(buffer, max_length, verify != 0, starts, lengths);
        *position = stop;
        *end = reason as i32;
        count
    })
}

/// See [`parse::parse`]; writes the three [`Columns::sizes`]. The caller passes the result to
/// [`tfod_free`] and keeps the buffer until then. Returns null if the kernel has a bug.
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

/// See [`Columns::write`]; the size of the block comes from [`tfod_parse`].
#[no_mangle]
pub unsafe extern "C" fn tfod_write(
    columns: *const Columns<'static>,
    buffer: *const u8,
    length: usize,
    block: *mut u8,
    capacity: usize,
) -> usize {
    let (buffer, block) = (view(buffer, length), view_mut(block, capacity));
    guarded(DEFECT, || {
        (*columns).write(buffer, block);
        capacity
    })
}

#[no_mangle]
pub unsafe extern "C" fn tfod_free(columns: *mut Columns<'static>) {
    guarded((), || drop(Box::from_raw(columns)));
}

/// See [`spans::hash`].
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

/// See [`spans::code`]; both outputs have `count` elements.
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

/// See [`spans::gather`]; a separator below 0 means none. Returns the number of bytes, and writes
/// them only if `capacity` is this number.
#[no_mangle]
pub unsafe extern "C" fn tfod_gather_spans(
    buffer: *const u8,
    length: usize,
    spans: *const [i64; 2],
    count: usize,
    separator: i32,
    out: *mut u8,
    capacity: usize,
) -> usize {
    let (buffer, spans, out) = (view(buffer, length), view(spans, count), view_mut(out, capacity));
    guarded(DEFECT, || {
        let separator = u8::try_from(separator).ok();
        let size = spans::gathered_size(buffer, spans, separator);
        if size == capacity {
            spans::gather(buffer, spans, separator, out);
        }
        size
    })
}
