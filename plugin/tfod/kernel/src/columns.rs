//! Examples to columns: one for each key and kind of list, as in a ragged tensor.
//!
//! What a record holds is what protobuf says it holds: the last of equal keys, the last list of a
//! feature, lists of one kind joined. Where TensorFlow's fast parser takes the same bytes otherwise
//! (tensorflow/core/util/example_proto_fast_parsing.cc), a problem names row and key.

use crate::wire::{Malformed, Reader, FIXED32, LENGTH, VARINT};
use std::collections::HashMap;

pub const NO_LIST: u32 = 0;
pub const BYTES: u32 = 1;
pub const FLOAT: u32 = 2;
pub const INT64: u32 = 3;

/// What is to be said of a row, or of one feature in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Code {
    /// protobuf refuses the record: the row has no values.
    Malformed = 1,
    /// It has the feature lists of a SequenceExample, which TensorFlow refuses.
    SequenceExample = 2,
    /// A key comes more than once: the last one counts.
    RepeatedKey = 3,
    /// A feature has lists of several kinds, or one kind twice.
    SeveralLists = 4,
    /// Fields that are unknown or of another wire type, or numbers that are spelled in two ways.
    Unusual = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Problem {
    pub row: u32,
    pub code: u32,
    /// Number of the key, -1 where no feature is concerned.
    pub key: i64,
}

/// The values of one key and kind, row after row.
#[derive(Default)]
pub struct Column {
    pub key: u32,
    pub kind: u32,
    /// The rows that have the feature, ascending.
    pub rows: Vec<u32>,
    /// For each of them how many values there are up to its end.
    pub ends: Vec<u64>,
    pub floats: Vec<f32>,
    pub ints: Vec<i64>,
    /// Start and length in the buffer, in turn.
    pub spans: Vec<i64>,
}

impl Column {
    fn values(&self) -> usize {
        match self.kind {
            FLOAT => self.floats.len(),
            INT64 => self.ints.len(),
            _ => self.spans.len() / 2,
        }
    }

    fn cut(&mut self, values: usize) {
        self.floats.truncate(values);
        self.ints.truncate(values);
        self.spans.truncate(2 * values);
    }
}

#[derive(Default)]
pub struct Columns {
    pub keys: Vec<Vec<u8>>,
    pub columns: Vec<Column>,
    pub problems: Vec<Problem>,
    pub rows: usize,
    numbers: HashMap<Vec<u8>, u32>,
    /// For each key the column of each kind, and the entry of the present row that has it.
    places: Vec<([u32; 4], (u32, u32))>,
    entries: Vec<Entry>,
    /// The keys of the row before, in its order.
    expected: Vec<u32>,
    touched: Vec<(u32, usize)>,
    /// Further spans of features whose value comes in several fields.
    more: Vec<(usize, usize)>,
}

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Entry {
    key: u32,
    start: usize,
    end: usize,
    /// Half-open, in [`Columns::more`].
    more: (usize, usize),
    counts: bool,
}

/// How far a feature has been read.
struct Reading {
    kind: u32,
    place: u32,
    lists: u64,
}

impl Columns {
    /// Parses the records of a batch; spans beyond the buffer are rows that are malformed.
    pub fn parse(buffer: &[u8], starts: &[i64], lengths: &[i64]) -> Columns {
        let mut columns = Columns { rows: starts.len(), ..Columns::default() };
        for (row, (&start, &length)) in starts.iter().zip(lengths).enumerate() {
            columns.add(buffer, row as u32, start, length);
        }
        columns
    }

    fn add(&mut self, buffer: &[u8], row: u32, start: i64, length: i64) {
        let known = self.problems.len();
        let span = usize::try_from(start).ok().zip(usize::try_from(length).ok());
        let end = span.and_then(|(start, length)| start.checked_add(length));
        self.entries.clear();
        self.touched.clear();
        self.more.clear();
        let result = match (span, end) {
            (Some((start, _)), Some(end)) if end <= buffer.len() => self
                .find_entries(buffer, row, start, end)
                .and_then(|()| self.read_entries(buffer, row)),
            _ => Err(Malformed),
        };
        if result.is_err() {
            self.forget(row, known);
        }
    }

