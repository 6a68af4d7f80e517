package host

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestApart(t *testing.T) {
	if cards, _ := filepath.Glob("/sys/class/infiniband/*"); cards != nil {
		t.Logf("this machine has %v: Open MPI may use it, and nothing is said", cards)
		return
	}
	const debian, system, own = "/usr/lib/x86_64-linux-gnu/libmpi.so.40.50.0", "/etc/openmpi/openmpi-mca-params.conf", "/home/u/.openmpi/mca-params.conf"
	for _, c := range []struct {
		name, library string
		hosts         int
		address       string
		env           []string
		files         map[string]string
		want          string // at the beginning
	}{
		{"Debian's Open MPI 6", debian, 2, "240.0.0.1", nil, map[string]string{system: "# btl_tcp_if_include = eth0\nbtl_tcp_if_include=lo\n"},
			system + " has btl_tcp_if_include = lo: ranks of Open MPI reach no other host, and wait for those there for ever or fail; gorun --mca btl_tcp_if_include NETWORK has"},
		{"the user's own setting", debian, 2, "240.0.0.1", []string{"OMPI_MCA_btl_tcp_if_include=127.0.0.0/8"}, nil,
			"OMPI_MCA_btl_tcp_if_include is 127.0.0.0/8: ranks of Open MPI reach no other host, and wait for those there for ever or fail; gorun --mca btl_tcp_if_include NETWORK has"},
		{"one host", debian, 1, "240.0.0.1", nil, map[string]string{system: "btl_tcp_if_include=lo\n"}, ""},
		{"an installation of its own", "/opt/ompi/lib/libmpi.so.40.50.0", 2, "240.0.0.1", nil, map[string]string{system: "btl_tcp_if_include=lo\n"}, ""},
		{"that has a file", "/opt/ompi/lib/libmpi.so.40.50.0", 2, "240.0.0.1", nil, map[string]string{"/opt/ompi/etc/openmpi-mca-params.conf": "btl_tcp_if_include = lo\n"}, "/opt/ompi/etc/openmpi-mca-params.conf has "},
		{"the user's file", debian, 2, "240.0.0.1", []string{"HOME=/home/u"}, map[string]string{system: "btl_tcp_if_include=lo\n", own: "btl_tcp_if_include=eth0\n"}, ""},
		{"the user's variable", debian, 2, "240.0.0.1", []string{"OMPI_MCA_btl_tcp_if_include=10.0.0.0/8", "HOME=/home/u"}, map[string]string{own: "btl_tcp_if_include=lo\n"}, ""},
		{"an empty one", debian, 2, "240.0.0.1", []string{"OMPI_MCA_btl_tcp_if_include=", "HOME=/home/u"}, map[string]string{own: "btl_tcp_if_include=lo\n"}, own + " has "},
		{"more interfaces", debian, 2, "240.0.0.1", nil, map[string]string{system: "btl_tcp_if_include=lo,eth0\n"}, ""},
		{"none set", debian, 2, "240.0.0.1", nil, nil, ""},
		{"another way", debian, 2, "240.0.0.1", []string{"OMPI_MCA_pml=ucx"}, map[string]string{system: "btl_tcp_if_include=lo\n"}, ""},
		{"another way for UCX", debian, 2, "240.0.0.1", []string{"OMPI_MCA_opal_common_ucx_tls=any", "OMPI_MCA_opal_common_ucx_devices=any"}, map[string]string{system: "btl_tcp_if_include=lo\n"}, ""},
		{"half of one", debian, 2, "240.0.0.1", []string{"OMPI_MCA_opal_common_ucx_tls=any"}, map[string]string{system: "btl_tcp_if_include=lo\n"}, system + " has "},
		{"hosts of one machine, a library that is not there", "/nowhere/libmpi.so.40.50.0", 2, "", nil, map[string]string{system: "btl_tcp_if_include=lo\n"}, ""},
		{"with an address", "/nowhere/libmpi.so.40.50.0", 2, "127.0.0.1", nil, map[string]string{system: "btl_tcp_if_include=lo\n"}, ""},
	} {
		s := &Spec{Hosts: c.hosts, Address: c.address}
		got := s.apart(c.env, c.library, func(name string) string { return c.files[name] })
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	if got := networkOf("127.0.0.1"); got != "127.0.0.0/8" {
		t.Errorf("127.0.0.1 is in %s", got)
	}
}
