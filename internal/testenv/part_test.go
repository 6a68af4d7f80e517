package testenv

import (
	"strings"
	"sync"
	"testing"
)

func TestPartRunsWhereItIsChosen(t *testing.T) {
	for chosen, runs := range map[string]bool{"": false, Hosts: false, Peers: true, Hosts + "," + Peers: true, "all": true} {
		t.Setenv(partsVariable, chosen)
		var r recorder
		ran := false
		var ended sync.WaitGroup
		ended.Go(func() { Part(&r, Peers); ran = true })
		ended.Wait()
		if ran != runs || !runs && !strings.Contains(r.skipped, "make test-peers") {
			t.Errorf("%s=%q: it runs: %v, and says %q; want %v", partsVariable, chosen, ran, r.skipped, runs)
		}
	}
}
