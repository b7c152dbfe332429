//! The order of the queue: queries in crowded cells first (§4.5).
//!
//! The paper counts the points in the cell of each query, and sorts by that. Here populations that
//! differ by less than a factor of two count as equal, and queries of equal ones stay in the order of
//! the cells: a batch of the CPU is then some compact regions, where the exact order would scatter
//! the queries of a uniform set all over it. The points are counted on the host, once for all parts.

use crate::error::Result;
use crate::index::grid::Shape;
use crate::index::order::Sorted;
use crate::memory::with_capacity;
use crate::points::Points;
use crate::scalar::Scalar;

/// Classes of populations: of none, of 1, of 2 and 3, of 4 to 7, and so on.
const CLASSES: usize = usize::BITS as usize + 1;

/// How many points are in each cell that has any.
#[derive(Debug)]
pub(super) struct Populations {
    /// Cells in ascending order.
    cells: Vec<u64>,
    counts: Vec<u32>,
}

impl Populations {
    /// Counts points by the cells of a grid.
    pub(super) fn new<T: Scalar>(shape: &Shape, points: Points<'_, T>) -> Result<Self> {
        let sorted = Sorted::by_key(points.len(), |row| shape.key(points.row(row)))?;
        let number = sorted.ends().count();
        let (mut cells, mut counts) = (with_capacity(number)?, with_capacity(number)?);
        let mut start = 0;
        for end in sorted.ends() {
            cells.push(sorted.key(start));
            counts.push((end - start) as u32);
            start = end;
        }
        Ok(Populations { cells, counts })
    }
}

/// The queries of a join in the order of the queue.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// Those in crowded cells first.
    pub(super) queries: Vec<u32>,
    /// Those in cells with more points than a GPU should look at.
    pub(super) crowded: Vec<u32>,
}

impl Order {
    /// Sorts queries, which are all left points or those in these rows, by the populations of their
    /// cells. Those in cells of more than `most` points are crowded.
    pub(super) fn new<T: Scalar>(
        shape: &Shape,
        (left, rows): (Points<'_, T>, Option<&[u32]>),
        populations: &Populations,
        most: usize,
    ) -> Result<Self> {
        let len = rows.map_or(left.len(), <[u32]>::len);
        let row_of = |number: usize| rows.map_or(number, |rows| rows[number] as usize);
        let asking = Sorted::by_key(len, |number| shape.key(left.row(row_of(number))))?;
        let Populations { cells, counts } = populations;
        let mut populations: Vec<u32> = with_capacity(len)?;
        let mut cell = 0;
        for at in 0..len {
            let key = asking.key(at);
            while cells.get(cell).is_some_and(|cell| *cell < key) {
                cell += 1;
            }
            let is_here = cells.get(cell) == Some(&key);
            populations.push(if is_here { counts[cell] } else { 0 });
        }
        let numbers = asking.ids()?;
        drop(asking);
        let class =
            |population: u32| CLASSES - 1 - (u32::BITS - population.leading_zeros()) as usize;
        let is_crowded = |population: u32| population as usize > most;
        let mut places = [0; CLASSES];
        for &population in populations.iter().filter(|&&population| !is_crowded(population)) {
            places[class(population)] += 1;
        }
        let mut first = 0;
        for place in &mut places {
            (*place, first) = (first, first + *place);
        }
        let mut queries = with_capacity(first)?;
        queries.resize(first, 0);
        let mut crowded = with_capacity(len - first)?;
        for (&number, &population) in numbers.iter().zip(&populations) {
            if is_crowded(population) {
                crowded.push(number);
                continue;
            }
            let place = &mut places[class(population)];
            queries[*place] = number;
            *place += 1;
        }
        Ok(Order { queries, crowded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::grid::Axis;

    #[test]
    fn dense_cells_come_first_and_the_densest_are_crowded() {
        let shape = Shape { axes: vec![Axis::new(0, 0.0, 1.0, 10)] };
        // One in cell 0, three in cell 1, two in cell 4, and nine in cell 7.
        let data = [7.1, 0.5, 1.2, 4.4, 1.5, 7.2, 1.9, 4.6, 7.3, 7.3, 7.3, 7.4, 7.5, 7.6, 7.7];
        let points = Points::new(&data, 1).unwrap();
        let populations = Populations::new(&shape, points).unwrap();
        assert_eq!(populations.counts, [1, 3, 2, 9]);
        let order = Order::new(&shape, (points, None), &populations, 100).unwrap();
        assert_eq!(order.queries[..9], [0, 5, 8, 9, 10, 11, 12, 13, 14]);
        // Two and three are of one class, in the order of their cells.
        assert_eq!(order.queries[9..], [2, 4, 6, 3, 7, 1]);
        assert!(order.crowded.is_empty());
        let order = Order::new(&shape, (points, None), &populations, 8).unwrap();
        assert_eq!((order.queries.len(), order.crowded[0]), (6, 0));
        // Some rows against other points: numbers are places.
        let right = Points::new(&[1.0, 1.1, 1.2, 1.3], 1).unwrap();
        let populations = Populations::new(&shape, right).unwrap();
        let order = Order::new(&shape, (points, Some(&[0, 1, 2])), &populations, 8).unwrap();
        assert_eq!(order.queries, [2, 1, 0]);
    }
}
