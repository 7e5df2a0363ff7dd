//! The kernel of tfod: record framing, and Examples as columns, behind a plain C interface.
//!
//! It knows bytes, not meaning, and never trusts a length: whatever a record claims, memory stays
//! below 64 times the bytes that are handed in, and time is linear in them. All logic is safe Rust;
//! this file alone touches raw pointers, which its caller (`compiled.py`) has made from arrays.

pub mod columns;
pub mod crc;
pub mod records;
pub mod spans;
pub mod wire;

use columns::{Columns, Problem, BYTES, FLOAT, INT64};
use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;

/// Changes with every change of a signature or a layout below.
#[no_mangle]
pub extern "C" fn tfod_abi() -> u32 {
    2
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
    let (buffer, starts, lengths) =
        (view(buffer, length), view_mut(starts, room), view_mut(lengths, room));
    let (count, at, why) = records::find(buffer, longest, verify != 0, starts, lengths);
    *position = at;
    *end = why as i32;
    count
}

/// Parses `rows` records; null where there is no memory. To be given to [`tfod_free`].
#[no_mangle]
pub unsafe extern "C" fn tfod_parse(
    buffer: *const u8,
    length: usize,
    starts: *const i64,
    lengths: *const i64,
    rows: usize,
) -> *mut Columns {
    let (buffer, starts, lengths) = (view(buffer, length), view(starts, rows), view(lengths, rows));
    let parsed = catch_unwind(AssertUnwindSafe(|| Columns::parse(buffer, starts, lengths)));
    parsed.map_or(std::ptr::null_mut(), |columns| Box::into_raw(Box::new(columns)))
}

#[no_mangle]
pub unsafe extern "C" fn tfod_free(columns: *mut Columns) {
    if !columns.is_null() {
        drop(Box::from_raw(columns));
    }
}

/// What a column has; the pointers are good until [`tfod_free`].
#[repr(C)]
pub struct ColumnView {
    key: *const u8,
    key_length: usize,
    kind: u32,
    rows: *const u32,
    ends: *const u64,
    row_count: usize,
    values: *const c_void,
    value_count: usize,
}

#[no_mangle]
pub unsafe extern "C" fn tfod_column_count(columns: *const Columns) -> usize {
    (*columns).columns.len()
}

#[no_mangle]
pub unsafe extern "C" fn tfod_column(columns: *const Columns, number: usize, out: *mut ColumnView) {
    let columns = &*columns;
    let column = &columns.columns[number];
    let key = &columns.keys[column.key as usize];
    let (values, value_count): (*const c_void, usize) = match column.kind {
        BYTES => (column.spans.as_ptr().cast(), column.spans.len() / 2),
        FLOAT => (column.floats.as_ptr().cast(), column.floats.len()),
        INT64 => (column.ints.as_ptr().cast(), column.ints.len()),
        _ => (std::ptr::null(), 0),
    };
    *out = ColumnView {
        key: key.as_ptr(),
        key_length: key.len(),
        kind: column.kind,
        rows: column.rows.as_ptr(),
        ends: column.ends.as_ptr(),
        row_count: column.rows.len(),
        values,
        value_count,
    };
}

/// The problems, in the order of the rows, and the key that a problem's number means.
#[no_mangle]
pub unsafe extern "C" fn tfod_problems(columns: *const Columns, count: *mut usize) -> *const Problem {
    *count = (*columns).problems.len();
    (*columns).problems.as_ptr()
}

#[no_mangle]
pub unsafe extern "C" fn tfod_key(
    columns: *const Columns,
    number: usize,
    length: *mut usize,
) -> *const u8 {
    let columns = &*columns;
    let key = &columns.keys[number];
    *length = key.len();
    key.as_ptr()
}

/// As [`spans::hash`].
#[no_mangle]
pub unsafe extern "C" fn tfod_hash_spans(
    buffer: *const u8,
    length: usize,
    spans: *const [i64; 2],
    count: usize,
    out: *mut u64,
) {
    spans::hash(view(buffer, length), view(spans, count), view_mut(out, count));
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
    let (codes, firsts) = (view_mut(codes, count), view_mut(firsts, count));
    spans::code(view(buffer, length), view(spans, count), codes, firsts)
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
    let (buffer, spans) = (view(buffer, length), view(spans, count));
    let separator = u8::try_from(separator).ok();
    let needed = spans::gathered(buffer, spans, separator);
    if needed == room {
        spans::gather(buffer, spans, separator, view_mut(out, room));
    }
    needed
}
