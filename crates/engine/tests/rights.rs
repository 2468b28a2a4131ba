//! Which rights a saved file has, and who may save onto which file.

mod common;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use common::process::run_case;
use common::{Place, Sandbox, options, plain};
use penstock_engine::error::{Kind, Result};
use penstock_engine::request::save;

/// A user and a group that the tests are not.
const OTHER: u32 = 65534;
const ACL: &str = "system.posix_acl_access";

fn save_to(target: &Path, content: &[u8]) -> Result<()> {
    let memory = Place::Host.memory(content.len(), 0);
    memory.fill(content);
    // SAFETY: the buffer outlives the call.
    let done = unsafe { save(target, memory.address(), content.len() as u64, options("")) };
    done.map(drop)
}

fn is_root() -> bool {
    // SAFETY: reads a number of this process.
    let is = unsafe { libc::geteuid() } == 0;
    if !is {
        eprintln!("SKIPPED: only root may give files to others");
    }
    is
}

/// Makes this process that of another user, of its own group and of `more`.
fn become_other(more: &[u32]) {
    // SAFETY: changes this process only, which runs one case.
    unsafe {
        assert_eq!(libc::setgroups(more.len(), more.as_ptr()), 0);
        assert_eq!(libc::setgid(OTHER), 0);
        assert_eq!(libc::setuid(OTHER), 0);
    }
}

fn give(path: &Path, owner: u32, group: u32, mode: u32) {
    chown(path, Some(owner), Some(group)).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Owner, group and mode.
fn rights(path: &Path) -> (u32, u32, u32) {
    let found = std::fs::metadata(path).unwrap();
    (found.uid(), found.gid(), found.mode() & 0o7777)
}

fn text(text: impl AsRef<std::ffi::OsStr>) -> CString {
    CString::new(text.as_ref().as_bytes()).unwrap()
}

/// Returns false if the file system has no such attributes.
fn set_attribute(path: &Path, name: &str, value: &[u8]) -> bool {
    let (at, pointer) = (text(path), value.as_ptr().cast());
    // SAFETY: the strings are C strings, and the value is valid for its length.
    let status =
        unsafe { libc::setxattr(at.as_ptr(), text(name).as_ptr(), pointer, value.len(), 0) };
    if status != 0 {
        let error = std::io::Error::last_os_error();
        assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
        eprintln!("SKIPPED: the file system of the tests does not have {name}");
    }
    status == 0
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 1000];
    let (at, pointer) = (text(path), value.as_mut_ptr().cast());
    // SAFETY: the strings are C strings, and the buffer is valid for its length.
    let length = unsafe { libc::getxattr(at.as_ptr(), text(name).as_ptr(), pointer, value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}

const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP: u16 = 4;
const MASK: u16 = 16;
const OTHERS: u16 = 32;

/// An ACL as its attribute: tags, permissions, and the number of a user.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// User 1234 may read and write; the group has `group`, and all others have `others`.
fn shared_with_one(group: u16, others: u16) -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    acl(&[
        (OWNER, 6, NONE),
        (USER, 6, 1234),
        (GROUP, group, NONE),
        (MASK, 6, NONE),
        (OTHERS, others, NONE),
    ])
}

#[test]
fn a_save_keeps_owner_and_group() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    for mode in [0o600, 0o664, 0o440] {
        std::fs::write(&target, b"old").unwrap();
        give(&target, OTHER, OTHER - 1, mode);
        save_to(&target, b"new").unwrap();
        assert_eq!(rights(&target), (OTHER, OTHER - 1, mode));
        assert_eq!(plain(&target), b"new");
    }
}

#[test]
fn a_save_clears_setuid_and_setgid() {
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    std::fs::write(&target, b"old").unwrap();
    for mode in [0o4755, 0o2755, 0o6777] {
        std::fs::set_permissions(&target, PermissionsExt::from_mode(mode)).unwrap();
        save_to(&target, b"new").unwrap();
        assert_eq!(rights(&target).2, mode & 0o777);
    }
}

