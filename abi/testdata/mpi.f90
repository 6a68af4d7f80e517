! Cases of MPI in Fortran, by MPICH's module mpi and its library for Fortran.
program cases
  use mpi
  implicit none
  integer :: me, n, code, next, before, total, got, request, operation, keyval, copy, failures, length, class, failed
  integer :: status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2), requests(2), handler
  integer(kind=MPI_ADDRESS_KIND) :: value, extra
  double precision :: out(3), in(3)
  logical :: there
  character(len=MPI_MAX_ERROR_STRING) :: text
  integer, allocatable :: all(:)
  external add_tenfold, copy_attribute, delete_attribute, on_error
  integer :: copied, deleted, errors
  common /called/ copied, deleted, errors

  copied = 0
  deleted = 0
  errors = 0
  failures = 0
  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, me, code)
  call MPI_Comm_size(MPI_COMM_WORLD, n, code)
  next = mod(me + 1, n)
  before = mod(me + n - 1, n)

  ! Messages, and what their statuses say.
  out = me + 0.5d0
  call MPI_Irecv(in, 3, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, request, code)
  call MPI_Send(out, 3, MPI_DOUBLE_PRECISION, next, 5, MPI_COMM_WORLD, code)
  call MPI_Wait(request, status, code)
  call check(all_equal(in, before + 0.5d0), 'message')
  call check(status(MPI_SOURCE) == before .and. status(MPI_TAG) == 5, 'status')
  call MPI_Get_count(status, MPI_DOUBLE_PRECISION, got, code)
  call check(got == 3 .and. request == MPI_REQUEST_NULL, 'count')
  call MPI_Irecv(got, 1, MPI_INTEGER, before, 1, MPI_COMM_WORLD, requests(1), code)
  call MPI_Isend(me, 1, MPI_INTEGER, next, 1, MPI_COMM_WORLD, requests(2), code)
  call MPI_Waitall(2, requests, statuses, code)
  call check(got == before .and. statuses(MPI_SOURCE, 1) == before, 'waitall')
  call MPI_Sendrecv(me, 1, MPI_INTEGER, next, 2, got, 1, MPI_INTEGER, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE, code)
  call check(got == before, 'sendrecv')
  call MPI_Recv(got, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, status, code)
  call check(status(MPI_SOURCE) == MPI_PROC_NULL, 'no source')

  ! Collectives, in place, and with an operation of the program.
  total = me + 1
  call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
  call check(total == n * (n + 1) / 2, 'allreduce')
  allocate (all(n))
  call MPI_Allgather(me, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, code)
  call check(sum(all) == n * (n - 1) / 2, 'allgather')
  call MPI_Op_create(add_tenfold, .true., operation, code)
  call MPI_Reduce(1, got, 1, MPI_INTEGER, operation, 0, MPI_COMM_WORLD, code)
  if (me == 0) call check(got == 1 + 10 * (n - 1), 'operation')
  call MPI_Op_free(operation, code)

  ! Attributes: MPI's, and the program's with its functions.
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, there, code)
  call check(there .and. value >= 32767, 'tag')
  extra = 9
  call MPI_Comm_create_keyval(copy_attribute, delete_attribute, keyval, extra, code)
  value = 77
  call MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, value, code)
  call MPI_Comm_dup(MPI_COMM_WORLD, copy, code)
  call MPI_Comm_get_attr(copy, keyval, value, there, code)
  call check(there .and. value == 78 .and. copied == 1, 'copied')
  call MPI_Comm_free(copy, code)
  call check(deleted == 1, 'deleted')

  ! Errors.
  call MPI_Comm_create_errhandler(on_error, handler, code)
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler, code)
  call MPI_Send(me, 1, MPI_INTEGER, n, 0, MPI_COMM_WORLD, failed)
  call check(errors == 1, 'handler')
  call MPI_Error_class(failed, class, code)
  call check(class == MPI_ERR_RANK, 'class')
  call MPI_Error_string(class, text, length, code)
  call check(length > 0, 'text')
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL, code)

  if (failures == 0) print '(a)', 'all cases hold'
  call MPI_Finalize(code)
  if (failures /= 0) stop 1
contains
  logical function all_equal(list, want)
    double precision, intent(in) :: list(:), want
    integer :: i
    all_equal = .true.
    do i = 1, size(list)
      if (list(i) < want .or. list(i) > want) all_equal = .false.
    end do
  end function
  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (holds) return
    failures = failures + 1
    print '(a,i0,2a)', 'rank ', me, ': does not hold: ', what
  end subroutine
end program

subroutine add_tenfold(in, inout, n, type)
  integer :: n, type
  integer :: in(n), inout(n)
  inout = max(in, inout) + 10 * min(in, inout)
end subroutine

subroutine copy_attribute(comm, keyval, extra, in, out, flag, code)
  use mpi
  integer :: comm, keyval, code, copied, deleted, errors
  integer(kind=MPI_ADDRESS_KIND) :: extra, in, out
  logical :: flag
  common /called/ copied, deleted, errors
  if (extra == 9) copied = copied + 1
  out = in + 1
  flag = .true.
  code = MPI_SUCCESS
end subroutine

subroutine delete_attribute(comm, keyval, value, extra, code)
  use mpi
  integer :: comm, keyval, code, copied, deleted, errors
  integer(kind=MPI_ADDRESS_KIND) :: value, extra
  common /called/ copied, deleted, errors
  if (extra == 9 .and. value == 78) deleted = deleted + 1
  code = MPI_SUCCESS
end subroutine

subroutine on_error(comm, code)
  integer :: comm, code, copied, deleted, errors
  common /called/ copied, deleted, errors
  errors = errors + 1
end subroutine
