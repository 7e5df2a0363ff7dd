//! The parser of Examples to columns.
//!
//! Records are read as protobuf reads them: the last of repeated keys and the last list of a feature
//! count, and lists of the same kind are joined. If the fast parser of TensorFlow reads the bytes
//! differently (tensorflow/core/util/example_proto_fast_parsing.cc), the row has a problem.
//!
//! Nearly all records are as protobuf writes them, and are read in one pass by
//! [`Parser::read_plain`]. All other records are read again by [`Parser::find_entries`] and
//! [`Parser::read_entries`], which handle every message.

use crate::columns::{span, Code, Column, Columns, BYTES, FLOAT, INT64, NOWHERE, NO_LIST};
use crate::wire::{Malformed, Reader, FIXED32, LENGTH, VARINT};

/// Parses the records of a batch; spans that are not within the buffer are malformed rows.
pub fn parse<'a>(buffer: &'a [u8], starts: &[i64], lengths: &[i64]) -> Columns<'a> {
    let (entries, more) = (Vec::new(), Vec::new());
    let mut parser =
        Parser { buffer, row: 0, columns: Columns::new(buffer), entries, more, first: NOWHERE };
    for (row, (&start, &length)) in starts.iter().zip(lengths).enumerate() {
        parser.row = row as u32;
        let end = start.checked_add(length).and_then(|end| usize::try_from(end).ok());
        let start = usize::try_from(start).ok();
        match start.zip(end).and_then(|(start, end)| buffer.get(start..end)) {
            Some(record) => parser.add(record),
            None => parser.columns.add_problem(parser.row, NOWHERE, Code::Malformed),
        }
    }
    parser.columns
}

struct Parser<'a> {
    buffer: &'a [u8],
    row: u32,
    columns: Columns<'a>,
    entries: Vec<Entry<'a>>,
    /// Further values of entries that have several.
    more: Vec<&'a [u8]>,
    /// The first key of the previous record.
    first: u32,
}

#[derive(Clone, Copy)]
struct Entry<'a> {
    key: u32,
    value: &'a [u8],
    /// A half-open range in [`Parser::more`].
    more: (usize, usize),
    is_last: bool,
}

/// The state of reading a feature.
struct FeatureState {
    kind: u32,
    column: u32,
    lists: u64,
}

/// Returns the bytes of a field if the data are only this field, with this tag.
#[inline]
fn whole(data: &[u8], tag: u8) -> Option<&[u8]> {
    let mut reader = Reader(data.strip_prefix(&[tag])?);
    let value = reader.delimited().ok()?;
    Some(value).filter(|_| reader.is_empty())
}

/// Returns the bytes of a field with this tag, and the data after it.
#[inline]
fn leading(data: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader(data.strip_prefix(&[tag])?);
    Some((reader.delimited().ok()?, reader.0))
}

const FIRST: u8 = 1 << 3 | LENGTH;
const SECOND: u8 = 2 << 3 | LENGTH;

impl<'a> Parser<'a> {
    fn add(&mut self, record: &'a [u8]) {
        self.columns.begin_record();
        if self.read_plain(record).is_some() {
            return;
        }
        self.columns.undo_record(self.row);
        self.entries.clear();
        self.more.clear();
        if self.find_entries(record).and_then(|()| self.read_entries()).is_err() {
            self.columns.undo_record(self.row);
            self.columns.add_problem(self.row, NOWHERE, Code::Malformed);
        }
    }