#[test]
fn a_save_onto_a_setuid_file_of_another_user_leaves_none_of_root() {
    if !is_root() {
        return;
    }
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    std::fs::write(&target, b"old").unwrap();
    give(&target, OTHER, OTHER, 0o4755);
    save_to(&target, b"new").unwrap();
    assert_eq!(rights(&target), (OTHER, OTHER, 0o755));
}

#[test]
fn a_save_keeps_the_acl_and_the_attributes_of_users() {
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    std::fs::write(&target, b"old").unwrap();
    let wanted = shared_with_one(0, 0);
    if !set_attribute(&target, ACL, &wanted) || !set_attribute(&target, "user.note", b"kept") {
        return;
    }
    save_to(&target, b"new").unwrap();
    assert_eq!(attribute(&target, ACL), Some(wanted));
    assert_eq!(
        attribute(&target, "user.note").as_deref(),
        Some(&b"kept"[..])
    );
}

#[test]
fn a_save_gives_no_acl_of_the_folder_to_a_file_that_had_none() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("folder");
    std::fs::create_dir(&folder).unwrap();
    let (target, new) = (folder.join("saved.bin"), folder.join("new.bin"));
    std::fs::write(&target, b"old").unwrap();
    std::fs::set_permissions(&target, PermissionsExt::from_mode(0o640)).unwrap();
    if !set_attribute(&folder, "system.posix_acl_default", &shared_with_one(4, 4)) {
        return;
    }
    save_to(&target, b"new").unwrap();
    assert_eq!(attribute(&target, ACL), None);
    assert_eq!(rights(&target).2, 0o640);
    save_to(&new, b"new").unwrap();
    let usual = folder.join("usual.bin");
    std::fs::write(&usual, b"").unwrap();
    assert_eq!(attribute(&new, ACL), attribute(&usual, ACL));
    assert_eq!(rights(&new), rights(&usual));
}

#[test]
#[ignore = "a case"]
fn saves_of_another_user() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("folder");
    std::fs::create_dir(&folder).unwrap();
    give(&folder, OTHER, OTHER, 0o777);
    give(folder.parent().unwrap(), 0, 0, 0o755);
    let made = |name: &str, owner, group, mode| {
        let path = folder.join(name);
        std::fs::write(&path, b"old").unwrap();
        give(&path, owner, group, mode);
        path
    };
    let read_only = made("read_only", OTHER, OTHER, 0o444);
    let of_root = made("of_root", 0, 0, 0o644);
    let open_to_all = made("open_to_all", 0, 0, 0o4676);
    let of_group = made("of_group", 0, 1000, 0o664);
    let denied_to_group = made("denied_to_group", 0, 1, 0o607);
    let with_acl = made("with_acl", 0, 0, 0o666);
    let has_acl = set_attribute(&with_acl, ACL, &shared_with_one(4, 6));
    become_other(&[1000]);

    for path in [&read_only, &of_root] {
        let error = save_to(path, b"new").unwrap_err();
        assert_eq!(error.kind(), Kind::Permission, "{error}");
        assert_eq!(error.path(), Some(&**path));
        assert_eq!(plain(path), b"old");
    }
    // Neither owner nor group can be kept: both classes get what both had.
    save_to(&open_to_all, b"new").unwrap();
    assert_eq!(rights(&open_to_all), (OTHER, OTHER, 0o666));
    save_to(&denied_to_group, b"new").unwrap();
    assert_eq!(rights(&denied_to_group), (OTHER, OTHER, 0o600));
    // A group of which the process is a member can be kept.
    save_to(&of_group, b"new").unwrap();
    assert_eq!(rights(&of_group), (OTHER, 1000, 0o664));
    if has_acl {
        save_to(&with_acl, b"new").unwrap();
        assert_eq!(attribute(&with_acl, ACL), Some(shared_with_one(4, 4)));
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 6);
}

#[test]
fn a_save_of_another_user_is_refused_or_widens_nothing() {
    if is_root() {
        run_case("saves_of_another_user", &[]);
    }
}

