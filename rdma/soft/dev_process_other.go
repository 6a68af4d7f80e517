//go:build !linux

package soft

import (
	"errors"
	"time"
)

func (p *Provider) allowReach() {}

func processStart(int) uint64 { return 0 }

func processAlive(int) bool { return true }

func watchProcess(int, uint64) (fd int, alive bool) { return -1, true }

func unwatchProcess(int) {}

func processEnded(int, int, uint64) bool { return false }

func readProcess(int, []byte, uint64) error { return errors.ErrUnsupported }

func writeProcess(int, []byte, uint64) error { return errors.ErrUnsupported }

func discard([]byte) {}

const deviceHz = 1e9

func deviceTime() uint64 { return uint64(time.Now().UnixNano()) }

// networkNamespace names the network namespace of this process, 0 where it is not known.
func networkNamespace() uint64 { return 0 }
