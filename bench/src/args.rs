//! The command line: text to options, nothing else.

use std::path::PathBuf;

use crate::gpu::Child;
use crate::gpu::cases::{CASES, HEGJOIN, PAPERS};
use crate::gpu::{knn, product};
use crate::workload::{Ask, Case, Nearest, Within};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Runs nearjoin and its peers on the same points and prints the ratios.

usage: nearjoin-bench [--knn] [--compare] [--scaling] [--cores] [--adversarial] [--memory] [options]
       nearjoin-bench [--product] [--crossover] [options]
       nearjoin-bench [--gpu] [--gpu-scaling] [--gpu-papers] [--hybrid] [--hybrid-papers] [options]
       nearjoin-bench [--gpu-knn] [--knn-papers] [--gpu-product] [--gpu-crossover] [options]

joins
  (default)         the ε-join
  --knn             the KNN-join

sections (default: --compare)
  --compare         every engine on the chosen cases
  --scaling         ε-join: nearjoin on uniform 2-D points with 25 neighbours each, 10⁵ to
                    10⁷ points; with --points N, up to N
  --cores           nearjoin on the cases of the ε-join with 1, 2, 4, … threads: seconds,
                    speed-up, and the shares of plan and index; a count, a CSR, a sorted CSR
                    and the 8 nearest
  --product         both joins by matrix products, by brute force and by auto, 50,000 points in 32,
                    100 and 384 dimensions, with 1, 2 and all threads; in 100 of them beside
                    FAISS, scikit-learn and the rate of products in numpy; with --points N, so
                    many
  --crossover       both joins by every strategy and by auto, in 4 to 64 dimensions, points spread
                    in all of them and in few; with --points N, so many
  --adversarial     KNN-join: nearjoin on points made to defeat an index, beside uniform ones
  --memory          peak memory of one call for the whole answer (one count for
                    `clustered`), each case in a process of its own

sections of the ε-join on a GPU
  --gpu             every answer in both types, beside the limits and others' times; the
                    first call of a fresh process
  --gpu-scaling     counts of 10⁷ and 10⁸ uniform 2-D points with 30 neighbours each
  --gpu-papers      the papers' synthetic sets: duplicate removals, threads to a query,
                    schedules, and sizes of batches
  --hybrid          CPU, GPU and both on the cases of --gpu; how fast fresh memory can be
                    touched; and a GPU that is lost half way
  --hybrid-papers   HEGJoin's tables on its exponential sets: DYN, SQ, SC, GPU only and CPU
                    only, with a GPU that is held back until it is as strong as the CPU

sections of the KNN-join on a GPU
  --gpu-knn         CPU, GPU, both and auto, into arrays that are used again; evenly spread
                    points, and those that are hard; CuPy beside them where Python has it
  --gpu-product     joins of many dimensions by matrix products, beside brute force, and beside
                    PyTorch and CuPy where Python has them
  --gpu-crossover   as --crossover, for both joins on a GPU
  --knn-papers      HybridKNN-Join's tables on its synthetic sets: the paper's scheme (the
                    strategy ranges) beside what nearjoin does by itself, and its options

