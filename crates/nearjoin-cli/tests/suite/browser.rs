//! The report as a browser shows it.
//!
//! Chromium is taken from `NEARJOIN_CHROMIUM`, else from the path. Without one there is
//! nothing to test, and that is said; with `CI=true` and `NEARJOIN_REQUIRE_CHROMIUM=1` it is
//! a failure.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, process, thread};

/// How long a browser may take for a page.
const PATIENCE: Duration = Duration::from_secs(60);

/// The width of a desk's screen and of a telephone's.
const WIDTHS: [u32; 2] = [1280, 390];

#[test]
fn a_report_of_a_join_is_shown_by_a_browser() {
    let Some(browser) = Browser::find() else { return };
    let folder = Folder::new();
    nearjoin(&folder, "gen clustered -n 20000 -d 2 --seed 1 -o pts.npy");
    for (join, neighbours) in [
        ("within pts.npy --eps 0.05", "Neighbours per point"),
        ("knn pts.npy -k 8", "Distance to the k-th neighbour, k = 8"),
    ] {
        nearjoin(&folder, &format!("{join} --count --report r.html"));
        let sections =
            ["What was asked", "The plan", "Phases", neighbours, "Where the points are", "Numbers"];
        check_report(&browser, &folder.0.join("r.html"), &sections, 1);
    }
}

fn nearjoin(folder: &Folder, arguments: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_nearjoin"))
        .args(arguments.split(' '))
        .current_dir(&folder.0)
        .output()
        .expect("nearjoin starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nearjoin {arguments}: {errors}");
}

/// Checks that the page at `path` has these headings of sections and so many pictures, that
/// all charts are drawn, that it fits wide and narrow screens in light and in dark, and that
/// it asks for nothing beside itself.
pub(crate) fn check_report(browser: &Browser, path: &Path, sections: &[&str], pictures: usize) {
    let page = fs::read_to_string(path).expect("a page");
    assert!(!page.contains("<script"), "the page needs no script");
    assert!(page.contains(POLICY), "the page allows nothing from elsewhere");

    let folder = Folder::new();
    let measures = measure(browser, &folder, &page);
    for (width, measure) in WIDTHS.into_iter().zip(&measures) {
        assert_eq!(measure.all("width"), [width.to_string()]);
        assert_eq!(measure.all("overflow"), ["0"], "at {width} pixels the page scrolls sideways");
        assert_eq!(measure.all("section"), sections);
        assert_eq!(measure.all("asked"), [""; 0], "the page asks for nothing");
        let decoded = measure.all("picture");
        assert_eq!(decoded.len(), pictures);
        assert!(decoded.iter().all(|width| *width != "0"), "every picture is decoded");
    }

    let wide = &measures[0];
    let height = wide.all("height")[0].parse().expect("a height");
    let light = browser.screenshot(&folder, path, [WIDTHS[0], height], false);
    let dark = browser.screenshot(&folder, path, [WIDTHS[0], height], true);
    assert!(light.brightness(2, 2) > 200 && dark.brightness(2, 2) < 60, "light and dark pages");
    for screenshot in [&light, &dark] {
        for place in wide.all("picture-at") {
            assert!(screenshot.colours(place).len() >= 8, "a blank picture at {place}");
        }
        for place in wide.all("chart-at") {
            let colours = screenshot.colours(place);
            let [all, most] = [colours.values().sum(), *colours.values().max().unwrap_or(&0)];
            // Axes alone fill less than this.
            assert!(all - most > all / 32, "a blank chart at {place}");
        }
    }
}

/// What the page allows to be loaded; the rest of the policy stands before it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Says what a browser made of the page, to the page around it.
const PROBE: &str = r#"<script>
const told = [];
const tell = (key, value) => told.push(`${key}=${value}`);
document.addEventListener("securitypolicyviolation", event => tell("asked", event.blockedURI));
addEventListener("load", () => {
  const root = document.documentElement;
  tell("width", innerWidth);
  tell("height", Math.ceil(root.scrollHeight));
  tell("overflow", Math.max(0, root.scrollWidth - root.clientWidth));
  for (const heading of document.querySelectorAll("h2")) tell("section", heading.textContent);
  for (const image of document.images) tell("picture", image.naturalWidth);
  for (const entry of performance.getEntriesByType("resource"))
    if (!entry.name.startsWith("data:")) tell("asked", entry.name);
  const tellPlaces = (key, selector) => {
    for (const shown of document.querySelectorAll(selector)) {
      const { x, y, width, height } = shown.getBoundingClientRect();
      tell(key, [x, y, width, height].map(Math.floor).join());
    }
  };
  tellPlaces("picture-at", "img");
  tellPlaces("chart-at", "svg[role=img]");
  parent.postMessage([name, ...told].join("\n"), "*");
});
</script>"#;

/// Shows a copy of the page in a frame of each width and returns what it says there.
///
/// A window of its own cannot be as narrow as a telephone.
fn measure(browser: &Browser, folder: &Folder, page: &str) -> Vec<Measure> {
    let probed = page
        .replacen(POLICY, &format!("{POLICY}; script-src 'unsafe-inline'"), 1)
        .replacen("<title>", &format!("{PROBE}\n<title>"), 1);
    fs::write(folder.0.join("probed.html"), probed).expect("room for a page");
    let frames = WIDTHS.map(|width| {
        format!(
            "<iframe name=\"w{width}\" src=\"probed.html\" \
             style=\"border: 0; width: {width}px; height: 900px\"></iframe>\n"
        )
    });
    let around = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<script>\n\
         addEventListener(\"message\", event => document.documentElement.setAttribute(\n\
         \"data-\" + event.data.split(\"\\n\")[0], event.data));\n</script>\n{}",
        frames.concat()
    );
    let path = folder.0.join("around.html");
    fs::write(&path, around).expect("room for a page");

    let shown = browser.show(folder, &path, &["--dump-dom".into()]);
    let messages: Vec<&str> =
        shown.errors.lines().filter(|line| line.contains(":CONSOLE")).collect();
    assert!(messages.is_empty(), "the browser complains: {messages:#?}");
    WIDTHS
        .into_iter()
        .map(|width| {
            let start = format!("data-w{width}=\"w{width}\n");
            let (_, told) = shown.output.split_once(&start).unwrap_or_else(|| {
                panic!("the page at {width} pixels did not load: {}", shown.errors)
            });
            let (told, _) = told.split_once('"').expect("the end of an attribute");
            Measure(told.to_owned())
        })
        .collect()
}

