//! Joins whose answers fit the memory.

use nearjoin::sink::{Count, CsrSink, Degrees, Groups, Neighbors};
use nearjoin::{Buffer, EpsJoin, Join, KnnJoin, NeighborCurve, Question, Scalar, Sink};
use numpy::{Element, PyArray1, PyArray2};
use pyo3::prelude::*;

use crate::array::of_buffer;
use crate::error::Failure;
use crate::half;
use crate::options::Options;
use crate::points::{Arrays, Sides, with};
use crate::run::run;
use crate::told::{Done, Planned};

type Column<'py, T> = Bound<'py, PyArray1<T>>;

/// What goes with every answer.
type Told = (Done, Planned);

/// Whether the same answer could be had in parts, by those who lack the memory for all of it.
#[derive(Clone, Copy)]
enum Parts {
    Yes,
    No,
}

/// Plans and runs a join, and makes of its sink what is wanted, within the memory limit.
fn answer<T, Q, S, R>(
    py: Python<'_>,
    join: Join<Q>,
    sides: Sides<T>,
    options: &Options,
    mut sink: S,
    parts: Parts,
    take: impl FnOnce(S, u64) -> Result<R, Failure> + Send + 'static,
) -> PyResult<(R, Told)>
where
    T: Scalar + Element,
    Q: Copy + Into<Question> + Send + Sync + 'static,
    S: Sink<T> + Send + 'static,
    R: Send + 'static,
{
    let understood = options.understand()?;
    run(py, options.progress.as_ref(), sides, move |sides, monitor| {
        let (plan, check) = understood.plan(join, sides, monitor)?;
        let stats = plan.run(&mut sink).map_err(|error| match parts {
            Parts::Yes => Failure::WouldFitInParts(error),
            Parts::No => Failure::Engine(error),
        })?;
        let told = (Done { stats, device: plan.device(), check }, Planned::of(&plan));
        Ok((take(sink, plan.memory_limit())?, told))
    })
}

/// The neighbours of every point within ε: offsets, ids, distances if asked for, what was done, and
/// the plan.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the border")]
pub(crate) fn eps_csr<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    y: Option<&Bound<'py, PyAny>>,
    eps: f64,
    sorted: bool,
    distances: bool,
    half: bool,
    options: Options,
) -> PyResult<Csr<'py>> {
    with!(Arrays::new(x, y)?, sides => {
        let sink = CsrSink::new().sorted(sorted).distances(distances);
        let take = move |sink: CsrSink<_>, limit| match half {
            true => half::later(sink.into_csr(), distances, limit).map_err(Failure::WouldFitInParts),
            false => Ok(sink.into_csr().into_parts()),
        };
        let ((offsets, ids, distances), mut told): (half::Arrays<_>, _) =
            answer(py, EpsJoin::new(eps), sides, &options, sink, Parts::Yes, take)?;
        let (rows, pairs) = (offsets.len(), ids.len());
        told.0.stats.pairs = pairs as u64;
        let distances = match distances {
            Some(distances) => Some(of_buffer(py, distances, pairs)?.into_any()),
            None => None,
        };
        Ok((of_buffer(py, offsets, rows)?, of_buffer(py, ids, pairs)?, distances, told.0, told.1))
    })
}

type Csr<'py> = (Column<'py, u64>, Column<'py, u32>, Option<Bound<'py, PyAny>>, Done, Planned);

/// The number of pairs within ε.
#[pyfunction]
pub(crate) fn eps_count(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    y: Option<&Bound<'_, PyAny>>,
    eps: f64,
    options: Options,
) -> PyResult<u64> {
    with!(Arrays::new(x, y)?, sides => {
        let take = |count: Count, _| Ok(count.pairs());
        answer(py, EpsJoin::new(eps), sides, &options, Count::new(), Parts::No, take).map(|(pairs, _)| pairs)
    })
}

