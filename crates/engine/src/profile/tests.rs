use super::*;
use crate::file::Access;

const CACHE: Place = Place::Cache;

fn machine() -> Machine {
    Machine {
        cores: 16,
        page_size: 4096,
    }
}

fn gpu() -> Gpu {
    Gpu {
        name: "A GPU".to_owned(),
        pci_bus_id: "0000:3b:00.0".to_owned(),
        driver: "12.8".to_owned(),
        count: 2,
    }
}

/// A profile of `machine()`, about host memory or about `gpu()`.
fn text(gpu: Option<&Gpu>, rows: Value) -> Value {
    json!({
        "format": 1,
        "made": "2026-01-02T03:04:05Z",
        "machine": machine().as_json(),
        "gpu": gpu.map(Gpu::as_json),
        "rows": rows,
    })
}

fn row(operation: &str, size: &str, place: &str, options: &str) -> Value {
    json!({ "operation": operation, "size": size, "place": place, "options": options })
}

fn parse(value: &Value, gpu: Option<&Gpu>) -> Found {
    Profile::parse(&value.to_string(), &machine(), gpu)
}

fn options(text: &str) -> Options {
    Options::parse(text).unwrap()
}

#[test]
fn a_row_holds_for_its_operation_size_and_place() {
    let rows = json!([
        row("read", "large", "cache", "threads=12;block=4MiB"),
        row("read", "large", "storage", "direct=yes;threads=4"),
        row("read", "small", "cache", "threads=2"),
        row("write", "large", "cache", "threads=3"),
    ]);
    let profile = parse(&text(None, rows), None).unwrap();
    assert_eq!(profile.made, "2026-01-02T03:04:05Z");
    let threads = |operation, bytes, place| profile.row(operation, bytes, place)?.threads;
    assert_eq!(threads(Operation::Read, 1 << 30, CACHE), Some(12));
    assert_eq!(threads(Operation::Read, 64 << 20, CACHE), Some(12));
    assert_eq!(threads(Operation::Read, 1 << 30, Place::Storage), Some(4));
    assert_eq!(threads(Operation::Read, 4 << 20, CACHE), Some(2));
    assert_eq!(threads(Operation::Read, 32 << 20, CACHE), None);
    assert_eq!(threads(Operation::Write, 1 << 30, CACHE), Some(3));
    assert_eq!(threads(Operation::Write, 1 << 30, Place::Storage), None);
}

#[test]
fn each_key_comes_from_the_innermost_level_that_sets_it() {
    let rows = json!([row(
        "read",
        "large",
        "cache",
        "threads=12;block=4MiB;slots=3"
    )]);
    let profile = parse(&text(None, rows), None).unwrap();
    let adds = |inner: &str| under(&options(inner), &profile, Operation::Read, 1 << 30, CACHE);
    assert_eq!(
        adds("").unwrap().to_string(),
        "threads=12;block=4MiB;slots=3"
    );
    assert_eq!(
        adds("threads=2;durable=yes").unwrap().to_string(),
        "block=4MiB;slots=3"
    );
}

#[test]
fn a_row_adds_nothing_where_the_options_select_another_mechanism() {
    let gpu = gpu();
    let rows = json!([row("read", "large", "cache", "route=staged;threads=12")]);
    let profile = parse(&text(Some(&gpu), rows), Some(&gpu)).unwrap();
    let adds = |inner: &str| {
        under(&options(inner), &profile, Operation::Read, 1 << 30, CACHE).map(|o| o.to_string())
    };
    assert_eq!(adds("route=mapped"), None);
    assert_eq!(adds("io=uring"), None);
    assert_eq!(adds("direct=yes"), None);
    assert!(adds("direct=no").is_some());
    assert_eq!(adds("route=auto"), None);
    assert_eq!(adds("route=staged").as_deref(), Some("threads=12"));
    assert_eq!(
        adds("io=auto;direct=auto").as_deref(),
        Some("route=staged;threads=12")
    );
}

#[test]
fn a_profile_of_a_machine_that_has_changed_says_what_has() {
    let gpu = gpu();
    let good = text(Some(&gpu), json!([]));
    assert!(parse(&good, Some(&gpu)).is_ok());
    for (pointer, other, word) in [
        ("/machine/cores", json!(32), "cores 32"),
        ("/machine/page_size", json!(65536), "page size"),
        ("/gpu/name", json!("Another"), "GPU name"),
        ("/gpu/driver", json!("13.0"), "GPU driver"),
        (
            "/gpu/count",
            json!(1),
            "GPU count 1, but this machine has 2",
        ),
        ("/gpu/pci_bus_id", json!("0000:00:00.0"), "pci"),
        ("/gpu", Value::Null, "GPU"),
    ] {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = other;
        let why = parse(&changed, Some(&gpu)).unwrap_err();
        assert!(why.contains(word), "{pointer}: {why}");
    }
    assert!(parse(&good, None).unwrap_err().contains("GPU"));
}