    /// A malformed record leaves nothing but its problem.
    fn forget(&mut self, row: u32, known: usize) {
        while let Some((place, values)) = self.touched.pop() {
            let column = &mut self.columns[place as usize];
            column.cut(values);
            if column.rows.last() == Some(&row) {
                column.rows.pop();
                column.ends.pop();
            }
        }
        self.problems.truncate(known);
        self.problem(row, -1, Code::Malformed);
    }

    fn problem(&mut self, row: u32, key: i64, code: Code) {
        let one = Problem { row, key, code: code as u32 };
        if self.problems.last() != Some(&one) {
            self.problems.push(one);
        }
    }

    /// The features of the record, each a key and a span.
    fn find_entries(
        &mut self,
        buffer: &[u8],
        row: u32,
        start: usize,
        end: usize,
    ) -> Result<(), Malformed> {
        let mut example = Reader::new(buffer, start, end);
        while !example.is_empty() {
            let field = example.field()?;
            if field.number == 1 && field.wire == LENGTH {
                let mut features = Reader::new(buffer, field.start, field.end);
                while !features.is_empty() {
                    let entry = features.field()?;
                    if entry.number == 1 && entry.wire == LENGTH {
                        self.find_entry(buffer, row, entry.start, entry.end)?;
                    } else {
                        self.problem(row, -1, Code::Unusual);
                    }
                }
            } else if field.number == 2 && field.wire == LENGTH {
                self.problem(row, -1, Code::SequenceExample);
            } else {
                self.problem(row, -1, Code::Unusual);
            }
        }
        Ok(())
    }

    fn find_entry(
        &mut self,
        buffer: &[u8],
        row: u32,
        start: usize,
        end: usize,
    ) -> Result<(), Malformed> {
        let mut entry = Reader::new(buffer, start, end);
        let (mut key, mut value) = ((start, start), (start, start));
        let first_more = self.more.len();
        let mut fields = [0u32; 3];
        while !entry.is_empty() {
            let field = entry.field()?;
            match (field.number, field.wire) {
                (1, LENGTH) => key = (field.start, field.end),
                (2, LENGTH) if fields[1] == 0 => value = (field.start, field.end),
                (2, LENGTH) => self.more.push((field.start, field.end)),
                _ => fields[2] += 1,
            }
            if field.wire == LENGTH && field.number <= 2 {
                fields[field.number as usize - 1] += 1;
            }
        }
        let key = self.key_number(&buffer[key.0..key.1])?;
        if fields != [1, 1, 0] {
            self.problem(row, i64::from(key), Code::Unusual);
        }
        let number = self.entries.len() as u32;
        let (in_row, before) = self.places[key as usize].1;
        if in_row == row && before < number {
            self.entries[before as usize].counts = false;
            self.problem(row, i64::from(key), Code::RepeatedKey);
        }
        self.places[key as usize].1 = (row, number);
        let more = (first_more, self.more.len());
        self.entries.push(Entry { key, start: value.0, end: value.1, more, counts: true });
        Ok(())
    }

    /// The number of a key: most records have the keys of the one before, in its order.
    fn key_number(&mut self, key: &[u8]) -> Result<u32, Malformed> {
        let place = self.entries.len();
        if let Some(number) = self.expected.get(place) {
            if self.keys[*number as usize] == key {
                return Ok(*number);
            }
        }
        let number = match self.numbers.get(key) {
            Some(&number) => number,
            None => {
                std::str::from_utf8(key).map_err(|_| Malformed)?; // as protobuf's strings
                let number = self.keys.len() as u32;
                self.keys.push(key.to_vec());
                self.numbers.insert(key.to_vec(), number);
                self.places.push(([NOWHERE; 4], (NOWHERE, 0)));
                number
            }
        };
        if place < self.expected.len() {
            self.expected[place] = number;
        } else if place == self.expected.len() {
            self.expected.push(number);
        }
        Ok(number)
    }

    fn read_entries(&mut self, buffer: &[u8], row: u32) -> Result<(), Malformed> {
        for number in 0..self.entries.len() {
            let entry = self.entries[number];
            let mut reading = Reading { kind: NO_LIST, place: NOWHERE, lists: 0 };
            for span in 0..=entry.more.1 - entry.more.0 {
                let (start, end) = match span {
                    0 => (entry.start, entry.end),
                    _ => self.more[entry.more.0 + span - 1],
                };
                if entry.counts {
                    self.read_feature(buffer, row, entry.key, start, end, &mut reading)?;
                } else {
                    check_feature(buffer, start, end)?;
                }
            }
            if reading.lists > 1 {
                self.problem(row, i64::from(entry.key), Code::SeveralLists);
            }
            if entry.counts && reading.kind == NO_LIST {
                self.begin(entry.key, NO_LIST, row);
            }
        }
        Ok(())
    }

