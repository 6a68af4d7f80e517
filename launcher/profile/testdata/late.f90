! Rank 1 comes late to a reduction.
program late
  use MODULE
  implicit none
  integer :: ierr, rank, i
  double precision :: own, total
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  own = 1
  do i = 1, 2
    if (rank == 1) call sleep(1)
    call MPI_Allreduce(own, total, 1, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  end do
  call MPI_Finalize(ierr)
end program
