! Writes an array of doubles to a new file and reads it back, first in one call, and then by a request
! that runs while the program does something else.
!
!     write_and_read NEW_FILE
program write_and_read
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  use penstock
  implicit none

  integer, parameter :: count = 1000000
  integer(c_int64_t), parameter :: bytes = 8_c_int64_t * count
  real(c_double), allocatable, target, asynchronous :: field(:), copy(:)
  character(kind=c_char, len=4096) :: path
  type(c_ptr) :: file, request
  type(penstock_report) :: report
  logical :: exists
  integer :: i

  if (command_argument_count() /= 1) then
    write (error_unit, "(a)") "usage: write_and_read NEW_FILE"
    stop 2, quiet=.true.
  end if
  call get_command_argument(1, path)
  inquire (file=trim(path), exist=exists)
  if (exists) then
    write (error_unit, "(2a)") "write_and_read: there is already a file ", trim(path)
    stop 1, quiet=.true.
  end if
  allocate (field(count), copy(count))
  field = [(0.5d0 * i, i = 1, count)]

  call check(penstock_open(trim(path) // c_null_char, &
                           PENSTOCK_WRITE_ONLY + PENSTOCK_CREATE + PENSTOCK_TRUNCATE, file=file))
  call check(penstock_write(file, c_loc(field), bytes, 0_c_int64_t))
  call check(penstock_close(file))

  call check(penstock_open(trim(path) // c_null_char, PENSTOCK_READ_ONLY, file=file))
  call check(penstock_read(file, c_loc(copy), bytes, 0_c_int64_t, report=report))
  call compare("read")
  if (report%bytes /= bytes) error stop "the report has another length"

  copy = 0
  call check(penstock_submit(file, PENSTOCK_OP_READ, &
                             [penstock_range(0_c_int64_t, bytes, c_loc(copy))], 1_c_size_t, &
                             stream=c_null_ptr, flags=0_c_int, request=request))
  print "(a, f0.1)", "while the request is running, the field sums to ", sum(field)
  call check(penstock_request_wait(request, -1_c_int64_t))
  call penstock_request_free(request)
  call compare("request")
  call check(penstock_close(file))

contains

  subroutine check(status)
    integer(c_int), intent(in) :: status
    if (status /= PENSTOCK_OK) then
      write (error_unit, "(2a)") "write_and_read: ", penstock_message()
      stop 1, quiet=.true.
    end if
  end subroutine

  subroutine compare(what)
    character(*), intent(in) :: what
    if (any(field /= copy)) error stop "the bytes that came back differ"
    print "(a, a, i0, a)", what, ": ", bytes, " bytes, equal"
  end subroutine

end program write_and_read
