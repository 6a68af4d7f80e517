! Cases of MPI in Fortran, by MPICH's module mpi_f08 and its library for Fortran.
program cases
  use mpi_f08
  implicit none
  integer :: me, n, next, before, got, total, failures
  type(MPI_Status) :: status
  type(MPI_Request) :: request
  type(MPI_Comm) :: half, ring
  type(MPI_Datatype) :: row
  type(MPI_Win) :: window
  integer(kind=MPI_ADDRESS_KIND) :: at, lower, extent
  integer :: matrix(4, 4), line(4), shared(2)

  failures = 0
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, me)
  call MPI_Comm_size(MPI_COMM_WORLD, n)
  next = mod(me + 1, n)
  before = mod(me + n - 1, n)

  call MPI_Irecv(got, 1, MPI_INTEGER, before, MPI_ANY_TAG, MPI_COMM_WORLD, request)
  call MPI_Send(me, 1, MPI_INTEGER, next, 3, MPI_COMM_WORLD)
  call MPI_Wait(request, status)
  call check(got == before .and. status%MPI_SOURCE == before .and. status%MPI_TAG == 3, 'message')
  call MPI_Sendrecv(me, 1, MPI_INTEGER, next, 2, got, 1, MPI_INTEGER, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  call check(got == before, 'sendrecv')
  total = me
  call MPI_Allreduce(MPI_IN_PLACE, total, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD)
  call check(total == n - 1, 'allreduce')
  call MPI_Comm_split(MPI_COMM_WORLD, me, 0, half)
  call MPI_Comm_size(half, got)
  call check(got == 1 .and. half /= MPI_COMM_WORLD, 'split')
  call MPI_Comm_free(half)
  call check(half == MPI_COMM_NULL, 'free')

  call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [me], [1], [next], MPI_UNWEIGHTED, MPI_INFO_NULL, .false., ring)
  got = -1
  call MPI_Neighbor_allgather(me, 1, MPI_INTEGER, got, 1, MPI_INTEGER, ring)
  call check(got == before, 'graph')
  call MPI_Comm_free(ring)

  ! A row of a matrix, which has gaps.
  call MPI_Type_vector(4, 1, 4, MPI_INTEGER, row)
  call MPI_Type_commit(row)
  call MPI_Type_get_extent(row, lower, extent)
  call check(lower == 0 .and. extent == 4 * 13, 'extent')
  matrix = 0
  matrix(2, :) = [1, 2, 3, me]
  call MPI_Sendrecv(matrix(2, 1), 1, row, next, 4, line, 4, MPI_INTEGER, before, 4, MPI_COMM_WORLD, status)
  call check(line(3) == 3 .and. line(4) == before, 'row')
  call MPI_Type_free(row)

  shared = -1
  at = 8
  call MPI_Win_create(shared, at, 4, MPI_INFO_NULL, MPI_COMM_WORLD, window)
  call MPI_Win_fence(0, window)
  at = 1
  call MPI_Put(me, 1, MPI_INTEGER, next, at, 1, MPI_INTEGER, window)
  call MPI_Win_fence(0, window)
  call check(shared(1) == -1 .and. shared(2) == before, 'window')
  call MPI_Win_free(window)

  if (failures == 0) print '(a)', 'all cases hold'
  call MPI_Finalize()
  if (failures /= 0) stop 1
contains
  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (holds) return
    failures = failures + 1
    print '(a,i0,2a)', 'rank ', me, ': does not hold: ', what
  end subroutine
end program
