use super::*;

fn pairs<'a>(entries: &[(&'a str, &str)]) -> Vec<(&'a str, String)> {
    entries.iter().map(|(label, value)| (*label, (*value).to_owned())).collect()
}

fn nothing<'a>() -> Report<'a> {
    Report {
        title: "0 points",
        program: "nearjoin",
        date: "today",
        command: "nearjoin",
        asked: &[],
        plan: Plan {
            strategy: "brute",
            reason: "there is nothing to do.",
            alternatives: &[],
            index: &[],
            expected_pairs: None,
            pairs: 0,
            memory: Memory { index: 0, result: 0, peak: None, limit: None },
        },
        phases: &[],
        workers: &[],
        neighbours: None,
        pictures: &[],
        numbers: &[],
    }
}

#[test]
fn a_page_with_everything() {
    let asked = pairs(&[("points", "pts.npy"), ("ε", "0.05")]);
    let histogram = Histogram::of(&[0, 1, 1, 5, 1000]);
    let rows = [[0.0, 0.0], [0.5, 0.5], [0.5, 0.5], [1.0, 1.0]];
    let density = Density::of(rows, Extent::of(rows).expect("points"));
    let page = render(&Report {
        asked: &asked,
        plan: Plan {
            alternatives: &[
                Alternative { name: "brute", seconds: 100.0, tests: 1e12, chosen: false },
                Alternative { name: "grid", seconds: 0.5, tests: 1e6, chosen: true },
                Alternative { name: "ego", seconds: f64::NAN, tests: f64::NAN, chosen: false },
            ],
            index: &["16 × 16 cells".to_owned()],
            expected_pairs: Some(100.0),
            pairs: 101,
            memory: Memory { index: 1 << 20, result: 0, peak: Some(1 << 22), limit: Some(1 << 40) },
            ..nothing().plan
        },
        phases: &[
            Phase { name: "execute", start: 0.0, end: 2.0 },
            Phase { name: "write", start: 1.0, end: 2.5 },
        ],
        workers: &[worker(true, 0), worker(false, 0)],
        neighbours: histogram.as_ref(),
        pictures: &[Picture {
            title: "pts.npy",
            axes: ["x", "y"],
            density: &density,
            ball: Some((0.05, Ball::Circle)),
        }],
        numbers: &asked,
        ..nothing()
    });
    for heading in [
        "What was asked",
        "The plan",
        "Phases",
        "Neighbours per point",
        "Where the points are",
        "Numbers",
    ] {
        assert!(page.contains(&format!(">{heading}</h2>")), "{heading}");
    }
    assert!(page.contains("200 ×") && page.contains("bars on a log scale"));
    assert!(page.contains("(+1 %)") && page.contains("far above"));
    assert!(page.contains("its radius is ε = 0.05."));
    assert!(!page.contains("NaN") && !page.contains("inf"));
    assert!(!page.contains("://"), "nothing comes from elsewhere");
    assert!(!page.contains("<script"));
    assert_balanced(&page);
}

fn worker(on_gpu: bool, number: usize) -> Worker {
    let spans = vec![(1.0, 1.5), (1.50001, 1.6), (1.8, f64::NAN), (1.9, 9.0)];
    Worker { on_gpu, number, spans, busy: 0.75, idle: 0.25 }
}

#[test]
fn those_who_shared_a_join_stand_below_its_phases() {
    let phases = [Phase { name: "join", start: 1.0, end: 2.0 }];
    let workers = [worker(false, 3), worker(false, 0), worker(true, 0)];
    let page = render(&Report { phases: &phases, workers: &workers, ..nothing() });
    let places = ["join", "gpu stream 0", "cpu thread 0", "cpu thread 3"]
        .map(|name| page.find(&format!("<th scope=\"row\">{name}</th>")).expect(name));
    assert!(places.is_sorted(), "{places:?}");
    // Spans along the axis of the phases; what is close together is one, and none leaves it.
    let row = &page[places[1]..places[2]];
    let drawn: Vec<_> = row.split("<rect").skip(1).collect();
    assert_eq!(drawn.len(), 3, "{row}");
    assert!(drawn[0].contains("x=\"50.00%\" width=\"30.00%\""), "{row}");
    assert!(drawn[2].contains("x=\"95.00%\" width=\"5.00%\""), "{row}");
    assert!(row.contains("<td>0.25 s</td><td>0.75 s</td><td>75 %</td>"), "{row}");
    assert!(!page.contains("Not shown") && !page.contains("NaN"));
    assert_balanced(&page);
    let page = render(&Report { phases: &phases, ..nothing() });
    assert!(!page.contains("shared by") && !page.contains("class=\"workers\""));
}