    /// Reads a record as protobuf writes it, without repeated keys; returns none for other records.
    fn read_plain(&mut self, record: &'a [u8]) -> Option<()> {
        let mut entries = if record.is_empty() { record } else { whole(record, FIRST)? };
        let mut previous = NOWHERE;
        while !entries.is_empty() {
            let (entry, tail) = leading(entries, FIRST)?;
            entries = tail;
            let (name, value) = leading(entry, FIRST)?;
            let feature = whole(value, SECOND)?;
            let key = self.find_key(name, previous)?;
            previous = key;
            let (kind, list) = match feature {
                [] => (NO_LIST, feature),
                [tag @ (0x0A | 0x12 | 0x1A), ..] => (u32::from(tag >> 3), whole(feature, *tag)?),
                _ => return None,
            };
            let last = &mut self.columns.keys[key as usize].last;
            if last.0 == self.row {
                return None;
            }
            *last = (self.row, NOWHERE);
            let index = self.columns.begin_row(key, kind, self.row);
            let column = &mut self.columns.columns[index as usize];
            match kind {
                BYTES => {
                    let mut list = list;
                    while !list.is_empty() {
                        let (value, tail) = leading(list, FIRST)?;
                        push_span(column, span(self.buffer, value));
                        list = tail;
                    }
                }
                FLOAT if !list.is_empty() => push_floats(column, whole(list, FIRST)?).ok()?,
                INT64 if !list.is_empty() => push_varints(column, whole(list, FIRST)?).ok()?,
                _ => {}
            }
            column.end_row();
        }
        Some(())
    }

    /// Returns the number of a key, usually the key that followed the previous one last time.
    #[inline]
    fn find_key(&mut self, name: &'a [u8], previous: u32) -> Option<u32> {
        let keys = &self.columns.keys;
        let next = keys.get(previous as usize).map_or(self.first, |key| key.next);
        if keys.get(next as usize).map_or(false, |key| key.name == name && key.is_utf8) {
            return Some(next);
        }
        let number = self.columns.key(name)?;
        match self.columns.keys.get_mut(previous as usize) {
            Some(key) => key.next = number,
            None => self.first = number,
        }
        Some(number)
    }

    fn add_problem(&mut self, key: u32, code: Code) {
        self.columns.add_problem(self.row, key, code);
    }

    /// Collects the map entries of the record.
    fn find_entries(&mut self, record: &'a [u8]) -> Result<(), Malformed> {
        let mut example = Reader(record);
        while !example.is_empty() {
            let field = example.field()?;
            match (field.number, field.wire) {
                (1, LENGTH) => {
                    let mut features = Reader(field.value);
                    while !features.is_empty() {
                        let entry = features.field()?;
                        if (entry.number, entry.wire) == (1, LENGTH) {
                            self.find_entry(entry.value)?;
                        } else {
                            self.add_problem(NOWHERE, Code::Unusual);
                        }
                    }
                }
                (2, LENGTH) => self.add_problem(NOWHERE, Code::SequenceExample),
                _ => self.add_problem(NOWHERE, Code::Unusual),
            }
        }
        Ok(())
    }

    /// Key and value of a map's entry; a value in several fields is joined.
    fn find_entry(&mut self, entry: &'a [u8]) -> Result<(), Malformed> {
        let (mut name, mut value) = (&entry[..0], None);
        let mut entry = Reader(entry);
        let (mut names, mut has_unknown) = (0u64, false);
        let first_more = self.more.len();
        while !entry.is_empty() {
            let field = entry.field()?;
            match (field.number, field.wire) {
                (1, LENGTH) => {
                    name = field.value;
                    names += 1;
                }
                (2, LENGTH) if value.is_none() => value = Some(field.value),
                (2, LENGTH) => self.more.push(field.value),
                _ => has_unknown = true,
            }
        }
        let key = self.columns.key(name).ok_or(Malformed)?;
        let more = (first_more, self.more.len());
        if names != 1 || value.is_none() || more.0 != more.1 || has_unknown {
            self.add_problem(key, Code::Unusual);
        }
        let number = self.entries.len() as u32;
        let last = std::mem::replace(&mut self.columns.keys[key as usize].last, (self.row, number));
        if let (true, Some(earlier)) = (last.0 == self.row, self.entries.get_mut(last.1 as usize)) {
            earlier.is_last = false;
            self.add_problem(key, Code::RepeatedKey);
        }
        self.entries.push(Entry { key, value: value.unwrap_or(&name[..0]), more, is_last: true });
        Ok(())
    }

