//! Points from one two-dimensional numpy array.

use core::mem::size_of;

use nearjoin::{Buffer, MAX_DIMENSION};
use npyz::{Endianness, NpyHeader, Order, TypeChar, TypeStr};
use rayon::prelude::*;

use crate::error::{Error, Place, Remedy, Result};
use crate::format::{DType, Format};
use crate::quote::{bare, quoted};
use crate::read::number::{Coordinate, Number, convert};
use crate::read::points::{PointSet, allocate, check_dimension, finish};
use crate::read::source::Input;
use crate::read::{Loaded, ReadOptions, in_order, select};

pub(crate) fn read(input: &Input<'_>, options: &ReadOptions) -> Result<Loaded> {
    let array = Array::open(input)?;
    if let Some(id) = &options.id {
        let problem = format!("an NPY file has no ids, so there is no column {}", quoted(id));
        return Err(Error::options(&input.name, Place::default(), problem, Remedy::LeaveIdOut));
    }
    let names: Vec<String> = (0..array.width).map(|column| column.to_string()).collect();
    let chosen = options.columns.as_ref();
    let chosen = chosen.map(|wanted| select::find_all(&input.name, &names, wanted)).transpose()?;
    let columns = match &chosen {
        Some(chosen) => chosen.iter().map(|&column| names[column].clone()).collect(),
        None => names,
    };
    check_dimension(&input.name, columns.len())?;
    let narrow = matches!(array.kind, Kind::F16 | Kind::F32);
    let dtype = options.dtype.unwrap_or(if narrow { DType::F32 } else { DType::F64 });
    let points = match dtype {
        DType::F32 => array.load::<f32>(chosen.as_deref(), &columns)?,
        DType::F64 => array.load::<f64>(chosen.as_deref(), &columns)?,
    };
    Ok(Loaded { points, ids: None, columns, format: Format::Npy, bytes: input.data.len() })
}

/// Types of numbers in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

struct Array<'a> {
    input: &'a Input<'a>,
    /// Where the numbers begin.
    start: u64,
    rows: u64,
    width: usize,
    kind: Kind,
    big_endian: bool,
    order: Order,
}

impl<'a> Array<'a> {
    /// Reads the header and compares what it says with the size of the file.
    fn open(input: &'a Input<'a>) -> Result<Self> {
        let (header, start) = read_header(input)?;
        let refused = |problem| Err(Error::content(&input.name, problem));
        let npyz::DType::Plain(dtype) = header.dtype() else {
            return refused("the array has named fields: save one plain array".to_owned());
        };
        let Some(kind) = Kind::of(&dtype) else {
            let dtype = bare(&dtype.to_string());
            return refused(format!("the array holds {dtype}, not numbers that can be read here"));
        };
        let &[rows, width] = header.shape() else {
            let shape: Vec<_> = header.shape().iter().map(u64::to_string).collect();
            let comma = if shape.len() == 1 { "," } else { "" };
            return refused(format!(
                "the array has shape ({}{comma}): reshape it to (points, coordinates)",
                shape.join(", ")
            ));
        };
        let width = usize::try_from(width).unwrap_or(usize::MAX);
        if width > MAX_DIMENSION {
            check_dimension(&input.name, width)?;
        }
        let claimed = rows
            .checked_mul(width as u64)
            .and_then(|numbers| numbers.checked_mul(kind.size()))
            .unwrap_or(u64::MAX);
        let there = input.data.len() - start;
        if claimed != there {
            let wrong = if there < claimed { "cut short" } else { "too long" };
            return Err(damaged(
                input,
                format!(
                    "the data is {wrong}: {rows} × {width} {dtype} take {claimed} bytes and \
                     there are {there}"
                ),
            ));
        }
        let big_endian = dtype.endianness() == Endianness::Big;
        Ok(Array { input, start, rows, width, kind, big_endian, order: header.order() })
    }

    fn load<T: Coordinate>(
        &self,
        chosen: Option<&[usize]>,
        columns: &[String],
    ) -> Result<PointSet> {
        let mut out = allocate::<T>(&self.input.name, self.rows, columns.len())?;
        let native = self.kind == Kind::native::<T>() && cfg!(target_endian = "little");
        match native && !self.big_endian && self.order == Order::C && chosen.is_none() {
            true => self.copy(&mut out)?,
            false => self.convert(&mut out, chosen, columns)?,
        }
        finish(&self.input.name, out, columns)
    }

    /// The numbers are coordinates as they stand.
    fn copy<T: Coordinate>(&self, out: &mut Buffer<T>) -> Result<()> {
        const PART: usize = 2 << 20;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(out);
        bytes.par_chunks_mut(PART).enumerate().try_for_each(|(part, out)| {
            self.input.read_into(self.start + (part * PART) as u64, out)?;
            self.input.progress.advance(out.len() as u64);
            Ok(())
        })
    }

    fn convert<T: Coordinate>(
        &self,
        out: &mut [T],
        chosen: Option<&[usize]>,
        columns: &[String],
    ) -> Result<()> {
        let all: Vec<usize>;
        let chosen = match chosen {
            Some(chosen) => chosen,
            None => {
                all = (0..self.width).collect();
                &all
            }
        };
        match self.kind {
            Kind::F16 => self.convert_from::<half::f16, T>(out, chosen, columns),
            Kind::F32 => self.convert_from::<f32, T>(out, chosen, columns),
            Kind::F64 => self.convert_from::<f64, T>(out, chosen, columns),
            Kind::I8 => self.convert_from::<i8, T>(out, chosen, columns),
            Kind::I16 => self.convert_from::<i16, T>(out, chosen, columns),
            Kind::I32 => self.convert_from::<i32, T>(out, chosen, columns),
            Kind::I64 => self.convert_from::<i64, T>(out, chosen, columns),
            Kind::U8 => self.convert_from::<u8, T>(out, chosen, columns),
            Kind::U16 => self.convert_from::<u16, T>(out, chosen, columns),
            Kind::U32 => self.convert_from::<u32, T>(out, chosen, columns),
            Kind::U64 => self.convert_from::<u64, T>(out, chosen, columns),
        }
    }

