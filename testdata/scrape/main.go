// Command scrape asks a job for its metrics, as a script of testdata/scripts does:
//
//	scrape [-method METHOD] [-path PATH] [-until TEXT] FILE
//
// FILE is where gorun's standard error goes: scrape waits until the address of the metrics
// is in it, asks, and prints the status, the headers and the body. With -until it asks
// again until the body holds TEXT.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httputil"
	"os"
	"regexp"
	"strings"
	"time"
)

// limit bounds all that one call waits for.
const limit = 30 * time.Second

func main() {
	method := flag.String("method", http.MethodGet, "what to ask with")
	path := flag.String("path", "/metrics", "what to ask for")
	until := flag.String("until", "", "ask until the body holds this")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: scrape [-method METHOD] [-path PATH] [-until TEXT] FILE")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	text, err := scrape(ctx, flag.Arg(0), *method, *path, *until)
	if err != nil {
		fmt.Fprintln(os.Stderr, "scrape:", err)
		os.Exit(1)
	}
	fmt.Print(text)
}

var address = regexp.MustCompile(`metrics at (http://\S+)/metrics\s`)

func scrape(ctx context.Context, file, method, path, until string) (string, error) {
	url, err := found(ctx, file)
	if err != nil {
		return "", err
	}
	for {
		request, err := http.NewRequestWithContext(ctx, method, url+path, nil)
		if err != nil {
			return "", err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return "", err
		}
		text, err := httputil.DumpResponse(answer, true)
		answer.Body.Close()
		if err != nil || until == "" || strings.Contains(string(text), until) {
			return string(text), err
		}
		pause(ctx)
	}
}

// found is the address that gorun has written to a file.
func found(ctx context.Context, file string) (string, error) {
	for {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		if m := address.FindSubmatch(text); m != nil {
			return string(m[1]), nil
		}
		if ctx.Err() != nil {
			return "", errors.New(file + " names no address of metrics")
		}
		pause(ctx)
	}
}

// pause lets the job go on before it is looked at again.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Millisecond):
	}
}
