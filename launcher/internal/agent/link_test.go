package agent

import (
	"slices"
	"testing"
)

// What ssh 10 says at a login is not why an agent has ended.
func TestNoticesOfSSHAreNoComplaints(t *testing.T) {
	lines := []string{
		"** WARNING: connection is not using a post-quantum key exchange algorithm.",
		"** This session may be vulnerable to \"store now, decrypt later\" attacks.",
		"** The server may need to be upgraded. See https://openssh.com/pq.html",
		"gorun-agent: no such file",
	}
	if got := withoutNotices(lines); !slices.Equal(got, lines[3:]) {
		t.Errorf("got %q, want the last line", got)
	}
	if got := withoutNotices(lines[:3]); len(got) > 0 {
		t.Errorf("of notices alone: got %q", got)
	}
}
