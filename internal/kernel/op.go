package kernel

import "fmt"

// An Op is a reduction operation.
type Op uint8

// The operations, and the types that have them.
const (
	Sum     Op = iota // numbers, complex ones too (MPI_SUM)
	Prod              // numbers, complex ones too (MPI_PROD)
	Min               // numbers with an order (MPI_MIN)
	Max               // numbers with an order (MPI_MAX)
	LAnd              // Bool and integers: not 0 is true, true is 1 (MPI_LAND)
	LOr               // Bool and integers (MPI_LOR)
	LXor              // Bool and integers (MPI_LXOR)
	BAnd              // integers (MPI_BAND)
	BOr               // integers (MPI_BOR)
	BXor              // integers (MPI_BXOR)
	MinLoc            // pairs: the lesser value, of equal ones the lower index (MPI_MINLOC)
	MaxLoc            // pairs: the greater value, of equal ones the lower index (MPI_MAXLOC)
	Replace           // every type: b (MPI_REPLACE)
	NoOp              // every type: a (MPI_NO_OP)
	ops
)

var opNames = [ops]string{"sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "minloc", "maxloc", "replace", "no_op"}

// String is the operation's name in lower case.
func (o Op) String() string {
	if o < ops {
		return opNames[o]
	}
	return fmt.Sprintf("operation %d", uint8(o))
}
