package arch

import (
	"os"
	"runtime"
)

// GoThread runs f on an OS thread of its own, which ends with f, and with it what f has set
// of it: its CPUs, its priority. It is not the main thread of the process, which
// outlives f, and whose CPUs tools take for those of the process.
func GoThread(f func()) {
	go func() {
		runtime.LockOSThread() // not unlocked
		if Thread() != os.Getpid() {
			f()
			return
		}
		begun := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(begun)
			f()
		}()
		<-begun
		runtime.UnlockOSThread()
	}()
}
