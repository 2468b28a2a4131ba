use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// With a hidden name, or as [`Replacement::begin`] chooses.
fn begun(target: &Path, hidden: bool) -> Replacement {
    let options = Options::default();
    if hidden {
        Replacement::of(ResolvedPath::of(target).unwrap(), target, None, options).unwrap()
    } else {
        Replacement::begin(target, options).unwrap()
    }
}

#[test]
fn new_contents_have_no_name_before_they_are_published() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    if unnamed(ResolvedPath::of(&target).unwrap().folder())
        .unwrap()
        .is_none()
    {
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
fn a_second_publish_leaves_one_name() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    for (hidden, is_new) in [(false, true), (false, false), (true, true), (true, false)] {
        if is_new {
            let _ = fs::remove_file(&target);
        }
        let replacement = begun(&target, hidden);
        replacement.publish(false).unwrap();
        replacement.publish(true).unwrap();
        assert_eq!(entries(folder.path()), 1);
        drop(replacement);
        assert!(target.exists());
    }
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
        for wanted in [0o600, 0o640, 0o777] {
            fs::set_permissions(&target, PermissionsExt::from_mode(wanted)).unwrap();
            begun(&target, hidden).publish(false).unwrap();
            assert_eq!(mode(&target), wanted);
        }
        fs::remove_file(&target).unwrap();
    }
    assert_eq!(entries(folder.path()), 1);
}

#[test]
fn an_unpublished_file_is_removed_and_a_published_one_stays() {
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
fn a_target_that_was_created_meanwhile_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("target");
    let replacement = begun(&target, false);
    fs::write(&target, b"old").unwrap();
    // What a rename replaces, and a link does not.
    let path = &replacement.path;
    let linked = calls::link(replacement.file.buffered_fd(), path.folder(), &path.name);
    assert!(linked.is_err_and(|e| e.kind() == ErrorKind::AlreadyExists));
    replacement.publish(false).unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"");
    assert_eq!(entries(folder.path()), 1);
}

#[test]
fn a_file_is_published_in_its_folder_after_the_folder_was_renamed() {
    let sandbox = tempfile::tempdir().unwrap();
    let (folder, moved) = (sandbox.path().join("folder"), sandbox.path().join("moved"));
    for hidden in [false, true] {
        fs::create_dir(&folder).unwrap();
        let replacement = begun(&folder.join("target"), hidden);
        fs::rename(&folder, &moved).unwrap();
        fs::create_dir(&folder).unwrap();
        replacement.publish(true).unwrap();
        assert_eq!((entries(&folder), entries(&moved)), (0, 1));
        fs::remove_dir(&folder).unwrap();
        fs::remove_dir_all(&moved).unwrap();
    }
}

#[test]
fn a_link_that_was_created_meanwhile_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (target, other) = (folder.path().join("target"), folder.path().join("other"));
    fs::write(&other, b"other").unwrap();
    for hidden in [false, true] {
        let replacement = begun(&target, hidden);
        std::os::unix::fs::symlink(&other, &target).unwrap();
        let error = replacement.publish(false).unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Invalid, "{error}");
        drop(replacement);
        fs::remove_file(&target).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"other");
        assert_eq!(entries(folder.path()), 1);
    }
}
