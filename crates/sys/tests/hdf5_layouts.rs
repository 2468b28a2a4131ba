//! The structs that HDF5 shares with its drivers and connectors have the layout of its headers.
//! `hdf5_layouts.txt` is the output of `tests/hdf5/layouts.c`; a test there checks that it is the same
//! with the headers of 1.14.4 and 2.2.0.

use std::mem::offset_of;

use penstock_sys::hdf5::connector::*;
use penstock_sys::hdf5::driver::*;

const OF_THE_HEADERS: &str = include_str!("hdf5_layouts.txt");

/// A line for each struct and each member, in the format of `layouts.c`.
macro_rules! layouts {
    ($($name:ident { $($($part:ident).+),* })*) => {{
        let mut lines = Vec::new();
        $(
            lines.push(format!("{} {}", stringify!($name), size_of::<$name>()));
            $(lines.push(format!(
                "{}.{} {} {}",
                stringify!($name),
                [$(stringify!($part).trim_start_matches("r#")),+].join("."),
                offset_of!($name, $($part).+),
                // SAFETY: never called; it only computes an address and reads nothing.
                size_behind(|whole: *const $name| unsafe { &raw const (*whole).$($part).+ }),
            ));)*
        )*
        lines
    }};
}

fn size_behind<Whole, Member>(_: impl Fn(*const Whole) -> *const Member) -> usize {
    size_of::<Member>()
}

fn of_the_declarations() -> Vec<String> {
    layouts! {
        H5FD_t {
            driver_id, cls, fileno, access_flags, feature_flags, maxaddr, base_addr, threshold,
            alignment, paged_aggr
        }
        H5FD_ctl_memcpy_args_t { dstbuf, dst_off, srcbuf, src_off, len }
        H5FD_class_t {
            version, value, name, maxaddr, fc_degree, terminate, sb_size, sb_encode, sb_decode,
            fapl_size, fapl_get, fapl_copy, fapl_free, dxpl_size, dxpl_copy, dxpl_free, open,
            close, cmp, query, get_type_map, alloc, free, get_eoa, set_eoa, get_eof, get_handle,
            read, write, read_vector, write_vector, read_selection, write_selection, flush,
            truncate, lock, unlock, del, ctl, fl_map
        }
        H5VL_info_class_t { size, copy, cmp, free, to_str, from_str }
        H5VL_wrap_class_t { get_object, get_wrap_ctx, wrap_object, unwrap_object, free_wrap_ctx }
        H5VL_attr_class_t { create, open, read, write, get, specific, optional, close }
        H5VL_dataset_class_t { create, open, read, write, get, specific, optional, close }
        H5VL_datatype_class_t { commit, open, get, specific, optional, close }
        H5VL_file_class_t { create, open, get, specific, optional, close }
        H5VL_group_class_t { create, open, get, specific, optional, close }
        H5VL_link_class_t { create, copy, r#move, get, specific, optional }
        H5VL_object_class_t { open, copy, get, specific, optional }
        H5VL_introspect_class_t { get_conn_cls, get_cap_flags, opt_query }
        H5VL_request_class_t { wait, notify, cancel, specific, optional, free }
        H5VL_blob_class_t { put, get, specific, optional }
        H5VL_token_class_t { cmp, to_str, from_str }
        H5VL_class_t {
            version, value, name, conn_version, cap_flags, initialize, terminate, info_cls,
            wrap_cls, attr_cls, dataset_cls, datatype_cls, file_cls, group_cls, link_cls,
            object_cls, introspect_cls, request_cls, blob_cls, token_cls, optional
        }
        H5VL_optional_args_t { op_type, args }
        H5VL_dataset_specific_args_t { op_type, args }
        H5VL_file_get_args_t { op_type, args }
        H5VL_file_specific_args_t {
            op_type, args, args.flush.obj_type, args.flush.scope, args.is_accessible.filename,
            args.is_accessible.fapl_id, args.is_accessible.accessible, args.del.filename,
            args.del.fapl_id, args.is_equal.obj2, args.is_equal.same_file
        }
        H5VL_group_specific_args_t {
            op_type, args, args.mount.name, args.mount.child_file, args.mount.fmpl_id
        }
        H5VL_link_create_args_t { op_type, args }
        H5VL_request_specific_args_t {
            op_type, args, args.get_exec_time.exec_ts, args.get_exec_time.exec_time
        }
    }
}

#[test]
fn the_declarations_have_the_layout_of_the_headers() {
    let expected: Vec<&str> = OF_THE_HEADERS.lines().collect();
    let declared = of_the_declarations();
    for (declared, expected) in declared.iter().zip(&expected) {
        assert_eq!(declared, expected);
    }
    assert_eq!(declared.len(), expected.len());
}

#[test]
fn the_lists_of_members_are_complete() {
    let (mut name, mut size, mut end) = ("", 0, 0usize);
    for line in OF_THE_HEADERS.lines().chain(["end 0"]) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        match words[0].split('.').count() {
            1 => {
                assert_eq!(size, end.next_multiple_of(8), "end of {name}");
                (name, size, end) = (words[0], number(1), 0);
            }
            2 => {
                let gap = number(1) - end;
                assert!(gap < 8.min(number(2)), "{gap} bytes before {line}");
                end = number(1) + number(2);
            }
            _ => {}
        }
    }
}
