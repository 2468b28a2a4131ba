! The part of penstock.h that a Fortran program needs to read and write files. It is not complete:
! more functions can be added in the same way.
module penstock
  use, intrinsic :: iso_c_binding
  implicit none
  public

  integer(c_int), parameter :: PENSTOCK_OK = 0
  integer(c_int), parameter :: PENSTOCK_PENDING = 1
  integer(c_int), parameter :: PENSTOCK_READ_ONLY = 1
  integer(c_int), parameter :: PENSTOCK_WRITE_ONLY = 2
  integer(c_int), parameter :: PENSTOCK_CREATE = 4
  integer(c_int), parameter :: PENSTOCK_TRUNCATE = 8
  integer(c_int), parameter :: PENSTOCK_OP_READ = 0
  integer(c_int), parameter :: PENSTOCK_OP_WRITE = 1

  type, bind(C) :: penstock_range
    integer(c_int64_t) :: offset = 0
    integer(c_int64_t) :: length = 0
    type(c_ptr) :: buffer = c_null_ptr
  end type

  type, bind(C) :: penstock_options
    integer(c_size_t) :: struct_size = 40
    integer(c_int32_t) :: threads = 0
    integer(c_int32_t) :: queue_depth = 0
    integer(c_int64_t) :: block = 0
    integer(c_int32_t) :: route = 0
    integer(c_int32_t) :: io = 0
    integer(c_int32_t) :: direct = 0
    integer(c_int32_t) :: durable = 0
  end type

  ! The C struct up to `block`: struct_size gives the library its end.
  type, bind(C) :: penstock_report
    integer(c_size_t) :: struct_size = 128
    integer(c_int32_t) :: route = 0
    integer(c_int32_t) :: device = 0
    integer(c_int64_t) :: bytes = 0
    integer(c_int64_t) :: host_buffered = 0
    integer(c_int64_t) :: host_direct = 0
    integer(c_int64_t) :: staged_buffered = 0
    integer(c_int64_t) :: staged_direct = 0
    integer(c_int64_t) :: mapped = 0
    integer(c_int64_t) :: gds_p2p = 0
    integer(c_int64_t) :: gds_nvfs = 0
    integer(c_int64_t) :: gds_posix = 0
    integer(c_int64_t) :: gds_unproven = 0
    integer(c_int64_t) :: elapsed_ns = 0
    integer(c_int64_t) :: io_calls = 0
    integer(c_int64_t) :: copies = 0
    integer(c_int64_t) :: block = 0
  end type

  type, bind(C) :: penstock_error
    integer(c_size_t) :: struct_size = 72
    integer(c_int32_t) :: status = 0
    integer(c_int32_t) :: os_errno = 0
    integer(c_int32_t) :: gpu_code = 0
    integer(c_int32_t) :: reserved = 0
    integer(c_int64_t) :: offset = 0
    integer(c_int64_t) :: length = 0
    type(c_ptr) :: path = c_null_ptr
    type(c_ptr) :: cause = c_null_ptr
    type(c_ptr) :: remedy = c_null_ptr
    type(c_ptr) :: message = c_null_ptr
  end type

  interface
    integer(c_int) function penstock_last_error(error) bind(C)
      import :: c_int, penstock_error
      type(penstock_error), intent(inout) :: error
    end function

    ! `path` must end in c_null_char. `options` may be omitted.
    integer(c_int) function penstock_open(path, flags, options, file) bind(C)
      import :: c_char, c_int, c_ptr, penstock_options
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: flags
      type(penstock_options), intent(in), optional :: options
      type(c_ptr), intent(out) :: file
    end function

    integer(c_int) function penstock_close(file) bind(C)
      import :: c_int, c_ptr
      type(c_ptr), value :: file
    end function

    integer(c_int) function penstock_file_size(file, bytes) bind(C)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: file
      integer(c_int64_t), intent(out) :: bytes
    end function

    ! `buffer` is c_loc of an array, or the c_ptr of device memory. `options` and `report` may be
    ! omitted.
    integer(c_int) function penstock_read(file, buffer, length, offset, options, report) bind(C)
      import :: c_int, c_int64_t, c_ptr, penstock_options, penstock_report
      type(c_ptr), value :: file, buffer
      integer(c_int64_t), value :: length, offset
      type(penstock_options), intent(in), optional :: options
      type(penstock_report), intent(inout), optional :: report
    end function

    integer(c_int) function penstock_write(file, buffer, length, offset, options, report) bind(C)
      import :: c_int, c_int64_t, c_ptr, penstock_options, penstock_report
      type(c_ptr), value :: file, buffer
      integer(c_int64_t), value :: length, offset
      type(penstock_options), intent(in), optional :: options
      type(penstock_report), intent(inout), optional :: report
    end function

    ! The array behind each range needs the ASYNCHRONOUS attribute until the request is finished.
    integer(c_int) function penstock_submit(file, operation, ranges, count, options, stream, &
                                            flags, request) bind(C)
      import :: c_int, c_ptr, c_size_t, penstock_options, penstock_range
      type(c_ptr), value :: file
      integer(c_int), value :: operation
      type(penstock_range), intent(in) :: ranges(*)
      integer(c_size_t), value :: count
      type(penstock_options), intent(in), optional :: options
      type(c_ptr), value :: stream
      integer(c_int), value :: flags
      type(c_ptr), intent(out) :: request
    end function

    ! A negative `timeout_ns` waits for ever.
    integer(c_int) function penstock_request_wait(request, timeout_ns) bind(C)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: request
      integer(c_int64_t), value :: timeout_ns
    end function

    subroutine penstock_request_free(request) bind(C)
      import :: c_ptr
      type(c_ptr), value :: request
    end subroutine
  end interface

contains

  ! Returns the message of the last failure on this thread.
  function penstock_message() result(text)
    character(:), allocatable :: text
    type(penstock_error) :: error
    character(kind=c_char), pointer :: letters(:)
    integer :: length
    interface
      integer(c_size_t) function strlen(string) bind(C)
        import :: c_ptr, c_size_t
        type(c_ptr), value :: string
      end function
    end interface

    text = ""
    if (penstock_last_error(error) /= PENSTOCK_OK) return
    if (.not. c_associated(error%message)) return
    call c_f_pointer(error%message, letters, [strlen(error%message)])
    do length = 1, size(letters)
      text = text // letters(length)
    end do
  end function

end module penstock
