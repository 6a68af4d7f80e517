package rank

// GetStatus is Test that does not change the request (MPI_Request_get_status):
// Wait and Test report the same completion afterwards.
func (q Request) GetStatus() (st Status, done bool, err error) {
	return q.test("request_get_status", true)
}

// A told is an operation that is over, and whose outcome was taken before its request
// is done with.
type told struct {
	pending
	request *request
	status  Status
	err     error
}

// tell takes the outcome of a request that is over, once.
func (r *request) tell() *told {
	if t, before := r.what.(*told); before {
		return t
	}
	t := &told{pending: r.what, request: r}
	t.err = r.what.finish(&t.status)
	r.what = t
	return t
}

func (t *told) done() bool { return true }

func (t *told) finish(st *Status) error {
	*st = t.status
	t.request.what = t.pending // of a persistent one, for another start
	return t.err
}

func (t *told) cancel() {}