    fn read_feature(
        &mut self,
        buffer: &[u8],
        row: u32,
        key: u32,
        start: usize,
        end: usize,
        reading: &mut Reading,
    ) -> Result<(), Malformed> {
        let mut feature = Reader::new(buffer, start, end);
        while !feature.is_empty() {
            let field = feature.field()?;
            if field.wire != LENGTH || field.number > 3 {
                self.problem(row, i64::from(key), Code::Unusual);
                continue;
            }
            reading.lists += 1;
            if field.number != reading.kind {
                if reading.place != NOWHERE {
                    self.drop_last(reading.place);
                }
                reading.kind = field.number;
                reading.place = self.begin(key, field.number, row);
            }
            let column = &mut self.columns[reading.place as usize];
            let plain = read_list(buffer, field.start, field.end, column)?;
            let values = column.values() as u64;
            if let Some(end) = column.ends.last_mut() {
                *end = values;
            }
            if !plain {
                self.problem(row, i64::from(key), Code::Unusual);
            }
        }
        Ok(())
    }

    /// Opens a row of a column.
    fn begin(&mut self, key: u32, kind: u32, row: u32) -> u32 {
        let slot = &mut self.places[key as usize].0[kind as usize];
        if *slot == NOWHERE {
            *slot = self.columns.len() as u32;
            self.columns.push(Column { key, kind, ..Column::default() });
        }
        let place = *slot;
        let column = &mut self.columns[place as usize];
        let values = column.values();
        self.touched.push((place, values));
        column.rows.push(row);
        column.ends.push(values as u64);
        place
    }

    /// Takes back the row of a column that another list of the same feature has replaced.
    fn drop_last(&mut self, place: u32) {
        let column = &mut self.columns[place as usize];
        column.rows.pop();
        column.ends.pop();
        let values = column.ends.last().map_or(0, |end| *end as usize);
        column.cut(values);
    }
}

/// An earlier feature of a repeated key has no values, but has to be sound as protobuf reads it.
fn check_feature(buffer: &[u8], start: usize, end: usize) -> Result<(), Malformed> {
    let mut feature = Reader::new(buffer, start, end);
    while !feature.is_empty() {
        let field = feature.field()?;
        if field.wire == LENGTH && field.number <= 3 {
            let mut ignored = Column { kind: field.number, ..Column::default() };
            read_list(buffer, field.start, field.end, &mut ignored)?;
        }
    }
    Ok(())
}

/// Appends the values of a list; returns whether TensorFlow's fast parser reads the same.
fn read_list(
    buffer: &[u8],
    start: usize,
    end: usize,
    column: &mut Column,
) -> Result<bool, Malformed> {
    let mut list = Reader::new(buffer, start, end);
    let mut plain = true;
    let (mut fields, mut packed) = (0u64, 0u64);
    while !list.is_empty() {
        let field = list.field()?;
        fields += 1;
        if field.number != 1 {
            plain = false;
            continue;
        }
        match (column.kind, field.wire) {
            (BYTES, LENGTH) => {
                let length = (field.end - field.start) as i64;
                column.spans.extend_from_slice(&[field.start as i64, length]);
            }
            (FLOAT, LENGTH) => {
                let bytes = &buffer[field.start..field.end];
                if bytes.len() % 4 != 0 {
                    return Err(Malformed);
                }
                packed += 1;
                let numbers = bytes.chunks_exact(4);
                column.floats.extend(numbers.map(|one| f32::from_le_bytes(one.try_into().unwrap())));
            }
            (FLOAT, FIXED32) => {
                let bytes = buffer[field.start..field.end].try_into().unwrap();
                column.floats.push(f32::from_le_bytes(bytes));
            }
            (INT64, LENGTH) => {
                packed += 1;
                let mut run = Reader::new(buffer, field.start, field.end);
                while !run.is_empty() {
                    column.ints.push(run.varint()? as i64);
                }
            }
            (INT64, VARINT) => {
                let mut one = Reader::new(buffer, field.start, field.end);
                column.ints.push(one.varint()? as i64);
            }
            _ => plain = false,
        }
    }
    Ok(plain && (packed == 0 || fields == 1))
}
