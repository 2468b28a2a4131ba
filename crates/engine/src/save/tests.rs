use std::os::unix::fs::MetadataExt;

use super::*;

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// As [`Replacement::begin`] where the file system makes no files without names.
fn begun_hidden(target: &Path) -> Replacement {
    let (opened, name) = hidden::create(folder_of(target)).unwrap();
    Replacement {
        target: target.to_owned(),
        file: Arc::new(File::of_new(opened, target, Options::default()).unwrap()),
        hidden: Mutex::new(Some(name)),
        process: std::process::id(),
    }
}

fn begun(target: &Path, hidden: bool) -> Replacement {
    match hidden {
        true => begun_hidden(target),
        false => Replacement::begin(target.to_owned(), Options::default()).unwrap(),
    }
}

#[test]
fn new_contents_have_no_name_before_they_are_published() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    if unnamed(folder.path()).unwrap().is_none() {
        eprintln!("SKIPPED: the file system of the tests makes no files without names");
        return;
    }
    let replacement = begun(&target, false);
    assert_eq!(entries(folder.path()), 0);
    replacement.publish(true).unwrap();
    assert_eq!(entries(folder.path()), 1);
    let again = begun(&target, false);
    assert_eq!(entries(folder.path()), 1);
    again.publish(true).unwrap();
    assert_eq!(entries(folder.path()), 1);
}

#[test]
fn each_way_gives_the_mode_of_the_target_or_of_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let (usual, target) = (folder.path().join("usual"), folder.path().join("target"));
    fs::write(&usual, b"").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    for hidden in [false, true] {
        begun(&target, hidden).publish(false).unwrap();
        assert_eq!(mode(&target), mode(&usual));
        for wanted in [0o400, 0o640, 0o777] {
            fs::set_permissions(&target, PermissionsExt::from_mode(wanted)).unwrap();
            begun(&target, hidden).publish(false).unwrap();
            assert_eq!(mode(&target), wanted);
        }
        fs::remove_file(&target).unwrap();
    }
    assert_eq!(entries(folder.path()), 1);
}

#[test]
fn what_is_not_published_goes_away_and_what_is_stays() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    for hidden in [false, true] {
        drop(begun(&target, hidden));
        assert_eq!(entries(folder.path()), 0);
        let published = begun(&target, hidden);
        published.publish(false).unwrap();
        published.discard();
        drop(published);
        assert_eq!(entries(folder.path()), 1);
        fs::remove_file(&target).unwrap();
    }
}

#[test]
fn a_target_that_came_meanwhile_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    let replacement = begun(&target, false);
    fs::write(&target, b"old").unwrap();
    // What a rename replaces, and a link does not.
    let linked = link(replacement.file.buffered_fd(), &target);
    assert!(linked.is_err_and(|e| e.kind() == ErrorKind::AlreadyExists));
    replacement.publish(false).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"");
    assert_eq!(entries(folder.path()), 1);
}
