package pmix

import (
	"errors"
	"strings"
	"testing"
)

func TestSupportedVersions(t *testing.T) {
	for _, c := range []struct{ said, want string }{
		{"OpenPMIx 4.2.2 (PMIx Standard: 4.2, Stable ABI: 0.0, Provisional ABI: 0.0)", ""},
		{"OpenPMIx 4.2.0rc1 (PMIx Standard: 4.1, Stable ABI: 0.0, Provisional ABI: 0.0)", ""},
		{"OpenPMIx 5.0.7 (PMIx Standard: 4.2, Stable ABI: 5.0, Provisional ABI: 5.0)", ""},
		{"OpenPMIx 6.1.0 (PMIx Standard: 4.2, Stable ABI: 5.0, Provisional ABI: 5.0)", ""},
		{"OpenPMIx 3.2.3 (PMIx Standard: 3.1, Stable ABI: 0.0)", "libpmix is version 3.2.3, and this gorun-pmix knows 4.2 up to 7.x"},
		{"OpenPMIx 4.1.2 (PMIx Standard: 4.1)", "libpmix is version 4.1.2, and this gorun-pmix knows 4.2 up to 7.x"},
		{"OpenPMIx 7.0.0rc1 (PMIx Standard: 5.0)", ""},
		{"OpenPMIx 8.0.0 (PMIx Standard: 5.0)", "libpmix is version 8.0.0"},
		{"OpenPMIx 10.0.0", "libpmix is version 10.0.0"},
		{"OpenPMIx", `does not tell its version but says "OpenPMIx"`},
		{"", `does not tell its version but says ""`},
	} {
		err := supported(c.said)
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "install")) {
			t.Errorf("%q: got %v, want %q", c.said, err, c.want)
		}
	}
}
