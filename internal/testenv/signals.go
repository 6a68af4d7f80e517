package testenv

import (
	"os"
	"os/signal"
	"syscall"
)

// Tests end what they started by signals, and what they start inherits those that are
// ignored: SIGHUP under nohup, SIGINT and SIGQUIT of a script's command in the
// background. A signal that is caught here is a child's default again, and this process
// goes on without it as before.
func init() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
