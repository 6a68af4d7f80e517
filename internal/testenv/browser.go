package testenv

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Browser shows a page in a real browser without a screen and gives what it made of it: the document, its console, and what the
// page asked the network for. part is what follows the page in the address.
func Browser(t *testing.T, page, part string, args ...string) (dom, console string, requests []string) {
	t.Helper()
	path := Need(t, "chromium")
	dir := t.TempDir()
	file, netlog := filepath.Join(dir, "page.html"), filepath.Join(dir, "net.json")
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx := Deadline(t, time.Minute)
	cmd := exec.CommandContext(ctx, path, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND", "--user-data-dir=" + filepath.Join(dir, "profile"),
		"--enable-logging=stderr", "--log-net-log=" + netlog, "--dump-dom"}, append(args, "file://"+file+part)...)...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, errs.String())
	}
	for line := range strings.Lines(errs.String()) {
		if strings.Contains(line, ":CONSOLE") {
			console += line
		}
	}
	return out.String(), console, pageRequests(t, netlog)
}

// pageRequests are the addresses beyond files that the page asked for. What the
// browser asks for by itself has no origin.
func pageRequests(t *testing.T, netlog string) []string {
	t.Helper()
	data, err := os.ReadFile(netlog)
	if err != nil {
		t.Fatal(err)
	}
	var log struct {
		Events []struct {
			Params struct {
				URL       string `json:"url"`
				Initiator string `json:"initiator"`
			} `json:"params"`
		} `json:"events"`
	}
	if err := json.Unmarshal(data, &log); err != nil {
		t.Fatalf("%s: %v", netlog, err)
	}
	var list []string
	for _, e := range log.Events {
		if strings.HasPrefix(e.Params.URL, "http") && e.Params.Initiator != "" && e.Params.Initiator != "not an origin" {
			list = append(list, e.Params.URL)
		}
	}
	return list
}