options
  --cases a,b,c     (default: all of the join)
                    ε-join: uniform2, uniform3, uniform4, uniform6, exponential2, clustered,
                    sphere3, places3, embedding64
                    KNN-join: uniform2-k8, uniform2-k32, uniform3-k8, uniform4-k8,
                    exponential4-k8, uniform6-k8, clustered-k8, uniform64-k10, sphere3-k8,
                    places3-k8, embedding64-k10, and for --adversarial and --memory equal2-k8,
                    duplicates2-k8, outlier2-k8, line6-k8, lattice3-k8, lattice6-k8
                    --gpu: uniform2, uniform2-dense, uniform3, uniform4, uniform6,
                    exponential2, exponential6
                    --gpu-papers: Syn2D2M to Syn6D2M, Syn2D10M to Syn6D10M, Expo2D2M to
                    Expo6D2M
                    --hybrid-papers: Hybrid2D2M, Hybrid3D2M, Hybrid4D2M, Hybrid6D2M,
                    Hybrid8D2M, Hybrid2D10M, Hybrid4D10M, Hybrid6D10M, Hybrid8D10M
                    --gpu-knn: uniform2-k8, uniform2-k32, uniform4-k8, uniform4-k32,
                    uniform6-k8, uniform6-k32, exponential4-k8, exponential4-k32, sphere3-k8,
                    equal2-k8, lattice2-k8, outlier2-k8, line6-k8, lognormal4-k8,
                    uniform2-10M-k8, uniform4-10M-k8, uniform2-k4096, normal64-k10,
                    places3-k8, few3-k8
                    --gpu-product: normal64, normal128, normal768, normal128-1M; normal128-k10,
                    normal128-k100, normal128-k1000, normal768-k10, embedding100-k10,
                    embedding768-k10, normal128-1M-k10
                    --knn-papers: Unif2D, Unif4D, Unif6D, Expo2D, Expo4D, Expo6D
  --points N        points of a case (default 2e6; the clustered cases have 5 for every 2 of
                    them, those in 64 dimensions 1 for every 20, the adversarial cases 1 for
                    every 4, the sections of a GPU in proportion, but --knn-papers 2 for each
                    of them in place of 1e7).
                    ε is scaled so that the number of neighbours stays; not for clustered
  --reps R          calls of nearjoin of which the best counts (default 5); fewer for a
                    KNN-join of which they take over a minute, and 2 for --knn-papers
  --no-check        on a GPU: do not compare with the CPU's answer
  --quick           on a GPU: --points 1e5 --reps 2
  --peers a,b       of kiddo, scipy, sklearn, rstar (ε-join), pykdtree (KNN-join), faiss (many
                    dimensions), numpy (--product), cupy (--gpu-knn, --gpu-product) and torch
                    (--gpu-product), or none (default: all)
  --peer-reps R     runs of each peer of which the best counts (default 1)
  --slow-peers      also run the peers that take very long on a case
  --python PATH     the interpreter with numpy, scipy, scikit-learn, pykdtree and faiss-cpu, or
                    with numpy, cupy and torch (default python3)
  --record FILE.md  also write the tables and the machine to a file
  --once CASE       one call on one case in this process, as one line of numbers
  --touch BYTES     touches so much fresh memory and prints the seconds
  --help            this text
";

/// Which join is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    Eps,
    Knn,
}

impl Join {
    /// The names of its cases.
    pub(crate) fn case_names(self) -> Vec<&'static str> {
        match self {
            Join::Eps => Case::<Within>::all().map(|case| case.name).collect(),
            Join::Knn => Case::<Nearest>::all().map(|case| case.name).collect(),
        }
    }
}

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Compare,
    Scaling,
    Cores,
    Product,
    Crossover,
    Adversarial,
    Memory,
    Gpu,
    GpuScaling,
    GpuPapers,
    Hybrid,
    HybridPapers,
    GpuKnn,
    GpuProduct,
    GpuCrossover,
    KnnPapers,
    /// Every kernel on a few points, for a sanitizer.
    GpuSmall,
}

impl Section {
    fn on_gpu(self) -> bool {
        use Section::{Adversarial, Compare, Cores, Crossover, Memory, Product, Scaling};
        !matches!(self, Compare | Scaling | Cores | Product | Crossover | Adversarial | Memory)
    }
}

/// Which other engines to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peers {
    pub(crate) kiddo: bool,
    pub(crate) rstar: bool,
    pub(crate) scipy: bool,
    pub(crate) sklearn: bool,
    pub(crate) pykdtree: bool,
    pub(crate) faiss: bool,
    pub(crate) numpy: bool,
    pub(crate) cupy: bool,
    pub(crate) torch: bool,
}

