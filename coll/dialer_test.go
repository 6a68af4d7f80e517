package coll

import (
	"errors"
	"math"

	"github.com/gorun-mpi/gorun/rdma"
)

// A connectedMesh is a Dialer over connections that are there, by peer.
type connectedMesh struct {
	qps    []rdma.QP
	memory []rdma.PeerMemory // nil: no peer's memory is mapped
}

func (c *connectedMesh) Size() int { return len(c.qps) }

func (c *connectedMesh) Inline() int {
	inline := math.MaxInt
	for _, qp := range c.qps {
		if qp != nil {
			_, init := qp.Query()
			inline = min(inline, init.Cap.MaxInlineData)
		}
	}
	return inline
}

func (c *connectedMesh) Mapping() bool { return c.memory != nil }

func (c *connectedMesh) Maps(peer int) bool { return c.memory != nil && c.memory[peer] != nil }

func (c *connectedMesh) Memory(peer int) (rdma.PeerMemory, error) { return c.memory[peer], nil }

func (c *connectedMesh) Queue(peer int) (rdma.QP, error) {
	if c.qps[peer] == nil {
		return nil, errors.New("there is no queue pair")
	}
	return c.qps[peer], nil
}

// meshOf makes a mesh of queue pairs, which all its teams may use at the same time: no
// queue pair is taken later.
func meshOf(pd rdma.PD, cq rdma.CQ, qps []rdma.QP, memory []rdma.PeerMemory) (*Mesh, error) {
	m, err := NewMesh(MeshConfig{PD: pd, CQ: cq, Peers: &connectedMesh{qps, memory}})
	if err != nil {
		return nil, err
	}
	for i := range m.queues {
		if qps[i] != nil && !m.connected(&m.queues[i]) {
			return nil, m.queues[i].Err()
		}
	}
	return m, nil
}