/// The number of neighbours of every point within ε.
#[pyfunction]
pub(crate) fn eps_degrees<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    y: Option<&Bound<'py, PyAny>>,
    eps: f64,
    options: Options,
) -> PyResult<Column<'py, u64>> {
    let degrees = with!(Arrays::new(x, y)?, sides => {
        let take = |degrees: Degrees, _| Ok(degrees.into_vec());
        answer(py, EpsJoin::new(eps), sides, &options, Degrees::new(), Parts::No, take)?.0
    });
    Ok(PyArray1::from_vec(py, degrees))
}

/// The group of each point, −1 for none, and whether it is a core.
#[pyfunction]
pub(crate) fn groups<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    eps: f64,
    min_points: usize,
    options: Options,
) -> PyResult<(Column<'py, i64>, Column<'py, bool>)> {
    let (labels, cores) = with!(Arrays::new(x, None)?, sides => {
        let take = |groups: Groups, _| {
            let labels = groups.signed_labels().collect();
            Ok((labels, groups.into_parts().1))
        };
        answer(py, EpsJoin::new(eps), sides, &options, Groups::dbscan(min_points), Parts::No, take)?.0
    });
    Ok((PyArray1::from_vec(py, labels), PyArray1::from_vec(py, cores)))
}

/// The k nearest of every point: distances, ids, what was done, and the plan.
#[pyfunction]
pub(crate) fn knn<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    y: Option<&Bound<'py, PyAny>>,
    k: usize,
    max_distance: Option<f64>,
    pad: bool,
    options: Options,
) -> PyResult<Nearest<'py>> {
    with!(Arrays::new(x, y)?, sides => {
        let join = knn_join(k, max_distance, pad);
        let take = |neighbors: Neighbors<_>, _| Ok(neighbors.into_parts());
        let ((ids, distances), told): ((Buffer<u32>, Buffer<_>), _) =
            answer(py, join, sides, &options, Neighbors::new(), Parts::Yes, take)?;
        let shape = (ids.len() / k, k);
        let distances = of_buffer(py, distances, shape)?.into_any();
        Ok((distances, of_buffer(py, ids, shape)?, told.0, told.1))
    })
}

type Nearest<'py> = (Bound<'py, PyAny>, Bound<'py, PyArray2<u32>>, Done, Planned);

pub(crate) fn knn_join(k: usize, max_distance: Option<f64>, pad: bool) -> KnnJoin {
    let join = KnnJoin::new(k).pad(pad);
    match max_distance {
        Some(distance) => join.max_distance(distance),
        None => join,
    }
}

/// What would be done.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "the border")]
pub(crate) fn plan(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    y: Option<&Bound<'_, PyAny>>,
    eps: Option<f64>,
    k: usize,
    max_distance: Option<f64>,
    pad: bool,
    options: Options,
) -> PyResult<Planned> {
    with!(Arrays::new(x, y)?, sides => {
        let understood = options.understand()?;
        run(py, options.progress.as_ref(), sides, move |sides, monitor| Ok(match eps {
            Some(eps) => Planned::of(&understood.plan(EpsJoin::new(eps), sides, monitor)?.0),
            None => {
                let join = knn_join(k, max_distance, pad);
                Planned::of(&understood.plan(join, sides, monitor)?.0)
            }
        }))
    })
}

/// The ε at which points have so many neighbours on average, if there is one.
#[pyfunction]
pub(crate) fn estimate_eps(
    py: Python<'_>,
    x: &Bound<'_, PyAny>,
    y: Option<&Bound<'_, PyAny>>,
    neighbors: f64,
    options: Options,
) -> PyResult<Option<f64>> {
    with!(Arrays::new(x, y)?, sides => {
        let metric = options.understand()?.metric();
        run(py, options.progress.as_ref(), sides, move |sides, _| {
            let curve = match sides.points()? {
                (left, Some(right)) => NeighborCurve::of(&left, &right, metric),
                (points, None) => NeighborCurve::of_self(&points, metric),
            };
            Ok(curve?.eps(neighbors))
        })
    })
}
