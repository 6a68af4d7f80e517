#!/bin/sh
# hashicorp/memberlist v0.7.0: Join counts a member that has refused it.
#
# A member may refuse a newcomer by an error of its MergeDelegate. It sends its own state first and asks the
# delegate then (net.go, handleConn, pushPullMsg). So the newcomer's Join returns 1 and no error, and its own list
# has both members; the list of the member that refused has only itself. Neither waiting nor the number that Join
# returns tells the newcomer: it must ask the other member by a message of its own.
#
# Seen: "joined 1, error <nil>; the newcomer has 2 members, the member that refused has 1"
# Needs Go, and a way to its modules.
set -eu
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/hashicorp/memberlist"
)

// refuses refuses all, and says when it has.
type refuses chan struct{}

func (r refuses) NotifyMerge([]*memberlist.Node) error {
	r <- struct{}{}
	return errors.New("no newcomers")
}

func member(name string, merge memberlist.MergeDelegate) *memberlist.Memberlist {
	c := memberlist.DefaultLocalConfig()
	c.Name, c.BindAddr, c.BindPort, c.Merge = name, "127.0.0.1", 0, merge
	c.GossipInterval, c.PushPullInterval, c.ProbeInterval = 0, 0, 0 // nothing but the join itself
	c.Logger = log.New(io.Discard, "", 0)
	m, err := memberlist.Create(c)
	if err != nil {
		log.Fatal(err)
	}
	return m
}

func main() {
	refused := make(refuses, 1)
	old, newcomer := member("old", refused), member("newcomer", nil)
	n, err := newcomer.Join([]string{old.LocalNode().Address()})
	<-refused
	fmt.Printf("joined %d, error %v; the newcomer has %d members, the member that refused has %d\n", n, err, newcomer.NumMembers(), old.NumMembers())
}
EOF
export GOFLAGS=-mod=mod GOWORK=off
{ go mod init finding && go get github.com/hashicorp/memberlist@v0.7.0; } >log 2>&1 || { cat log; exit 1; }
got=$(go run .)
echo "$got"
[ "$got" = "joined 1, error <nil>; the newcomer has 2 members, the member that refused has 1" ]
