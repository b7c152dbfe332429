//! The header of numpy's array files.

/// The type of an array's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Unsigned,
    Float,
}

/// Type, shape and C order of an array, padded to a multiple of 64 bytes: what follows is
/// aligned as the file is.
pub(super) fn header(kind: Kind, bytes: usize, shape: &[u64]) -> Vec<u8> {
    let order = if cfg!(target_endian = "big") { '>' } else { '<' };
    let kind = match kind {
        Kind::Int => 'i',
        Kind::Unsigned => 'u',
        Kind::Float => 'f',
    };
    let shape: String = match shape {
        [one] => format!("{one},"),
        more => more.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    };
    let text = format!(
        "{{'descr': '{order}{kind}{bytes}', 'fortran_order': False, 'shape': ({shape}), }}"
    );
    // Magic, version 1.0, the length of the text, the text, a line feed.
    let length = (10 + text.len() + 1).next_multiple_of(64);
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend_from_slice(&((length - 10) as u16).to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    header.resize(length - 1, b' ');
    header.push(b'\n');
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_whole_lines_of_64_bytes() {
        for shape in [&[0][..], &[3, 2], &[u64::MAX, u64::MAX]] {
            let header = header(Kind::Float, 8, shape);
            assert_eq!(header.len() % 64, 0);
            assert_eq!(u16::from_le_bytes([header[8], header[9]]) as usize, header.len() - 10);
            assert_eq!(header.last(), Some(&b'\n'));
        }
        let text = String::from_utf8_lossy(&header(Kind::Int, 4, &[7])).into_owned();
        assert!(text.contains("'shape': (7,), }"), "{text}");
    }
}