    /// Blocks of rows side by side, one column of a block after the other.
    fn convert_from<N: Number, T: Coordinate>(
        &self,
        out: &mut [T],
        chosen: &[usize],
        columns: &[String],
    ) -> Result<()> {
        const NUMBERS: usize = 1 << 17;
        let block_rows = (NUMBERS / self.width).max(64);
        let blocks: Vec<_> = out.chunks_mut(block_rows * chosen.len()).enumerate().collect();
        in_order(blocks, |(block, out)| {
            let first_row = (block * block_rows) as u64;
            let rows = out.len() / chosen.len();
            let block = match self.order {
                Order::C => self.numbers::<N>(first_row * self.width as u64, rows * self.width)?,
                Order::Fortran => Vec::new(),
            };
            let mut numbers = Vec::with_capacity(rows);
            for (at, &column) in chosen.iter().enumerate() {
                match self.order {
                    Order::C => {
                        numbers.clear();
                        numbers.extend(block.iter().skip(column).step_by(self.width));
                    }
                    Order::Fortran => {
                        numbers = self.numbers::<N>(column as u64 * self.rows + first_row, rows)?;
                    }
                }
                convert(&numbers, &mut out[at..], chosen.len()).map_err(|row| {
                    let place = Place::column(&columns[at]).at(first_row + row as u64);
                    numbers[row].refuse::<T>(&self.input.name, place)
                })?;
            }
            Ok(())
        })?;
        Ok(())
    }

    fn numbers<N: Number>(&self, first: u64, count: usize) -> Result<Vec<N>> {
        let size = size_of::<N::Bytes>();
        let bytes = self.input.read(self.start + first * size as u64, count * size)?;
        self.input.progress.advance(bytes.len() as u64);
        let numbers = bytemuck::cast_slice::<u8, N::Bytes>(&bytes);
        Ok(numbers.iter().map(|bytes| N::from_bytes(*bytes, self.big_endian)).collect())
    }
}

impl Kind {
    fn of(dtype: &TypeStr) -> Option<Self> {
        match (dtype.type_char(), dtype.size_field()) {
            (TypeChar::Float, 2) => Some(Kind::F16),
            (TypeChar::Float, 4) => Some(Kind::F32),
            (TypeChar::Float, 8) => Some(Kind::F64),
            (TypeChar::Int, 1) => Some(Kind::I8),
            (TypeChar::Int, 2) => Some(Kind::I16),
            (TypeChar::Int, 4) => Some(Kind::I32),
            (TypeChar::Int, 8) => Some(Kind::I64),
            (TypeChar::Uint, 1) => Some(Kind::U8),
            (TypeChar::Uint, 2) => Some(Kind::U16),
            (TypeChar::Uint, 4) => Some(Kind::U32),
            (TypeChar::Uint, 8) => Some(Kind::U64),
            _ => None,
        }
    }

    fn native<T: Coordinate>() -> Self {
        if size_of::<T>() == 4 { Kind::F32 } else { Kind::F64 }
    }

    fn size(self) -> u64 {
        match self {
            Kind::I8 | Kind::U8 => 1,
            Kind::F16 | Kind::I16 | Kind::U16 => 2,
            Kind::F32 | Kind::I32 | Kind::U32 => 4,
            Kind::F64 | Kind::I64 | Kind::U64 => 8,
        }
    }
}

/// The header, and where the numbers begin.
fn read_header(input: &Input<'_>) -> Result<(NpyHeader, u64)> {
    // numpy itself refuses more than 10,000 by default. Each bracket that stands open multiplies
    // the time of the parser, which tries all that may follow.
    const LONGEST: usize = 64 << 10;
    const DEEPEST: i32 = 8;
    let there = input.data.len();
    let beginning = input.read(0, there.min(LONGEST as u64) as usize)?;
    let (prefix, length) = match *beginning {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, low, high, ..] => {
            (10, u16::from_le_bytes([low, high]) as usize)
        }
        [0x93, b'N', b'U', b'M', b'P', b'Y', 2 | 3, _, a, b, c, d, ..] => {
            (12, u32::from_le_bytes([a, b, c, d]) as usize)
        }
        _ => {
            return Err(damaged(
                input,
                "its header is cut short, or of a version that is not known",
            ));
        }
    };
    let end = prefix + length;
    let header = beginning.get(..end).ok_or_else(|| match there < end as u64 {
        true => damaged(input, "the header is cut short"),
        false => damaged(input, format!("the header is longer than {LONGEST} bytes")),
    })?;
    let mut depth = 0;
    let mut deeper = |byte: &u8| {
        depth += match byte {
            b'(' | b'[' | b'{' => 1,
            b')' | b']' | b'}' => -1,
            _ => 0,
        };
        depth > DEEPEST
    };
    if header[prefix..].iter().any(&mut deeper) {
        return Err(damaged(input, "the header is nested too deeply"));
    }
    let header = NpyHeader::from_reader(header)
        .map_err(|error| Error::undecodable(&input.name, Format::Npy, "its header", error))?;
    Ok((header, end as u64))
}

fn damaged(input: &Input<'_>, reason: impl ToString) -> Error {
    Error::damaged(&input.name, Format::Npy, reason)
}