    fn read_entries(&mut self) -> Result<(), Malformed> {
        for number in 0..self.entries.len() {
            let entry = self.entries[number];
            let mut state = FeatureState { kind: NO_LIST, column: NOWHERE, lists: 0 };
            for part in 0..=entry.more.1 - entry.more.0 {
                let value = match part {
                    0 => entry.value,
                    _ => self.more[entry.more.0 + part - 1],
                };
                if entry.is_last {
                    self.read_feature(entry.key, value, &mut state)?;
                } else {
                    check_feature(self.buffer, value)?;
                }
            }
            if state.lists > 1 {
                self.add_problem(entry.key, Code::SeveralLists);
            }
            if entry.is_last && state.kind == NO_LIST {
                self.columns.begin_row(entry.key, NO_LIST, self.row);
            }
        }
        Ok(())
    }

    fn read_feature(
        &mut self,
        key: u32,
        value: &'a [u8],
        state: &mut FeatureState,
    ) -> Result<(), Malformed> {
        let mut feature = Reader(value);
        while !feature.is_empty() {
            let field = feature.field()?;
            if field.wire != LENGTH || field.number > INT64 {
                self.add_problem(key, Code::Unusual);
                continue;
            }
            state.lists += 1;
            if field.number != state.kind {
                if state.column != NOWHERE {
                    self.columns.drop_row(state.column);
                }
                state.kind = field.number;
                state.column = self.columns.begin_row(key, field.number, self.row);
            }
            let column = &mut self.columns.columns[state.column as usize];
            let is_plain = read_list(self.buffer, field.value, column)?;
            column.end_row();
            if !is_plain {
                self.add_problem(key, Code::Unusual);
            }
        }
        Ok(())
    }
}

/// Checks a feature that a repeated key replaces, because protobuf rejects a malformed one.
fn check_feature(buffer: &[u8], value: &[u8]) -> Result<(), Malformed> {
    let mut feature = Reader(value);
    while !feature.is_empty() {
        let field = feature.field()?;
        if field.wire == LENGTH && field.number <= INT64 {
            read_list(buffer, field.value, &mut Column::new(NOWHERE, field.number))?;
        }
    }
    Ok(())
}

/// Appends the values of a list; returns whether the fast parser of TensorFlow reads the same.
fn read_list(buffer: &[u8], list: &[u8], column: &mut Column) -> Result<bool, Malformed> {
    let mut list = Reader(list);
    let mut is_plain = true;
    let (mut fields, mut packed) = (0u64, 0u64);
    while !list.is_empty() {
        let field = list.field()?;
        fields += 1;
        match (column.kind, field.wire) {
            _ if field.number != 1 => is_plain = false,
            (BYTES, LENGTH) => push_span(column, span(buffer, field.value)),
            (FLOAT, LENGTH | FIXED32) => push_floats(column, field.value)?,
            (INT64, LENGTH | VARINT) => push_varints(column, field.value)?,
            _ => is_plain = false,
        }
        packed += u64::from(field.number == 1 && field.wire == LENGTH && column.kind != BYTES);
    }
    Ok(is_plain && (packed == 0 || fields == 1))
}

#[inline]
fn push_span(column: &mut Column, [start, length]: [i64; 2]) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&start.to_le_bytes());
    bytes[8..].copy_from_slice(&length.to_le_bytes());
    column.values.extend_from_slice(&bytes);
}

#[inline]
fn push_floats(column: &mut Column, bytes: &[u8]) -> Result<(), Malformed> {
    if bytes.len() % 4 != 0 {
        return Err(Malformed);
    }
    column.values.extend_from_slice(bytes);
    Ok(())
}

#[inline]
fn push_varints(column: &mut Column, bytes: &[u8]) -> Result<(), Malformed> {
    let mut run = Reader(bytes);
    while !run.is_empty() {
        column.values.extend_from_slice(&run.varint()?.to_le_bytes());
    }
    Ok(())
}