#[test]
fn a_damaged_profile_says_what_is_wrong() {
    for (rows, word) in [
        (json!("none"), "rows"),
        (json!([7]), "operation"),
        (json!([row("append", "large", "cache", "")]), "operation"),
        (json!([row("read", "huge", "cache", "")]), "size"),
        (json!([row("read", "large", "moon", "")]), "place"),
        (
            json!([row("read", "large", "cache", "threads=0")]),
            "threads",
        ),
        (
            json!([row("read", "large", "cache", "colour=red")]),
            "colour",
        ),
        (
            json!([{"operation": "read", "size": "large", "place": "cache"}]),
            "options",
        ),
        // A profile may neither weaken the guarantees that a caller has, nor select the impossible.
        (
            json!([row("write", "large", "storage", "durable=no")]),
            "durable=no",
        ),
        (
            json!([row("read", "large", "cache", "route=staged")]),
            "route=staged",
        ),
        (
            json!([row("read", "large", "cache", "direct=yes")]),
            "direct=yes",
        ),
    ] {
        let why = parse(&text(None, rows.clone()), None).unwrap_err();
        assert!(
            why.contains("damaged") && why.contains(word),
            "{rows}: {why}"
        );
    }
    let gpu = gpu();
    let mapped = json!([row("write", "large", "cache", "route=mapped")]);
    assert!(parse(&text(Some(&gpu), mapped), Some(&gpu)).is_err());
    for text in ["", "{", "[]", "{\"format\": 2, \"rows\": []}"] {
        assert!(Profile::parse(text, &machine(), None).is_err(), "{text}");
    }
}

/// A folder for profiles and a file that they may be about.
struct Scene {
    folder: tempfile::TempDir,
    file: File,
}

impl Scene {
    fn new() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.bin");
        std::fs::write(&path, [1; 100]).unwrap();
        std::fs::create_dir(folder.path().join("profiles")).unwrap();
        let access = Access {
            read: true,
            ..Access::default()
        };
        let file = File::open(&path, access, Options::default()).unwrap();
        Scene { folder, file }
    }

    fn profiles(&self) -> PathBuf {
        self.folder.path().join("profiles")
    }

    fn keep(&self, contents: &str) {
        let path = path(&self.profiles(), &self.file.mount().unwrap(), None);
        std::fs::write(path, contents).unwrap();
    }
}

fn here() -> Value {
    let mut profile = text(None, json!([row("read", "large", "cache", "threads=3")]));
    profile["machine"] = Machine::here().as_json();
    profile
}

#[test]
fn the_profile_of_a_files_mount_is_found_and_read_once() {
    let scene = Scene::new();
    scene.keep(&here().to_string());
    let profiles = Profiles::new(Some(scene.profiles()));
    let found = profiles.find(&scene.file, None).unwrap();
    let row = found.as_ref().as_ref().unwrap();
    assert!(row.row(Operation::Read, 1 << 30, CACHE).is_some());
    scene.keep("damaged since");
    assert!(profiles.find(&scene.file, None).unwrap().is_ok());
}

#[test]
fn without_a_profile_reports_have_no_note() {
    let scene = Scene::new();
    let profiles = Profiles::new(Some(scene.profiles()));
    assert!(profiles.find(&scene.file, None).is_none());
    let absent = Profiles::new(Some(scene.profiles().join("absent")));
    assert!(absent.find(&scene.file, None).is_none());
    assert!(Profiles::new(None).find(&scene.file, None).is_none());
}

#[test]
fn a_profile_that_cannot_be_read_is_not_used_and_says_why() {
    let scene = Scene::new();
    scene.keep("{");
    let profiles = Profiles::new(Some(scene.profiles()));
    let found = profiles.find(&scene.file, None).unwrap();
    let why = found.as_ref().as_ref().unwrap_err();
    assert!(
        why.contains("damaged") && why.contains("penstock tune"),
        "{why}"
    );

    let scene = Scene::new();
    let place = path(&scene.profiles(), &scene.file.mount().unwrap(), None);
    std::fs::create_dir(place).unwrap();
    let profiles = Profiles::new(Some(scene.profiles()));
    assert!(profiles.find(&scene.file, None).unwrap().is_err());
}