impl Peers {
    const ALL: Peers = Peers {
        kiddo: true,
        rstar: true,
        scipy: true,
        sklearn: true,
        pykdtree: true,
        faiss: true,
        numpy: true,
        cupy: true,
        torch: true,
    };
}

/// Everything the command line says.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) help: bool,
    pub(crate) join: Join,
    /// The name of a case.
    pub(crate) once: Option<String>,
    /// Bytes of fresh memory to touch.
    pub(crate) touch: Option<usize>,
    pub(crate) sections: Vec<Section>,
    /// The names of the chosen cases.
    pub(crate) cases: Vec<String>,
    pub(crate) points: Option<usize>,
    pub(crate) reps: usize,
    pub(crate) peers: Peers,
    pub(crate) peer_reps: usize,
    pub(crate) slow_peers: bool,
    pub(crate) python: PathBuf,
    pub(crate) record: Option<PathBuf>,
    /// What another process asks of this one.
    pub(crate) child: Option<Child>,
    /// Whether a GPU's counts are compared with the CPU's.
    pub(crate) check: bool,
    /// Whether the kernels of a GPU run on the CPU.
    pub(crate) simt: bool,
    /// As it was given, for the record.
    pub(crate) command: String,
}

impl Options {
    /// Whether the sections are those of a GPU: all are, or none.
    pub(crate) fn on_gpu(&self) -> bool {
        self.sections.iter().any(|section| section.on_gpu())
    }

    /// Whether a case is chosen.
    pub(crate) fn has_case(&self, name: &str) -> bool {
        self.cases.iter().any(|case| case == name)
    }

    /// The names of the cases that the sections have.
    fn case_names(&self) -> Vec<&'static str> {
        let has = |section| self.sections.contains(&section);
        let mut names = Vec::new();
        if has(Section::Gpu) || has(Section::Hybrid) {
            names.extend(CASES.iter().map(|case| case.set.name));
        }
        if has(Section::GpuPapers) {
            names.extend(PAPERS.iter().map(|set| set.name));
        }
        if has(Section::HybridPapers) {
            names.extend(HEGJOIN.iter().map(|row| row.set.name));
        }
        if has(Section::GpuKnn) {
            names.extend(knn::cases::CASES.iter().map(|case| case.name));
        }
        if has(Section::GpuProduct) {
            names.extend(product::CASES.iter().map(|case| case.name));
            names.extend(product::nearest::CASES.iter().map(|(case, _)| case.name));
        }
        if has(Section::KnnPapers) {
            names.extend(knn::papers::figures::SETS.iter().map(|set| set.name));
        }
        if self.on_gpu() { names } else { self.join.case_names() }
    }

    /// Those of some cases that are chosen.
    pub(crate) fn chosen<A: Ask>(
        &self,
        cases: &'static [Case<A>],
    ) -> impl Iterator<Item = &'static Case<A>> {
        cases.iter().filter(|case| self.has_case(case.name))
    }
}

