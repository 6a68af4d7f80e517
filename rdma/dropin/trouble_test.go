package dropin_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/rdma/dropin"
)

func TestParseTrouble(t *testing.T) {
	for text, want := range map[string]any{
		"":                     (*dropin.Trouble)(nil),
		"7":                    &dropin.Trouble{Seed: 7},
		"7,errors":             &dropin.Trouble{Seed: 7, Errors: true},
		"0,link,limits,errors": &dropin.Trouble{Link: true, Limits: true, Errors: true},
		"x":                    `found "x"`,
		"-1":                   `found "-1"`,
		",errors":              `found ",errors"`,
		"7,":                   `found ""`,
		"7,error":              `found "error", expected SEED`,
	} {
		got, err := dropin.ParseTrouble(text)
		if says, ok := want.(string); ok {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%q: %v", text, err)
			}
		} else if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
