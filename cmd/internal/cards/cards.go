// Package cards has the ranks of an application tell each other what each of them is.
package cards

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/pmi"
)

// Gather is every rank's card, by rank. All ranks call it; it blocks until they have. command
// names the program in the error about a rank that runs another one.
func Gather[Card any](ctx context.Context, client *pmi.Client, command string, own Card) ([]Card, error) {
	b, err := pack.Marshal(own)
	if err != nil {
		return nil, err
	}
	packed, err := client.AllGather(ctx, b)
	if err != nil {
		return nil, err
	}
	all := make([]Card, len(packed))
	for i, b := range packed {
		if err := pack.Unmarshal(b, &all[i]); err != nil {
			return nil, fmt.Errorf("rank %d is no %s of this version: %w", i, command, err)
		}
	}
	return all, nil
}
