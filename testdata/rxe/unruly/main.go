// Unruly ends, or does not, as its argument says; a test's double for programs
// that go wrong in the guest.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

func main() {
	switch what := os.Args[1]; what {
	case "exit":
		fmt.Println("on stdout")
		fmt.Fprintln(os.Stderr, "on stderr")
		status, err := strconv.Atoi(os.Args[2])
		if err != nil {
			panic(err)
		}
		os.Exit(status)
	case "kill":
		signal, err := strconv.Atoi(os.Args[2])
		if err != nil {
			panic(err)
		}
		if err := syscall.Kill(os.Getpid(), syscall.Signal(signal)); err != nil {
			panic(err)
		}
		select {}
	case "leave": // a process of a session of its own, that keeps our output open
		cmd := exec.Command("sleep", "1000")
		cmd.Stdout = os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			panic(err)
		}
	case "hang":
		hangingHere()
	case "flood":
		for i := range 1 << 16 {
			fmt.Printf("%063d\n", i)
		}
	}
}

// hangingHere is to be seen in stacks from its first line of output on. Without
// the timer the runtime would see a deadlock.
func hangingHere() {
	fmt.Println("hanging")
	<-time.After(24 * time.Hour)
}
