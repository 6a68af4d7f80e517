package pmi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Universe is the number of ranks that the job could have. known is
// false if the launcher does not provide it.
func (c *Client) Universe(ctx context.Context) (n int, known bool, err error) {
	return c.number(ctx, "universe_size", "size")
}

// AppNum is the number of this rank's program among the programs of the
// job, from 0. known is false if the launcher does not provide it.
func (c *Client) AppNum(ctx context.Context) (n int, known bool, err error) {
	return c.number(ctx, "appnum", "appnum")
}

// number asks a question whose answer is a number, negative when it is not known.
func (c *Client) number(ctx context.Context, what, key string) (n int, known bool, err error) {
	c.call.Lock()
	defer c.call.Unlock()
	m, err := c.ask(ctx, "cmd=get_"+what+"\n", what)
	if err != nil {
		return 0, false, fmt.Errorf("pmi: get %s: %w", what, err)
	}
	n, ok := m.Int(key)
	return n, ok && n >= 0, nil
}

// Publish publishes a port under the name of a service, for all ranks and groups of the job.
func (c *Client) Publish(ctx context.Context, service, port string) error {
	if err := fit(service, "service"); err != nil {
		return err
	}
	if err := fit(port, "port"); err != nil {
		return err
	}
	return c.order(ctx, "cmd=publish_name service="+service+" port="+port+"\n", "publish_result")
}

// Unpublish removes a published service.
func (c *Client) Unpublish(ctx context.Context, service string) error {
	if err := fit(service, "service"); err != nil {
		return err
	}
	return c.order(ctx, "cmd=unpublish_name service="+service+"\n", "unpublish_result")
}

// Lookup returns the port of a published service, or ErrNotFound.
func (c *Client) Lookup(ctx context.Context, service string) (port string, err error) {
	if err := fit(service, "service"); err != nil {
		return "", err
	}
	c.call.Lock()
	defer c.call.Unlock()
	m, err := c.ask(ctx, "cmd=lookup_name service="+service+"\n", "lookup_result")
	if err != nil {
		if errors.Is(err, ErrRefused) {
			err = fmt.Errorf("%w: %w", ErrNotFound, err)
		}
		return "", fmt.Errorf("pmi: lookup %q: %w", clip(service), err)
	}
	port, _ = m.Get("port")
	return port, nil
}

// Spawn starts processes and returns when they run. They are a group with its own world
// and its own key-value space, which contains preset from the start. codes has an error
// code per process, 0 for one that runs; nil: all run. After an error none runs.
func (c *Client) Spawn(ctx context.Context, apps []SpawnApp, preset map[string]string) (codes []int, err error) {
	var b []byte
	line := func(key, value string) {
		if strings.ContainsAny(value, "\n\x00") && err == nil {
			err = fmt.Errorf("pmi: spawn: %s is %q: %w: no newline or NUL", key, clip(value), ErrSyntax)
		}
		b = append(append(append(append(b, key...), '='), value...), '\n')
	}
	pairs := func(what string, pairs [][2]string) {
		line(what+"_num", strconv.Itoa(len(pairs)))
		for i, p := range pairs {
			line(what+"_key_"+strconv.Itoa(i), p[0])
			line(what+"_val_"+strconv.Itoa(i), p[1])
		}
	}
	var put [][2]string
	for key, value := range preset {
		put = append(put, [2]string{key, value})
	}
	for i, a := range apps {
		line("mcmd", "spawn")
		line("nprocs", strconv.Itoa(a.N))
		line("execname", a.Program)
		line("totspawns", strconv.Itoa(len(apps)))
		line("spawnssofar", strconv.Itoa(i+1))
		for k, arg := range a.Args {
			line("arg"+strconv.Itoa(k+1), arg)
		}
		line("argcnt", strconv.Itoa(len(a.Args)))
		pairs("preput", put)
		pairs("info", a.Info)
		b = append(b, "endcmd\n"...)
	}
	if err != nil || len(apps) == 0 {
		return nil, err
	}
	c.call.Lock()
	defer c.call.Unlock()
	m, err := c.askBytes(ctx, b, "spawn_result")
	if err != nil {
		return nil, fmt.Errorf("pmi: spawn: %w", err)
	}
	if list, ok := m.Get("errcodes"); ok {
		for code := range strings.SplitSeq(list, ",") {
			n, err := strconv.Atoi(code)
			if err != nil {
				return nil, fmt.Errorf("pmi: spawn: errcodes=%s: %w", clip(list), ErrSyntax)
			}
			codes = append(codes, n)
		}
	}
	return codes, nil
}

// order sends a command whose answer holds nothing but rc.
func (c *Client) order(ctx context.Context, line, answer string) error {
	c.call.Lock()
	defer c.call.Unlock()
	if _, err := c.ask(ctx, line, answer); err != nil {
		return fmt.Errorf("pmi: %s: %w", strings.TrimSuffix(answer, "_result"), err)
	}
	return nil
}

// fit refuses a value that another field of its line could be taken for.
func fit(value, what string) error {
	if value == "" || strings.ContainsAny(value, " =\n\x00") {
		return fmt.Errorf("pmi: %s %q: %w: want one word without '='", what, clip(value), ErrSyntax)
	}
	return nil
}
