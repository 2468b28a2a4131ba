/* Prints how the headers of HDF5 lay out what drivers and connectors are made of: a line a struct
 * with its size, and a line a member with its offset and size. */
#include <hdf5.h>

#include <H5FDdevelop.h>
#include <H5VLconnector.h>

#include <stddef.h>
#include <stdio.h>

#define STRUCT(type) printf("%s %zu\n", #type, sizeof(type))
#define MEMBER(type, member) \
    printf("%s.%s %zu %zu\n", #type, #member, offsetof(type, member), sizeof(((type *)0)->member))

/* Numbers that crates/sys/src/hdf5/connector.rs repeats. */
_Static_assert(H5VL_ATTR_EXISTS == 2 && H5VL_ATTR_ITER == 3, "H5VL_attr_specific_t");
_Static_assert(H5VL_ATTR_RENAME == 4, "H5VL_attr_specific_t");
_Static_assert(H5VL_LINK_EXISTS == 1 && H5VL_LINK_ITER == 2, "H5VL_link_specific_t");
_Static_assert(H5VL_OBJECT_GET_INFO == 3, "H5VL_object_get_t");
_Static_assert(H5VL_OBJECT_VISIT == 3 && H5VL_OBJECT_FLUSH == 4, "H5VL_object_specific_t");
_Static_assert(H5VL_OBJECT_REFRESH == 5, "H5VL_object_specific_t");
_Static_assert(H5VL_OBJECT_BY_SELF == 0, "H5VL_loc_type_t");
_Static_assert(H5VL_DATASET_GET_SPACE_STATUS == 3, "H5VL_dataset_get_t");
_Static_assert(H5VL_DATASET_GET_STORAGE_SIZE == 4, "H5VL_dataset_get_t");
_Static_assert(H5VL_DATASET_SET_EXTENT == 0 && H5VL_DATASET_FLUSH == 1, "H5VL_dataset_specific_t");
_Static_assert(H5I_FILE == 1 && H5I_GROUP == 2 && H5I_DATASET == 5 && H5I_ATTR == 7, "H5I_type_t");
_Static_assert(H5VL_REQUEST_STATUS_FAIL == 2, "H5VL_request_status_t");
_Static_assert(H5VL_REQUEST_STATUS_CANCELED == 4, "H5VL_request_status_t");
_Static_assert(H5O_INFO_BASIC == 1, "H5Opublic.h");
_Static_assert(H5VL_FILE_REOPEN == 1 && H5VL_FILE_IS_ACCESSIBLE == 2, "H5VL_file_specific_t");
_Static_assert(H5VL_FILE_DELETE == 3, "H5VL_file_specific_t");
_Static_assert(H5VL_GROUP_MOUNT == 0, "H5VL_group_specific_t");
_Static_assert(H5VL_LINK_CREATE_HARD == 0, "H5VL_link_create_t");
_Static_assert(H5VL_GET_CONN_LVL_CURR == 0, "H5VL_get_conn_lvl_t");

int main(void) {
    STRUCT(H5FD_t);
    MEMBER(H5FD_t, driver_id);
    MEMBER(H5FD_t, cls);
    MEMBER(H5FD_t, fileno);
    MEMBER(H5FD_t, access_flags);
    MEMBER(H5FD_t, feature_flags);
    MEMBER(H5FD_t, maxaddr);
    MEMBER(H5FD_t, base_addr);
    MEMBER(H5FD_t, threshold);
    MEMBER(H5FD_t, alignment);
    MEMBER(H5FD_t, paged_aggr);

    STRUCT(H5FD_ctl_memcpy_args_t);
    MEMBER(H5FD_ctl_memcpy_args_t, dstbuf);
    MEMBER(H5FD_ctl_memcpy_args_t, dst_off);
    MEMBER(H5FD_ctl_memcpy_args_t, srcbuf);
    MEMBER(H5FD_ctl_memcpy_args_t, src_off);
    MEMBER(H5FD_ctl_memcpy_args_t, len);

    STRUCT(H5FD_class_t);
    MEMBER(H5FD_class_t, version);
    MEMBER(H5FD_class_t, value);
    MEMBER(H5FD_class_t, name);
    MEMBER(H5FD_class_t, maxaddr);
    MEMBER(H5FD_class_t, fc_degree);
    MEMBER(H5FD_class_t, terminate);
    MEMBER(H5FD_class_t, sb_size);
    MEMBER(H5FD_class_t, sb_encode);
    MEMBER(H5FD_class_t, sb_decode);
    MEMBER(H5FD_class_t, fapl_size);
    MEMBER(H5FD_class_t, fapl_get);
    MEMBER(H5FD_class_t, fapl_copy);
    MEMBER(H5FD_class_t, fapl_free);
    MEMBER(H5FD_class_t, dxpl_size);
    MEMBER(H5FD_class_t, dxpl_copy);
    MEMBER(H5FD_class_t, dxpl_free);
    MEMBER(H5FD_class_t, open);
    MEMBER(H5FD_class_t, close);
    MEMBER(H5FD_class_t, cmp);
    MEMBER(H5FD_class_t, query);
    MEMBER(H5FD_class_t, get_type_map);
    MEMBER(H5FD_class_t, alloc);
    MEMBER(H5FD_class_t, free);
    MEMBER(H5FD_class_t, get_eoa);
    MEMBER(H5FD_class_t, set_eoa);
    MEMBER(H5FD_class_t, get_eof);
    MEMBER(H5FD_class_t, get_handle);
    MEMBER(H5FD_class_t, read);
    MEMBER(H5FD_class_t, write);
    MEMBER(H5FD_class_t, read_vector);
    MEMBER(H5FD_class_t, write_vector);
    MEMBER(H5FD_class_t, read_selection);
    MEMBER(H5FD_class_t, write_selection);
    MEMBER(H5FD_class_t, flush);
    MEMBER(H5FD_class_t, truncate);
    MEMBER(H5FD_class_t, lock);
    MEMBER(H5FD_class_t, unlock);
    MEMBER(H5FD_class_t, del);
    MEMBER(H5FD_class_t, ctl);
    MEMBER(H5FD_class_t, fl_map);

    STRUCT(H5VL_info_class_t);
    MEMBER(H5VL_info_class_t, size);
    MEMBER(H5VL_info_class_t, copy);
    MEMBER(H5VL_info_class_t, cmp);
    MEMBER(H5VL_info_class_t, free);
    MEMBER(H5VL_info_class_t, to_str);
    MEMBER(H5VL_info_class_t, from_str);

    STRUCT(H5VL_wrap_class_t);
    MEMBER(H5VL_wrap_class_t, get_object);
    MEMBER(H5VL_wrap_class_t, get_wrap_ctx);
    MEMBER(H5VL_wrap_class_t, wrap_object);
    MEMBER(H5VL_wrap_class_t, unwrap_object);
    MEMBER(H5VL_wrap_class_t, free_wrap_ctx);

    STRUCT(H5VL_attr_class_t);
    MEMBER(H5VL_attr_class_t, create);
    MEMBER(H5VL_attr_class_t, open);
    MEMBER(H5VL_attr_class_t, read);
    MEMBER(H5VL_attr_class_t, write);
    MEMBER(H5VL_attr_class_t, get);
    MEMBER(H5VL_attr_class_t, specific);
    MEMBER(H5VL_attr_class_t, optional);
    MEMBER(H5VL_attr_class_t, close);

    STRUCT(H5VL_dataset_class_t);
    MEMBER(H5VL_dataset_class_t, create);
    MEMBER(H5VL_dataset_class_t, open);
    MEMBER(H5VL_dataset_class_t, read);
    MEMBER(H5VL_dataset_class_t, write);
    MEMBER(H5VL_dataset_class_t, get);
    MEMBER(H5VL_dataset_class_t, specific);
    MEMBER(H5VL_dataset_class_t, optional);
    MEMBER(H5VL_dataset_class_t, close);

    STRUCT(H5VL_datatype_class_t);
    MEMBER(H5VL_datatype_class_t, commit);
    MEMBER(H5VL_datatype_class_t, open);
    MEMBER(H5VL_datatype_class_t, get);
    MEMBER(H5VL_datatype_class_t, specific);
    MEMBER(H5VL_datatype_class_t, optional);
    MEMBER(H5VL_datatype_class_t, close);

    STRUCT(H5VL_file_class_t);
    MEMBER(H5VL_file_class_t, create);
    MEMBER(H5VL_file_class_t, open);
    MEMBER(H5VL_file_class_t, get);
    MEMBER(H5VL_file_class_t, specific);
    MEMBER(H5VL_file_class_t, optional);
    MEMBER(H5VL_file_class_t, close);

    STRUCT(H5VL_group_class_t);
    MEMBER(H5VL_group_class_t, create);
    MEMBER(H5VL_group_class_t, open);
    MEMBER(H5VL_group_class_t, get);
    MEMBER(H5VL_group_class_t, specific);
    MEMBER(H5VL_group_class_t, optional);
    MEMBER(H5VL_group_class_t, close);

    STRUCT(H5VL_link_class_t);
    MEMBER(H5VL_link_class_t, create);
    MEMBER(H5VL_link_class_t, copy);
    MEMBER(H5VL_link_class_t, move);
    MEMBER(H5VL_link_class_t, get);
    MEMBER(H5VL_link_class_t, specific);
    MEMBER(H5VL_link_class_t, optional);

    STRUCT(H5VL_object_class_t);
    MEMBER(H5VL_object_class_t, open);
    MEMBER(H5VL_object_class_t, copy);
    MEMBER(H5VL_object_class_t, get);
    MEMBER(H5VL_object_class_t, specific);
    MEMBER(H5VL_object_class_t, optional);

    STRUCT(H5VL_introspect_class_t);
    MEMBER(H5VL_introspect_class_t, get_conn_cls);
    MEMBER(H5VL_introspect_class_t, get_cap_flags);
    MEMBER(H5VL_introspect_class_t, opt_query);

    STRUCT(H5VL_request_class_t);
    MEMBER(H5VL_request_class_t, wait);
    MEMBER(H5VL_request_class_t, notify);
    MEMBER(H5VL_request_class_t, cancel);
    MEMBER(H5VL_request_class_t, specific);
    MEMBER(H5VL_request_class_t, optional);
    MEMBER(H5VL_request_class_t, free);

    STRUCT(H5VL_blob_class_t);
    MEMBER(H5VL_blob_class_t, put);
    MEMBER(H5VL_blob_class_t, get);
    MEMBER(H5VL_blob_class_t, specific);
    MEMBER(H5VL_blob_class_t, optional);

    STRUCT(H5VL_token_class_t);
    MEMBER(H5VL_token_class_t, cmp);
    MEMBER(H5VL_token_class_t, to_str);
    MEMBER(H5VL_token_class_t, from_str);

    STRUCT(H5VL_class_t);
    MEMBER(H5VL_class_t, version);
    MEMBER(H5VL_class_t, value);
    MEMBER(H5VL_class_t, name);
    MEMBER(H5VL_class_t, conn_version);
    MEMBER(H5VL_class_t, cap_flags);
    MEMBER(H5VL_class_t, initialize);
    MEMBER(H5VL_class_t, terminate);
    MEMBER(H5VL_class_t, info_cls);
    MEMBER(H5VL_class_t, wrap_cls);
    MEMBER(H5VL_class_t, attr_cls);
    MEMBER(H5VL_class_t, dataset_cls);
    MEMBER(H5VL_class_t, datatype_cls);
    MEMBER(H5VL_class_t, file_cls);
    MEMBER(H5VL_class_t, group_cls);
    MEMBER(H5VL_class_t, link_cls);
    MEMBER(H5VL_class_t, object_cls);
    MEMBER(H5VL_class_t, introspect_cls);
    MEMBER(H5VL_class_t, request_cls);
    MEMBER(H5VL_class_t, blob_cls);
    MEMBER(H5VL_class_t, token_cls);
    MEMBER(H5VL_class_t, optional);

    STRUCT(H5VL_optional_args_t);
    MEMBER(H5VL_optional_args_t, op_type);
    MEMBER(H5VL_optional_args_t, args);

    STRUCT(H5VL_dataset_specific_args_t);
    MEMBER(H5VL_dataset_specific_args_t, op_type);
    MEMBER(H5VL_dataset_specific_args_t, args);

    STRUCT(H5VL_file_get_args_t);
    MEMBER(H5VL_file_get_args_t, op_type);
    MEMBER(H5VL_file_get_args_t, args);

    STRUCT(H5VL_file_specific_args_t);
    MEMBER(H5VL_file_specific_args_t, op_type);
    MEMBER(H5VL_file_specific_args_t, args);
    MEMBER(H5VL_file_specific_args_t, args.flush.obj_type);
    MEMBER(H5VL_file_specific_args_t, args.flush.scope);
    MEMBER(H5VL_file_specific_args_t, args.is_accessible.filename);
    MEMBER(H5VL_file_specific_args_t, args.is_accessible.fapl_id);
    MEMBER(H5VL_file_specific_args_t, args.is_accessible.accessible);
    MEMBER(H5VL_file_specific_args_t, args.del.filename);
    MEMBER(H5VL_file_specific_args_t, args.del.fapl_id);
    MEMBER(H5VL_file_specific_args_t, args.is_equal.obj2);
    MEMBER(H5VL_file_specific_args_t, args.is_equal.same_file);

    STRUCT(H5VL_group_specific_args_t);
    MEMBER(H5VL_group_specific_args_t, op_type);
    MEMBER(H5VL_group_specific_args_t, args);
    MEMBER(H5VL_group_specific_args_t, args.mount.name);
    MEMBER(H5VL_group_specific_args_t, args.mount.child_file);
    MEMBER(H5VL_group_specific_args_t, args.mount.fmpl_id);

    STRUCT(H5VL_link_create_args_t);
    MEMBER(H5VL_link_create_args_t, op_type);
    MEMBER(H5VL_link_create_args_t, args);

    STRUCT(H5VL_request_specific_args_t);
    MEMBER(H5VL_request_specific_args_t, op_type);
    MEMBER(H5VL_request_specific_args_t, args);
    MEMBER(H5VL_request_specific_args_t, args.get_exec_time.exec_ts);
    MEMBER(H5VL_request_specific_args_t, args.get_exec_time.exec_time);
    return 0;
}