/// Reads the arguments that follow the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Options, String> {
    let args: Vec<String> = args.into_iter().collect();
    let mut options = Options {
        help: false,
        join: Join::Eps,
        once: None,
        touch: None,
        sections: Vec::new(),
        cases: Vec::new(),
        points: None,
        reps: 5,
        peers: Peers::ALL,
        peer_reps: 1,
        slow_peers: false,
        python: "python3".into(),
        record: None,
        child: None,
        check: true,
        simt: false,
        command: args.join(" "),
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let (name, inline) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (&arg[..], None),
        };
        let mut value = || {
            inline.clone().or_else(|| args.next()).ok_or_else(|| format!("{name} needs a value"))
        };
        match name {
            "--help" | "-h" => options.help = true,
            "--knn" => options.join = Join::Knn,
            "--compare" => options.sections.push(Section::Compare),
            "--scaling" => options.sections.push(Section::Scaling),
            "--cores" => options.sections.push(Section::Cores),
            "--product" => options.sections.push(Section::Product),
            "--crossover" => options.sections.push(Section::Crossover),
            "--adversarial" => options.sections.push(Section::Adversarial),
            "--memory" => options.sections.push(Section::Memory),
            "--gpu" => options.sections.push(Section::Gpu),
            "--gpu-scaling" => options.sections.push(Section::GpuScaling),
            "--gpu-papers" => options.sections.push(Section::GpuPapers),
            "--hybrid" => options.sections.push(Section::Hybrid),
            "--hybrid-papers" => options.sections.push(Section::HybridPapers),
            "--gpu-knn" => options.sections.push(Section::GpuKnn),
            "--gpu-product" => options.sections.push(Section::GpuProduct),
            "--gpu-crossover" => options.sections.push(Section::GpuCrossover),
            "--knn-papers" => options.sections.push(Section::KnnPapers),
            "--gpu-small" => options.sections.push(Section::GpuSmall),
            "--gpu-first" => options.child = Some(Child::First(value()?)),
            "--gpu-batches" => options.child = Some(Child::Batches(value()?)),
            "--no-check" => options.check = false,
            "--quick" => (options.points, options.reps) = (Some(100_000), 2),
            "--simt" => options.simt = true,
            "--touch" => options.touch = Some(number(name, &value()?)?),
            "--once" => options.once = Some(value()?),
            "--cases" => options.cases = value()?.split(',').map(String::from).collect(),
            "--points" => options.points = Some(number(name, &value()?)?),
            "--reps" => options.reps = number(name, &value()?)?,
            "--peers" => options.peers = peers(&value()?)?,
            "--peer-reps" => options.peer_reps = number(name, &value()?)?,
            "--slow-peers" => options.slow_peers = true,
            "--python" => options.python = value()?.into(),
            "--record" => options.record = Some(value()?.into()),
            _ => return Err(format!("unknown argument {arg:?}; --help lists them")),
        }
    }
    if options.sections.is_empty() {
        options.sections.push(Section::Compare);
    }
    if options.on_gpu() && !options.sections.iter().all(|section| section.on_gpu()) {
        return Err("the sections of a GPU are for a run of their own".into());
    }
    if options.on_gpu() && options.join == Join::Knn {
        return Err("--knn is for the CPU; on a GPU it is --gpu-knn".into());
    }
    if options.on_gpu() {
        // The times of others are constants of the tables.
        let has = |section| options.sections.contains(&section);
        let cupy = options.peers.cupy && (has(Section::GpuKnn) || has(Section::GpuProduct));
        let torch = options.peers.torch && has(Section::GpuProduct);
        options.peers = Peers { cupy, torch, ..Peers::default() };
    }
    let known = options.case_names();
    if let Some(name) =
        options.cases.iter().chain(&options.once).find(|name| !known.contains(&&name[..]))
    {
        return Err(format!("there is no case {name:?} here, but {}", known.join(", ")));
    }
    if options.cases.is_empty() {
        options.cases = known.into_iter().map(String::from).collect();
    }
    let foreign: &[(Section, &str)] = match options.join {
        Join::Eps => &[(Section::Adversarial, "--adversarial is for --knn")],
        Join::Knn => &[
            (Section::Scaling, "--scaling is for the ε-join, not for --knn"),
            (
                Section::Cores,
                "--cores has the nearest too, and the cases of the ε-join: leave --knn out",
            ),
        ],
    };
    match foreign.iter().find(|(section, _)| options.sections.contains(section)) {
        Some(&(_, why)) => Err(why.into()),
        None => Ok(options),
    }
}