#[test]
fn a_crowd_is_shown_in_part() {
    let phases = [Phase { name: "join", start: 0.0, end: 2.0 }];
    let shown = |streams: usize, threads: usize| {
        let streams = (0..streams).map(|number| worker(true, number));
        let workers: Vec<_> = streams.chain((0..threads).map(|n| worker(false, n))).collect();
        let page = render(&Report { phases: &phases, workers: &workers, ..nothing() });
        assert_balanced(&page);
        let rows = |name: &str| page.matches(&format!("<th scope=\"row\">{name} ")).count();
        let hidden = page.split_once("Not shown: ").and_then(|(_, rest)| rest.split_once(".<"));
        (rows("gpu stream"), rows("cpu thread"), hidden.map(|(hidden, _)| hidden.to_owned()))
    };
    assert_eq!(shown(2, 30), (2, 30, None));
    assert_eq!(shown(2, 100), (2, 30, Some("70 more threads of the CPU".into())));
    assert_eq!(shown(40, 1), (31, 1, Some("9 more streams of the GPU".into())));
    let both = "4 more streams of the GPU, 24 more threads of the CPU";
    assert_eq!(shown(20, 40), (16, 16, Some(both.into())));
    assert_eq!(shown(0, 33), (0, 32, Some("1 more thread of the CPU".into())));
}

#[test]
fn a_page_with_nothing() {
    let page = render(&nothing());
    assert!(page.contains("The plan") && !page.contains("id=\"phases\""));
    assert!(!page.contains("NaN"));
    assert_balanced(&page);
}

#[test]
fn everything_is_escaped() {
    const BAD: &str = "<img src=x onerror=\"alert('&')\">";
    let entries = pairs(&[(BAD, BAD)]);
    let density = Density::of([], Extent { x: [0.0, 1.0], y: [0.0, 1.0] });
    let page = render(&Report {
        title: BAD,
        program: BAD,
        date: BAD,
        command: BAD,
        asked: &entries,
        plan: Plan {
            strategy: BAD,
            reason: BAD,
            alternatives: &[Alternative { name: BAD, seconds: 1.0, tests: 1.0, chosen: true }],
            index: &[BAD.to_owned()],
            ..nothing().plan
        },
        phases: &[Phase { name: BAD, start: 0.0, end: 1.0 }],
        pictures: &[Picture { title: BAD, axes: [BAD; 2], density: &density, ball: None }],
        numbers: &entries,
        ..nothing()
    });
    assert!(!page.contains("<img src=x") && !page.contains("onerror=\""));
    assert!(page.matches("&lt;img src=x onerror=&quot;").count() >= 15);
    assert_balanced(&page);
}

#[test]
fn neighbourhoods_are_drawn_where_they_can_be_seen() {
    let rows = (0..2000u32).map(|i| [f64::from(i % 50), f64::from(i / 50)]);
    let density = Density::of(rows, Extent { x: [0.0, 49.0], y: [0.0, 39.0] });
    let page = |epsilon, ball| {
        let picture =
            Picture { title: "", axes: ["x", "y"], density: &density, ball: Some((epsilon, ball)) };
        render(&Report { pictures: &[picture], ..nothing() })
    };
    assert!(page(2.0, Ball::Circle).contains("circle in the corner"));
    assert!(page(12.0, Ball::Diamond).contains("diamond in the middle"));
    assert!(page(2.0, Ball::Square).contains("square in the corner"));
    assert!(page(1e-9, Ball::Circle).contains("too small"));
    assert!(page(100.0, Ball::Circle).contains("2.6 times the picture’s side"));
    assert!(page(0.0, Ball::Circle).contains("too small"));
}

#[test]
fn histograms_of_odd_degrees_are_drawn() {
    for degrees in [vec![0; 5], vec![7], vec![0, u64::MAX], vec![u64::MAX], (0..5000).collect()] {
        let histogram = Histogram::of(&degrees);
        let page = render(&Report { neighbours: histogram.as_ref(), ..nothing() });
        assert!(!page.contains("NaN") && !page.contains("inf%"), "{degrees:?}");
        assert_balanced(&page);
    }
}

/// Every element that needs an end has one, in order.
#[track_caller]
fn assert_balanced(page: &str) {
    const VOID: [&str; 5] = ["meta", "img", "source", "!doctype", "br"];
    let mut open = Vec::new();
    let body = page.split_once("</style>").map_or(page, |(_, body)| body);
    for tag in body.split('<').skip(1) {
        let tag = tag.split_once('>').expect("a whole tag").0;
        let name = tag.split([' ', '\n']).next().unwrap_or_default();
        if let Some(name) = name.strip_prefix('/') {
            if name != "html" {
                let last = open.pop();
                assert!(
                    last == Some(name) || (last.is_none() && name == "head"),
                    "{last:?} {name}"
                );
            }
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}