#[test]
fn a_save_follows_no_link_of_another_user_in_a_sticky_folder() {
    let is_protected = std::fs::read("/proc/sys/fs/protected_symlinks");
    if !is_root() || !is_protected.is_ok_and(|text| text.starts_with(b"1")) {
        eprintln!("SKIPPED: fs.protected_symlinks is not set");
        return;
    }
    let sandbox = Sandbox::new();
    let (folder, victim) = (sandbox.path("sticky"), sandbox.path("victim"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o1777)).unwrap();
    std::fs::write(&victim, b"old").unwrap();
    let links = [("existing", &victim), ("dangling", &sandbox.path("none"))];
    for (name, target) in links {
        let link = folder.join(name);
        symlink(target, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(OTHER), Some(OTHER)).unwrap();
        let error = save_to(&link, b"new").unwrap_err();
        assert_eq!(error.kind(), Kind::Permission, "{name}: {error}");
        assert_eq!(error.path(), Some(&*link));
    }
    assert_eq!(plain(&victim), b"old");
    assert!(!sandbox.path("none").exists());
    // A folder on the way may be such a link, as for open(2).
    let way = folder.join("way");
    symlink(sandbox.path("victim").parent().unwrap(), &way).unwrap();
    std::os::unix::fs::lchown(&way, Some(OTHER), Some(OTHER)).unwrap();
    save_to(&way.join("victim"), b"new").unwrap();
    assert_eq!(plain(&victim), b"new");
}

#[test]
fn a_save_onto_links_that_lead_to_each_other_is_an_error() {
    let sandbox = Sandbox::new();
    let link = sandbox.path("loop");
    symlink("loop", &link).unwrap();
    let error = save_to(&link, b"new").unwrap_err();
    assert_eq!(error.os_errno(), libc::ELOOP, "{error}");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn a_path_or_link_that_ends_as_that_of_a_folder_makes_no_file() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("folder");
    std::fs::create_dir(&folder).unwrap();
    for end in ["/", "//", "/.", "/./", "/.."] {
        let error = save_to(&folder.join(format!("new{end}")), b"new").unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{end}: {error}");
        let link = folder.join("link");
        symlink(format!("target{end}"), &link).unwrap();
        let error = save_to(&link, b"new").unwrap_err();
        assert_eq!(error.os_errno(), libc::EISDIR, "{end}: {error}");
        std::fs::remove_file(&link).unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{end}");
    }
}

/// Makes the kernel answer faccessat2(2) with EPERM, as the seccomp profile of a container may.
fn deny_faccessat2() {
    let step = |code: u32, jump_false, k| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_false,
        k,
    };
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0), // the number of the call
        step(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_faccessat2 as u32,
        ),
        step(answer, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(answer, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program and its steps outlive the call, which copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let filter = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, filter, &program), 0);
    }
}

#[test]
#[ignore = "a case"]
fn save_without_faccessat2() {
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    std::fs::write(&target, b"old").unwrap();
    deny_faccessat2();
    save_to(&target, b"new").unwrap();
    assert_eq!(plain(&target), b"new");
}

#[test]
fn a_save_needs_no_faccessat2() {
    run_case("save_without_faccessat2", &[]);
}

#[test]
fn another_name_of_the_file_keeps_the_old_contents() {
    let sandbox = Sandbox::new();
    let (target, other) = (sandbox.path("saved.bin"), sandbox.path("other.bin"));
    std::fs::write(&target, b"old").unwrap();
    std::fs::hard_link(&target, &other).unwrap();
    save_to(&target, b"new").unwrap();
    assert_eq!(
        (plain(&target), plain(&other)),
        (b"new".to_vec(), b"old".to_vec())
    );
}

#[test]
fn a_save_by_an_open_descriptor_replaces_its_file() {
    let sandbox = Sandbox::new();
    let target = sandbox.path("saved.bin");
    let opened = std::fs::File::create(&target).unwrap();
    let entry = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened));
    save_to(Path::new(&entry), b"new").unwrap();
    assert_eq!(plain(&target), b"new");
    std::fs::remove_file(&target).unwrap();
    let error = save_to(Path::new(&entry), b"new").unwrap_err();
    assert_eq!(plain_or_none(&target), None, "{error}");
}

fn plain_or_none(path: &Path) -> Option<Vec<u8>> {
    path.exists().then(|| plain(path))
}