fn peers(list: &str) -> Result<Peers, String> {
    let mut peers = Peers::default();
    for name in list.split(',') {
        match name {
            "none" => {}
            "kiddo" => peers.kiddo = true,
            "rstar" => peers.rstar = true,
            "scipy" => peers.scipy = true,
            "sklearn" => peers.sklearn = true,
            "pykdtree" => peers.pykdtree = true,
            "faiss" => peers.faiss = true,
            "numpy" => peers.numpy = true,
            "cupy" => peers.cupy = true,
            "torch" => peers.torch = true,
            _ => {
                let known = "kiddo, rstar, scipy, sklearn, pykdtree, faiss, numpy, cupy, torch";
                return Err(format!("no peer {name:?}; there are {known}"));
            }
        }
    }
    Ok(peers)
}

/// A positive whole number: `2000000`, `2_000_000` or `2e6`.
fn number(name: &str, text: &str) -> Result<usize, String> {
    let value: f64 = text
        .replace('_', "")
        .parse()
        .map_err(|_| format!("{name} needs a number, not {text:?}"))?;
    if value < 1.0 || value > u32::MAX as f64 || value.fract() != 0.0 {
        return Err(format!("{name} needs a positive whole number, not {text:?}"));
    }
    Ok(value as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_are_read() {
        let options =
            parsed("--points 1e5 --cases=uniform2,clustered --peers kiddo --reps 2").unwrap();
        assert_eq!(options.points, Some(100_000));
        assert_eq!(options.cases.len(), 2);
        assert_eq!(options.peers, Peers { kiddo: true, ..Peers::default() });
        assert_eq!(options.reps, 2);
        assert_eq!(options.sections, [Section::Compare]);
        assert_eq!(parsed("--scaling").unwrap().sections, [Section::Scaling]);
    }

    #[test]
    fn cases_are_those_of_the_join() {
        let options = parsed("--cases uniform2-k8,line6-k8 --knn").unwrap();
        assert_eq!(options.join, Join::Knn);
        assert_eq!(options.chosen(Nearest::CASES).count(), 1);
        assert_eq!(options.chosen(Nearest::ADVERSARIAL).count(), 1);
        assert_eq!(parsed("").unwrap().chosen(Within::CASES).count(), Within::CASES.len());
    }

    #[test]
    fn the_help_names_every_case() {
        let joins = [Join::Eps, Join::Knn].into_iter().flat_map(Join::case_names);
        for name in joins
            .chain(parsed("--gpu --hybrid-papers --gpu-knn --knn-papers").unwrap().case_names())
        {
            assert!(HELP.contains(name), "{name}");
        }
    }

    #[test]
    fn a_gpu_has_sections_and_cases_of_its_own() {
        let options = parsed("--gpu --gpu-papers --cases uniform2-dense,Expo6D2M").unwrap();
        assert!(options.on_gpu() && options.has_case("Expo6D2M"));
        assert_eq!(options.peers, Peers::default());
        assert!(!options.has_case("uniform2") && options.check);
        let options = parsed("--gpu --quick --reps 3 --no-check").unwrap();
        assert_eq!((options.points, options.reps, options.check), (Some(100_000), 3, false));
        assert_eq!(options.cases.len(), CASES.len());
        let child = parsed("--gpu-first uniform2").unwrap().child;
        assert_eq!(child, Some(Child::First("uniform2".into())));
        let options = parsed("--gpu-knn --cases few3-k8").unwrap();
        assert!(options.on_gpu() && options.has_case("few3-k8"));
        assert_eq!(options.peers, Peers { cupy: true, ..Peers::default() });
        let options = parsed("--gpu-product --peers torch").unwrap();
        assert_eq!(options.peers, Peers { torch: true, ..Peers::default() });
    }

    #[test]
    fn mistakes_are_named() {
        for line in [
            "--frob",
            "--reps",
            "--reps 0",
            "--points 1.5",
            "--cases none",
            "--peers a",
            "--cases uniform2-k8",
            "--knn --once uniform2",
            "--knn --scaling",
            "--knn --cores",
            "--adversarial",
            "--gpu --memory",
            "--gpu --knn",
            "--gpu --cases clustered",
            "--gpu-scaling --cases uniform2",
            "--gpu-knn --cases uniform2",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