/// Lines of `key=value` from the probe.
struct Measure(String);

impl Measure {
    fn all(&self, key: &str) -> Vec<&str> {
        let pairs = self.0.lines().filter_map(|line| line.split_once('='));
        pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).collect()
    }
}

/// A Chromium to show pages with.
pub(crate) struct Browser(PathBuf);

/// What it wrote.
struct Shown {
    output: String,
    errors: String,
}

impl Browser {
    /// The Chromium of this machine; says so where there is none.
    pub(crate) fn find() -> Option<Self> {
        let named = env::var_os("NEARJOIN_CHROMIUM").map(PathBuf::from);
        let path = env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome"];
        let found = named.or_else(|| {
            let folders: Vec<PathBuf> = env::split_paths(&path).collect();
            let places = names.iter().flat_map(|name| folders.iter().map(move |f| f.join(name)));
            places.into_iter().find(|place| place.is_file())
        });
        if found.is_none() {
            let is = |name, value| env::var(name).is_ok_and(|set| set == value);
            let required = is("CI", "true") && is("NEARJOIN_REQUIRE_CHROMIUM", "1");
            assert!(!required, "no Chromium, and NEARJOIN_REQUIRE_CHROMIUM is set");
            println!("skipped: no Chromium");
        }
        found.map(Browser)
    }

    /// Opens a page without a window and waits until the browser has done what `options` say.
    fn show(&self, folder: &Folder, page: &Path, options: &[OsString]) -> Shown {
        let [output, errors] = ["output", "errors"].map(|name| folder.0.join(name));
        let file = |path| Stdio::from(File::create(path).expect("room for a file"));
        let mut address = OsString::from("file://");
        address.push(page.canonicalize().expect("a page"));
        let mut profile = OsString::from("--user-data-dir=");
        profile.push(folder.0.join("profile"));
        let mut child = Command::new(&self.0)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args(["--no-first-run", "--disable-extensions", "--disable-sync"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--force-device-scale-factor=1"])
            .args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=5000"])
            .arg(profile)
            .args(options)
            .arg(address)
            .stdin(Stdio::null())
            .stdout(file(&output))
            .stderr(file(&errors))
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", self.0.display()));

        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break Some(status);
            }
            if start.elapsed() > PATIENCE {
                child.kill().expect("a child to end");
                child.wait().expect("a child");
                break None;
            }
            thread::sleep(Duration::from_millis(20));
        };
        let text = |path: &Path| {
            String::from_utf8_lossy(&fs::read(path).expect("what it wrote")).into_owned()
        };
        let shown = Shown { output: text(&output), errors: text(&errors) };
        match status {
            Some(status) => assert!(status.success(), "{status}: {}", shown.errors),
            None => panic!("no page within {PATIENCE:?}: {}", shown.errors),
        }
        shown
    }

    fn screenshot(&self, folder: &Folder, page: &Path, size: [u32; 2], dark: bool) -> Screenshot {
        let path = folder.0.join("screenshot.png");
        let mut option = OsString::from("--screenshot=");
        option.push(&path);
        let scheme = if dark { 0 } else { 1 };
        let [width, height] = size;
        let options = [
            option,
            format!("--window-size={width},{height}").into(),
            format!("--blink-settings=preferredColorScheme={scheme}").into(),
        ];
        self.show(folder, page, &options);
        Screenshot::read(&path)
    }
}

/// Pixels of a page.
struct Screenshot {
    width: usize,
    /// Bytes of a pixel.
    depth: usize,
    pixels: Vec<u8>,
}

impl Screenshot {
    fn read(path: &Path) -> Self {
        let file = std::io::BufReader::new(File::open(path).expect("a screenshot"));
        let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
        let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut pixels).expect("a picture");
        assert_eq!(info.bit_depth, png::BitDepth::Eight);
        Screenshot { width: info.width as usize, depth: info.color_type.samples(), pixels }
    }

    fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        let start = (y * self.width + x) * self.depth;
        let pixel = &self.pixels[start..start + self.depth];
        [pixel[0], pixel[1], pixel[2]]
    }

    fn brightness(&self, x: usize, y: usize) -> u32 {
        self.pixel(x, y).into_iter().map(u32::from).sum::<u32>() / 3
    }

    /// The colours in the rectangle `x,y,width,height`, and how many pixels have each.
    fn colours(&self, place: &str) -> HashMap<[u8; 3], usize> {
        let place: Vec<usize> =
            place.split(',').map(|part| part.parse().expect("a place on the page")).collect();
        let [x, y, width, height] = place[..] else { panic!("no rectangle: {place:?}") };
        let mut colours = HashMap::new();
        for y in y..(y + height).min(self.pixels.len() / (self.width * self.depth)) {
            for x in x..(x + width).min(self.width) {
                *colours.entry(self.pixel(x, y)).or_default() += 1;
            }
        }
        colours
    }
}

/// A folder that goes when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("browser-{}-{number}", process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("room for a folder");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays with the other products of the build.
        let _ = fs::remove_dir_all(&self.0);
    }
}
